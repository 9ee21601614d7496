/**
 * Credentials that need a program or a protocol of their own: exec plugins, auth-providers, SOCKS proxies. What
 * @kubernetes/client-node knows of them is used; it is loaded here and nowhere else, because it costs 0.4 s and 90 MB.
 */
import { Agent as HttpAgent } from "node:http";
import type { RequestOptions } from "node:https";
import { dirname, isAbsolute, resolve } from "node:path";
import type { KubeConfig, User } from "@kubernetes/client-node";
import type { Credentials, RequestCredentials } from "./connection.js";
import { Agents, FileCredentials } from "./credentials.js";
import { ConnectionSettingsError } from "./errors.js";
import type { Kubeconfig } from "./kubeconfig.js";

export class LibraryCredentials implements Credentials {
  readonly #config: KubeConfig;
  readonly #files: FileCredentials;
  readonly #agents: Agents;
  readonly #socks: boolean;

  private constructor(config: KubeConfig, kubeconfig: Kubeconfig, proxyUrl: string) {
    const { cluster, user } = kubeconfig;
    this.#config = config;
    this.#socks = proxyUrl.startsWith("socks");
    this.#files = new FileCredentials(cluster, user, this.#socks ? "" : proxyUrl);
    this.#agents = new Agents(cluster, this.#socks ? "" : proxyUrl);
  }

  /** `file` is where the kubeconfig was read from; "" when the settings are from elsewhere. */
  static async load(kubeconfig: Kubeconfig, file: string, proxyUrl: string): Promise<LibraryCredentials> {
    const { KubeConfig } = await import("@kubernetes/client-node");
    const config = new KubeConfig();
    const { cluster } = kubeconfig;
    try {
      config.loadFromString(kubeconfig.text);
      config.makePathsAbsolute(dirname(file));
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new ConnectionSettingsError(`kubeconfig ${file}: ${reason}`, { cause: error });
    }
    const user = config.getCurrentUser();
    if (user !== null) preparePlugin(user, dirname(file));
    const current = config.getCurrentCluster();
    if (current !== null) {
      // --master may have replaced the server, and the environment may name the proxy.
      Object.assign(current, { server: cluster.server.href, proxyUrl: proxyUrl || undefined });
      // The library refuses http:// otherwise; there is no TLS to verify.
      if (cluster.server.protocol === "http:") Object.assign(current, { skipTLSVerify: true });
    }
    return new LibraryCredentials(config, kubeconfig, proxyUrl);
  }

  async next(): Promise<RequestCredentials> {
    const files = await this.#files.next();
    const options: RequestOptions = {};
    await this.#config.applyToHTTPSOptions(options);
    const headers = { ...(options.headers as Record<string, string> | undefined), ...files.headers };
    if (this.#socks && options.agent instanceof HttpAgent) return { headers, agent: options.agent };
    const text = (value: unknown) => (typeof value === "string" || Buffer.isBuffer(value) ? value : undefined);
    const { cert, key } = options;
    // A plugin's certificate; that of a file is known already.
    if (cert === undefined || Buffer.isBuffer(cert)) return { headers, agent: files.agent };
    return { headers, agent: this.#agents.agentFor({ ca: text(options.ca), cert: text(cert), key: text(key) }) };
  }

  close(): void {
    this.#files.close();
    this.#agents.close();
  }
}

/** What client-go does for an exec plugin besides: a relative path is relative to the kubeconfig; the plugin is told which version to answer in. */
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
