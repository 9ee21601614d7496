/**
 * Credentials that need a program or a protocol of their own: exec plugins, auth-providers, SOCKS proxies. The last two use
 * @kubernetes/client-node. It is only loaded here, because it takes 0.4 s and 90 MB.
 */
import type { RequestOptions } from "node:https";
import { dirname } from "node:path";
import type { KubeConfig } from "@kubernetes/client-node";
import { network } from "../../base/http.js";
import type { Fields } from "../../base/unknown.js";
import type { Credentials, RequestCredentials } from "./api-connection.js";
import { Agents, FileCredentials } from "./credentials.js";
import { ConnectionSettingsError } from "./errors.js";
import { ExecPlugin, type IssuedCredentials } from "./exec-plugin.js";
import type { ClusterSettings, ExecSettings, Kubeconfig } from "./kubeconfig.js";
import { isSocks } from "./proxy.js";

export interface PluginCredentialsOptions {
  /** Path of the kubeconfig. */
  readonly file: string;
  /** "" for none. */
  readonly proxyUrl: string;
  /** Same as the plugin's option. */
  readonly timeLimitMs?: number;
}

/** Creates the library's configuration, with the credentials that a plugin issued. */
type Load = (issued: IssuedCredentials | undefined) => KubeConfig;

export class PluginCredentials implements Credentials {
  /** Undefined if only a plugin is needed. */
  readonly #load: Load | undefined;
  readonly #files: FileCredentials;
  readonly #agents: Agents;
  readonly #socks: boolean;
  readonly #plugin: ExecPlugin | undefined;
  #config: KubeConfig | undefined;
  #issued: IssuedCredentials | undefined;

  private constructor(load: Load | undefined, { cluster, user }: Kubeconfig, options: PluginCredentialsOptions) {
    this.#load = load;
    this.#socks = isSocks(options.proxyUrl);
    const proxyUrl = this.#socks ? "" : options.proxyUrl;
    this.#files = new FileCredentials(cluster, user, proxyUrl);
    this.#agents = new Agents(cluster, proxyUrl);
    const { exec: settings } = user;
    if (settings === undefined) return;
    const clusterInfo = () => clusterInfoFor(settings, cluster, this.#files);
    this.#plugin = new ExecPlugin({ settings, clusterInfo, timeLimitMs: options.timeLimitMs });
  }

  /** Rejects with `ConnectionSettingsError`. */
  static async load(kubeconfig: Kubeconfig, options: PluginCredentialsOptions): Promise<PluginCredentials> {
    if (!kubeconfig.user.authProvider && !isSocks(options.proxyUrl)) {
      return new PluginCredentials(undefined, kubeconfig, options);
    }
    const { KubeConfig } = await import("@kubernetes/client-node");
    const load: Load = (issued) => prepare(new KubeConfig(), kubeconfig, options, issued);
    // Reports unusable settings now.
    load(undefined);
    return new PluginCredentials(load, kubeconfig, options);
  }

  async next(): Promise<RequestCredentials> {
    const files = await this.#files.next();
    const issued = await this.#plugin?.next();
    const authorization = issued !== undefined && issued.token !== "" ? `Bearer ${issued.token}` : undefined;
    const headers = { ...(authorization !== undefined && { Authorization: authorization }), ...files.headers };
    if (this.#load === undefined) return { headers, agent: await this.#agentFor(issued?.certificate, files) };
    // The library creates its agent once, with the certificate of that time.
    if (issued !== this.#issued) this.#config = undefined;
    this.#issued = issued;
    this.#config ??= this.#load(issued);
    const options: RequestOptions = {};
    await this.#config.applyToHTTPSOptions(options);
    const all = { ...(options.headers as Record<string, string> | undefined), ...headers };
    if (this.#socks && options.agent instanceof network.http.Agent) return { headers: all, agent: options.agent };
    const { cert, key } = options;
    // A provider's certificate is text. Certificates from files are in `files` already.
    const certificate = typeof cert === "string" && typeof key === "string" ? { cert, key } : issued?.certificate;
    return { headers: all, agent: await this.#agentFor(certificate, files) };
  }

  /** Drops cached credentials, which might otherwise stay until they expire. */
  refused(): void {
    this.#plugin?.refused();
    this.#config = undefined;
  }

  close(): void {
    this.#plugin?.close();
    this.#files.close();
    this.#agents.close();
  }

  async #agentFor(certificate: IssuedCredentials["certificate"], files: RequestCredentials) {
    if (certificate === undefined) return files.agent;
    return this.#agents.agentFor({ ca: await this.#files.authority(), ...certificate });
  }
}

/** The same fields as client-go's rest.ConfigToExecCluster. A proxy from the environment is not included. */
async function clusterInfoFor(
  { cluster: told }: ExecSettings,
  { tlsServerName, insecure, proxyUrl }: ClusterSettings,
  files: FileCredentials,
): Promise<Fields | undefined> {
  if (told === undefined) return undefined;
  const authority = await files.authority();
  return {
    server: told.server,
    ...(tlsServerName !== "" && { "tls-server-name": tlsServerName }),
    ...(insecure && { "insecure-skip-tls-verify": true }),
    ...(authority !== undefined && { "certificate-authority-data": Buffer.from(authority).toString("base64") }),
    ...(proxyUrl !== "" && { "proxy-url": proxyUrl }),
    config: told.config,
  };
}

function prepare(
  config: KubeConfig,
  kubeconfig: Kubeconfig,
  { file, proxyUrl }: PluginCredentialsOptions,
  issued: IssuedCredentials | undefined,
): KubeConfig {
  const { server } = kubeconfig.cluster;
  try {
    config.loadFromString(kubeconfig.text);
    config.makePathsAbsolute(dirname(file));
  } catch {
    // The library's message may quote the file.
    throw new ConnectionSettingsError(`kubeconfig ${file}: @kubernetes/client-node cannot read it`);
  }
  const user = config.getCurrentUser();
  // Plugins are run here, not by the library, which never kills them.
  if (user !== null) Object.assign(user, { exec: undefined });
  if (user !== null && issued?.certificate !== undefined) {
    const { cert, key } = issued.certificate;
    const base64 = (text: string) => Buffer.from(text).toString("base64");
    Object.assign(user, { certData: base64(cert), keyData: base64(key) });
  }
  const cluster = config.getCurrentCluster();
  // --master may have replaced the server, and the environment may provide the proxy.
  if (cluster !== null) Object.assign(cluster, { server: server.href, proxyUrl: proxyUrl || undefined });
  // Otherwise the library refuses http://; there is no TLS to verify.
  if (cluster !== null && server.protocol === "http:") Object.assign(cluster, { skipTLSVerify: true });
  return config;
}
