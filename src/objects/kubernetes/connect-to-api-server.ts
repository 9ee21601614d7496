import { access } from "node:fs/promises";
import { isIPv6 } from "node:net";
import { isFields } from "../../base/unknown.js";
import type { ProxyConfig } from "../../config/proxy-config.js";
import { ApiConnection, type Credentials, type RequestReport } from "./api-connection.js";
import { FileCredentials } from "./credentials.js";
import { ConnectionSettingsError } from "./errors.js";
import { ANONYMOUS, type ClusterSettings, type Kubeconfig, readKubeconfig, serverUrl } from "./kubeconfig.js";
import type { PluginCredentialsOptions } from "./plugin-credentials.js";
import { isSocks, knowsProxies, proxyFromEnvironment } from "./proxy.js";

export interface ConnectOptions {
  readonly config: Pick<ProxyConfig, "clientConnection" | "master">;
  readonly onRequest?: (report: RequestReport) => void;
  /** Default: the process's environment. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Directory in which the kubelet puts the service account's token and ca.crt. */
  readonly serviceAccountDirectory?: string;
  /** Same as the plugin's option. */
  readonly pluginTimeLimitMs?: number;
}

const SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";

/**
 * Chooses the connection as kube-proxy does: the kubeconfig's, with `master` as its server if set; `master` alone, without
 * credentials; with neither, the service account's, inside a cluster. Sends nothing yet. Rejects with `ConnectionSettingsError`
 * if the settings cannot be used.
 */
export async function connectToApiServer(options: ConnectOptions): Promise<ApiConnection> {
  const { config, environment = process.env } = options;
  const { kubeconfig: file, qps, burst } = config.clientConnection;
  const directory = options.serviceAccountDirectory ?? SERVICE_ACCOUNT;
  const settings =
    file !== ""
      ? await readKubeconfig(file, config.master)
      : config.master !== ""
        ? masterAlone(config.master)
        : await inCluster(environment, directory);
  const { server } = settings.cluster;
  const proxyUrl = settings.cluster.proxyUrl || proxyFromEnvironment(server, environment);
  return new ApiConnection({
    server,
    credentials: await credentialsFor(settings, { file, proxyUrl, timeLimitMs: options.pluginTimeLimitMs }),
    qps,
    burst,
    onRequest: options.onRequest,
  });
}

async function credentialsFor(settings: Kubeconfig, options: PluginCredentialsOptions): Promise<Credentials> {
  const { proxyUrl } = options;
  const { user, cluster } = settings;
  if (proxyUrl !== "" && !isSocks(proxyUrl) && !knowsProxies(process.versions.node)) {
    const { host } = new URL(proxyUrl);
    throw new ConnectionSettingsError(
      `the proxy ${host} needs Node 24.5 or later, and this is Node ${process.versions.node}`,
    );
  }
  if (user.exec === undefined && !user.authProvider && !isSocks(proxyUrl)) {
    return new FileCredentials(cluster, user, proxyUrl);
  }
  const { PluginCredentials } = await import("./plugin-credentials.js");
  return PluginCredentials.load(settings, options);
}

function masterAlone(master: string): Kubeconfig {
  return { cluster: clusterAt(serverUrl(master, false, "--master")), user: ANONYMOUS, text: "" };
}

async function inCluster(environment: ConnectOptions["environment"] = {}, directory: string): Promise<Kubeconfig> {
  const { KUBERNETES_SERVICE_HOST: host = "", KUBERNETES_SERVICE_PORT: port = "" } = environment;
  if (host === "" || port === "") {
    throw new ConnectionSettingsError(
      "no API server is configured, and this is not inside a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set. " +
        "Set clientConnection.kubeconfig in the configuration, or `--kubeconfig` or `--master`",
    );
  }
  const files = { token: `${directory}/token`, authority: `${directory}/ca.crt` };
  for (const file of [files.token, files.authority]) {
    await access(file).catch((error: unknown) => {
      const advice =
        "Mount the service account's token (automountServiceAccountToken), or set clientConnection.kubeconfig";
      throw new ConnectionSettingsError(`${file} cannot be read. ${advice}`, { cause: error });
    });
  }
  const server = serverUrl(`https://${isIPv6(host) ? `[${host}]` : host}:${port}`, true, "KUBERNETES_SERVICE_HOST");
  return {
    cluster: { ...clusterAt(server), authority: { file: files.authority } },
    user: { ...ANONYMOUS, tokenFile: files.token },
    text: "",
  };
}

function clusterAt(server: URL): ClusterSettings {
  return { server, authority: undefined, tlsServerName: "", insecure: false, proxyUrl: "" };
}

/** Time limit for an answer to /version, ms. A server that just answered lists also answers this, or has more important work. */
const VERSION_IDLE_MS = 10_000;
/** An answer to /version has about 400 bytes. */
const MAX_VERSION_BYTES = 64 * 1024;

/** `gitVersion` of /version ("v1.36.0"). Returns undefined if the server does not answer: only a metric depends on it. */
export async function serverVersion(connection: ApiConnection, signal: AbortSignal): Promise<string | undefined> {
  try {
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of connection.stream({ method: "GET", path: "/version", signal, idleMs: VERSION_IDLE_MS })) {
      if ((bytes += chunk.length) > MAX_VERSION_BYTES) return undefined;
      chunks.push(chunk);
    }
    const answer: unknown = JSON.parse(Buffer.concat(chunks).toString());
    const version = isFields(answer) ? answer["gitVersion"] : undefined;
    return typeof version === "string" ? version : undefined;
  } catch {
    return undefined;
  }
}
