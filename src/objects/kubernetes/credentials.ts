/**
 * Credentials from files and settings: service account tokens, client certificates, passwords. Files are checked before every
 * request, because tokens, certificates and authorities rotate.
 */
import { readFile } from "node:fs/promises";
import type { Agent as HttpAgent } from "node:http";
import type { SecureContext } from "node:tls";
import { network } from "../../base/http.js";
import type { Credentials, RequestCredentials } from "./api-connection.js";
import { ConnectionSettingsError } from "./errors.js";
import type { ClusterSettings, Pem, UserSettings } from "./kubeconfig.js";

/** Kernel probes detect a dead connection after this time, ms, and ten more seconds (libuv's interval and count). */
const KEEP_ALIVE_MS = 15_000;

interface TlsMaterial {
  /** PEM; undefined for the system's authorities. */
  readonly ca: string | Buffer | undefined;
  readonly cert: string | Buffer | undefined;
  readonly key: string | Buffer | undefined;
}

/** Connections that use one set of certificates. A changed set replaces them. */
export class Agents {
  #agent: HttpAgent | undefined;
  #material: TlsMaterial | undefined;

  /** @param proxyUrl "" for none. */
  constructor(
    private readonly cluster: ClusterSettings,
    private readonly proxyUrl: string,
  ) {}

  /** Throws if the certificates or keys cannot be used. */
  agentFor(material: TlsMaterial): HttpAgent {
    const before = this.#material;
    const same = before?.ca === material.ca && before?.cert === material.cert && before?.key === material.key;
    if (this.#agent !== undefined && same) return this.#agent;
    const agent = this.#make(material);
    this.close();
    this.#agent = agent;
    this.#material = material;
    return agent;
  }

  /** Closes idle connections. The others end with their requests. */
  close(): void {
    const agent = this.#agent;
    if (agent === undefined) return;
    for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
    // Do not keep connections that become idle later.
    agent.maxFreeSockets = 0;
  }

  #make(material: TlsMaterial): HttpAgent {
    const { server, insecure, tlsServerName } = this.cluster;
    const options = {
      keepAlive: true,
      keepAliveMsecs: KEEP_ALIVE_MS,
      // Sends everything through this proxy: NO_PROXY and similar exceptions were applied before.
      ...(this.proxyUrl !== "" && { proxyEnv: { HTTP_PROXY: this.proxyUrl, HTTPS_PROXY: this.proxyUrl } }),
    };
    if (server.protocol === "http:") return new network.http.Agent(options);
    return new network.https.Agent({
      ...options,
      secureContext: secureContext(material, insecure),
      rejectUnauthorized: !insecure,
      ALPNProtocols: ["http/1.1"],
      ...(tlsServerName !== "" && { servername: tlsServerName }),
    });
  }
}

/** @param insecure the server's certificate is not checked. The system's authorities, which take 5 MB and 0.1 s, are not read. */
function secureContext({ ca, cert, key }: TlsMaterial, insecure: boolean): SecureContext {
  const { createSecureContext, getCACertificates } = network.tls;
  const trusted = (): string[] => [...new Set([...getCACertificates("default"), ...getCACertificates("system")])];
  return createSecureContext({
    ca: ca ?? (insecure ? [] : trusted()),
    cert,
    key,
  });
}

export class FileCredentials implements Credentials {
  readonly #agents: Agents;
  readonly #files = new Map<string, Buffer>();

  constructor(
    private readonly cluster: ClusterSettings,
    private readonly user: UserSettings,
    proxyUrl: string,
  ) {
    this.#agents = new Agents(cluster, proxyUrl);
  }

  async next(): Promise<RequestCredentials> {
    const { certificate, key, impersonation } = this.user;
    const material = {
      ca: await this.authority(),
      cert: await this.#content(certificate),
      key: await this.#content(key),
    };
    const agent = this.#agents.agentFor(material);
    return { agent, headers: { ...(await this.#authorization()), ...impersonation } };
  }

  /** PEM of the authority. Returns the same object as long as it is unchanged, and undefined for the system's authorities. */
  authority(): Promise<string | Buffer | undefined> {
    return this.#content(this.cluster.authority);
  }

  /** Nothing to do: files are checked for every request. */
  refused(): void {}

  close(): void {
    this.#agents.close();
  }

  async #authorization(): Promise<Record<string, string>> {
    const { token, tokenFile, username, password } = this.user;
    if (tokenFile !== "" || token !== "") {
      const text = tokenFile === "" ? token : (await this.#read(tokenFile)).toString();
      if (text.trim() === "") throw new ConnectionSettingsError(`the token in ${tokenFile} is empty`);
      return { Authorization: `Bearer ${text.trim()}` };
    }
    if (username === "") return {};
    return { Authorization: `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}` };
  }

  async #content(pem: Pem | undefined): Promise<string | Buffer | undefined> {
    if (pem === undefined) return undefined;
    return "text" in pem ? pem.text : this.#read(pem.file);
  }

  /** Returns the same buffer as long as the content is unchanged. If the file cannot be read, returns the last content. */
  async #read(file: string): Promise<Buffer> {
    const known = this.#files.get(file);
    const content = await readFile(file).catch((error: unknown) => {
      if (known === undefined) throw error;
      return known;
    });
    // A file written in place may be empty for a moment.
    if (known !== undefined && (content.length === 0 || content.equals(known))) return known;
    this.#files.set(file, content);
    return content;
  }
}
