/**
 * Credentials that need a program or a protocol of their own: exec plugins, auth-providers, SOCKS proxies. What
 * @kubernetes/client-node knows of them is used; it is loaded here and nowhere else, because it costs 0.4 s and 90 MB.
 */
import type { RequestOptions } from "node:https";
import { dirname, isAbsolute, resolve } from "node:path";
import type { KubeConfig, User } from "@kubernetes/client-node";
import { http } from "../../base/http.js";
import { reasonOf } from "../../base/unknown.js";
import type { Credentials, RequestCredentials } from "./connection.js";
import { Agents, FileCredentials } from "./credentials.js";
import { ConnectionSettingsError } from "./errors.js";
import type { Kubeconfig } from "./kubeconfig.js";
import { isSocks } from "./proxy.js";

export class LibraryCredentials implements Credentials {
  readonly #load: () => KubeConfig;
  readonly #files: FileCredentials;
  readonly #agents: Agents;
  readonly #socks: boolean;
  #config: KubeConfig | undefined;

  private constructor(load: () => KubeConfig, { cluster, user }: Kubeconfig, proxyUrl: string) {
    this.#load = load;
    this.#config = load();
    this.#socks = isSocks(proxyUrl);
    this.#files = new FileCredentials(cluster, user, this.#socks ? "" : proxyUrl);
    this.#agents = new Agents(cluster, this.#socks ? "" : proxyUrl);
  }

  /** `file` is where the kubeconfig was read from. Rejects with `ConnectionSettingsError`. */
  static async load(kubeconfig: Kubeconfig, file: string, proxyUrl: string): Promise<LibraryCredentials> {
    const { KubeConfig } = await import("@kubernetes/client-node");
    const load = () => prepare(new KubeConfig(), kubeconfig, file, proxyUrl);
    return new LibraryCredentials(load, kubeconfig, proxyUrl);
  }

  async next(): Promise<RequestCredentials> {
    const files = await this.#files.next();
    const options: RequestOptions = {};
    this.#config ??= this.#load();
    await this.#config.applyToHTTPSOptions(options);
    const headers = { ...(options.headers as Record<string, string> | undefined), ...files.headers };
    if (this.#socks && options.agent instanceof http.Agent) return { headers, agent: options.agent };
    const { cert, key } = options;
    // A plugin's certificate is text; that of a file is known already.
    if (typeof cert !== "string" || typeof key !== "string") return { headers, agent: files.agent };
    return { headers, agent: this.#agents.agentFor({ ca: await this.#files.authority(), cert, key }) };
  }

  /** The library keeps what a plugin said until it expires, if ever. */
  refused(): void {
    this.#config = undefined;
  }

  close(): void {
    this.#files.close();
    this.#agents.close();
  }
}

function prepare(config: KubeConfig, kubeconfig: Kubeconfig, file: string, proxyUrl: string): KubeConfig {
  const { server } = kubeconfig.cluster;
  try {
    config.loadFromString(kubeconfig.text);
    config.makePathsAbsolute(dirname(file));
  } catch (error) {
    const reason = reasonOf(error);
    throw new ConnectionSettingsError(`kubeconfig ${file}: ${reason}`, { cause: error });
  }
  const user = config.getCurrentUser();
  if (user !== null) preparePlugin(user, dirname(file));
  const cluster = config.getCurrentCluster();
  // --master may have replaced the server, and the environment may name the proxy.
  if (cluster !== null) Object.assign(cluster, { server: server.href, proxyUrl: proxyUrl || undefined });
  // The library refuses http:// otherwise; there is no TLS to verify.
  if (cluster !== null && server.protocol === "http:") Object.assign(cluster, { skipTLSVerify: true });
  return config;
}

/** What client-go does for an exec plugin besides: a relative path is relative to the kubeconfig; the plugin learns which version to answer in. */
function preparePlugin(user: User, directory: string): void {
  const exec: unknown = user.exec;
  if (typeof exec !== "object" || exec === null) return;
  const fields = exec as { command?: unknown; apiVersion?: unknown; env?: unknown };
  const { command, apiVersion } = fields;
  if (typeof command === "string" && command.includes("/") && !isAbsolute(command)) {
    fields.command = resolve(directory, command);
  }
  const env: unknown[] = Array.isArray(fields.env) ? fields.env : [];
  const info = { apiVersion, kind: "ExecCredential", spec: { interactive: false } };
  fields.env = [...env, { name: "KUBERNETES_EXEC_INFO", value: JSON.stringify(info) }];
}
