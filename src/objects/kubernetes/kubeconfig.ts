/** Reads and checks a kubeconfig file: the server, the trusted authorities, and our identity. */
import { readFile } from "node:fs/promises";
import { dirname, isAbsolute, resolve } from "node:path";
import { parseDocument } from "yaml";
import { type Fields, isFields, isNoEntry, reasonOf } from "../../base/unknown.js";
import { ConnectionSettingsError } from "./errors.js";
import { isProxyUrl, NO_PROXY_URL } from "./proxy.js";

/** Certificates or keys: a file that may change while we run, or PEM text. */
export type Pem = { readonly file: string } | { readonly text: string };

export interface ClusterSettings {
  readonly server: URL;
  /** Undefined for the system's trusted authorities. */
  readonly authority: Pem | undefined;
  /** Name to expect in the server's certificate; "": the server's own name. */
  readonly tlsServerName: string;
  readonly insecure: boolean;
  /** "": only a proxy from the environment. */
  readonly proxyUrl: string;
}

/** users[].user.exec: a program that issues credentials. */
export interface ExecSettings {
  readonly apiVersion: string;
  /** A path is always absolute. */
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** For people who have not installed the command; "" if absent. */
  readonly installHint: string;
  /** Undefined if the program gets no information about the cluster. */
  readonly cluster: ExecClusterSettings | undefined;
}

/** Information about the cluster for the program, besides its certificates, as written in the kubeconfig. */
interface ExecClusterSettings {
  /** As written, not normalized. */
  readonly server: string;
  /** clusters[].cluster.extensions[client.authentication.k8s.io/exec]; null if absent. */
  readonly config: unknown;
}

export interface UserSettings {
  readonly certificate: Pem | undefined;
  readonly key: Pem | undefined;
  readonly token: string;
  /** Overrides `token`, as in client-go. Read for every request, because the token rotates. "" if absent. */
  readonly tokenFile: string;
  readonly username: string;
  readonly password: string;
  /** "as", "as-uid", "as-groups" and "as-user-extra" as headers. */
  readonly impersonation: Readonly<Record<string, string | readonly string[]>>;
  readonly exec: ExecSettings | undefined;
  /** True for an auth-provider, which @kubernetes/client-node supports. */
  readonly authProvider: boolean;
}

export interface Kubeconfig {
  readonly cluster: ClusterSettings;
  readonly user: UserSettings;
  /** The file as JSON, for client-node. */
  readonly text: string;
}

export const ANONYMOUS: UserSettings = {
  certificate: undefined,
  key: undefined,
  token: "",
  tokenFile: "",
  username: "",
  password: "",
  impersonation: {},
  exec: undefined,
  authProvider: false,
};

/** Name of the extension with a plugin's own settings for a cluster, as in client-go. */
const EXEC_EXTENSION = "client.authentication.k8s.io/exec";

/** Reads the file. A `master` other than "" replaces the file's server. Rejects with `ConnectionSettingsError`. */
export async function readKubeconfig(file: string, master: string): Promise<Kubeconfig> {
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    const reason = isNoEntry(error) ? "the file does not exist" : reasonOf(error);
    const advice = "Set clientConnection.kubeconfig to a kubeconfig, or leave it empty inside a cluster";
    throw new ConnectionSettingsError(`kubeconfig ${file}: ${reason}. ${advice}`, { cause: error });
  }
  return new KubeconfigReader(file, text).read(master);
}

/**
 * Parses the URL of an API server from --master or a kubeconfig. As in client-go, a URL without a scheme is https if `tls`,
 * otherwise http.
 */
export function serverUrl(text: string, tls: boolean, where: string): URL {
  const full = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `${tls ? "https" : "http"}://${text}`;
  const url = URL.canParse(full) ? new URL(full) : undefined;
  if (url !== undefined && (url.protocol === "https:" || url.protocol === "http:") && url.hostname !== "") return url;
  throw new ConnectionSettingsError(
    `${where}: ${JSON.stringify(text)} is not the URL of an API server (https://host:port)`,
  );
}

const NO_TEXT = "is not text; put it in quotes";

class KubeconfigReader {
  constructor(
    private readonly file: string,
    private readonly text: string,
  ) {}

  read(master: string): Kubeconfig {
    const root = this.#parse();
    if (!isFields(root)) this.#fail("", "is not a kubeconfig: it has no fields");
    const current = this.#string(root, "current-context", "");
    if (current === "") this.#fail("current-context", `is empty; ${this.#choices(root, "contexts")}`);
    const context = this.#named(root, "contexts", "context", current, "current-context");
    const clusterName = this.#string(context, "cluster", `contexts[${current}].context.`);
    const cluster = this.#named(root, "clusters", "cluster", clusterName, `contexts[${current}].context.cluster`);
    const userName = this.#string(context, "user", `contexts[${current}].context.`);
    const user =
      userName === "" ? {} : this.#named(root, "users", "user", userName, `contexts[${current}].context.user`);
    const userPath = `users[${userName}].user.`;
    const settings = this.#user(user, userPath);
    return {
      cluster: this.#cluster(cluster, `clusters[${clusterName}].cluster.`, master),
      user: { ...settings, exec: this.#exec(user["exec"], `${userPath}exec.`, cluster, master) },
      // Passed as JSON, because the library's own parser quotes the text in its errors.
      text: JSON.stringify(root),
    };
  }

  /**
   * If a key occurs twice, the last one counts, as in kubectl. The parser's messages are not used, because they quote the text,
   * including secrets.
   */
  #parse(): unknown {
    const document = parseDocument(this.text, { uniqueKeys: false });
    const [error] = document.errors;
    if (error !== undefined) {
      const [{ line, col } = { line: 1, col: 1 }] = error.linePos ?? [];
      this.#fail("", `is not YAML: ${error.code} at line ${line}, column ${col}`);
    }
    try {
      return document.toJS();
    } catch {
      return this.#fail("", "is not YAML: it has an alias without an anchor, or too many aliases");
    }
  }

  #cluster(fields: Fields, path: string, master: string): ClusterSettings {
    const authority = this.#pem(fields, "certificate-authority", path);
    const insecure = fields["insecure-skip-tls-verify"] === true;
    if (insecure && authority !== undefined) {
      this.#fail(
        `${path}insecure-skip-tls-verify`,
        "is set together with certificate-authority; remove one of the two",
      );
    }
    const server = master === "" ? this.#string(fields, "server", path) : master;
    if (server === "") this.#fail(`${path}server`, "is empty; set it to https://host:port of the API server");
    const where = master === "" ? `kubeconfig ${this.file}: ${path}server` : "--master";
    return {
      server: serverUrl(server, authority !== undefined || insecure, where),
      authority,
      tlsServerName: this.#string(fields, "tls-server-name", path),
      insecure,
      proxyUrl: this.#proxyUrl(fields, path),
    };
  }

  #proxyUrl(fields: Fields, path: string): string {
    const text = this.#string(fields, "proxy-url", path);
    if (text !== "" && !isProxyUrl(text)) this.#fail(`${path}proxy-url`, NO_PROXY_URL);
    return text;
  }

  #exec(fields: unknown, path: string, cluster: Fields, master: string): ExecSettings | undefined {
    if (!isFields(fields)) return undefined;
    const command = this.#string(fields, "command", path);
    if (command === "") this.#fail(`${path}command`, "is empty; set it to the program that issues credentials");
    const server = master || this.#string(cluster, "server", path);
    return {
      apiVersion: this.#string(fields, "apiVersion", path),
      command: command.includes("/") ? this.#absolute(command) : command,
      args: this.#list(fields, "args", path).map((arg) =>
        typeof arg === "string" ? arg : this.#fail(`${path}args`, NO_TEXT),
      ),
      env: Object.fromEntries(this.#list(fields, "env", path).map((entry) => this.#variable(entry, `${path}env`))),
      installHint: this.#string(fields, "installHint", path),
      cluster: fields["provideClusterInfo"] === true ? { server, config: execConfig(cluster) } : undefined,
    };
  }

  #variable(entry: unknown, path: string): [string, string] {
    if (!isFields(entry)) return this.#fail(path, "has an entry without name and value");
    return [this.#string(entry, "name", `${path}[].`), this.#string(entry, "value", `${path}[].`)];
  }

  /** Empty if absent or null. */
  #list(fields: Fields, name: string, path: string): readonly unknown[] {
    const value = fields[name] ?? [];
    return Array.isArray(value) ? (value as unknown[]) : this.#fail(`${path}${name}`, "is not a list");
  }

  #user(fields: Fields, path: string): UserSettings {
    const certificate = this.#pem(fields, "client-certificate", path);
    const key = this.#pem(fields, "client-key", path);
    if ((certificate === undefined) !== (key === undefined)) {
      const [has, lacks] = certificate === undefined ? ["key", "certificate"] : ["certificate", "key"];
      this.#fail(`${path}client-${lacks}`, `is missing, although client-${has} is set; set client-${lacks} too`);
    }
    const tokenFile = this.#string(fields, "tokenFile", path) || this.#string(fields, "token-file", path);
    return {
      certificate,
      key,
      token: this.#string(fields, "token", path),
      tokenFile: tokenFile === "" ? "" : this.#absolute(tokenFile),
      username: this.#string(fields, "username", path),
      password: this.#string(fields, "password", path),
      impersonation: impersonationOf(fields),
      exec: undefined,
      authProvider: isFields(fields["auth-provider"]),
    };
  }

  /** `<name>-data` (base64) overrides `<name>` (a file), as in client-go. */
  #pem(fields: Fields, name: string, path: string): Pem | undefined {
    const data = this.#string(fields, `${name}-data`, path);
    if (data !== "") {
      const text = Buffer.from(data, "base64").toString();
      if (!text.includes("-----BEGIN ")) this.#fail(`${path}${name}-data`, "is not a PEM file in base64");
      return { text };
    }
    const file = this.#string(fields, name, path);
    return file === "" ? undefined : { file: this.#absolute(file) };
  }

  /** Finds the entry of a list by name, and returns its field with the content. */
  #named(root: Fields, list: string, field: string, name: string, whence: string): Fields {
    if (name === "") this.#fail(whence, `is empty; ${this.#choices(root, list)}`);
    const entries: unknown = root[list];
    const entry: unknown = Array.isArray(entries)
      ? entries.find((one: unknown) => isFields(one) && one["name"] === name)
      : undefined;
    if (!isFields(entry)) {
      this.#fail(whence, `${JSON.stringify(name)} is not in ${list}; ${this.#choices(root, list)}`);
    }
    const value = entry[field] ?? {};
    if (!isFields(value)) this.#fail(`${list}[${name}].${field}`, "has no fields");
    return value;
  }

  /** Advice: the names in the list. */
  #choices(root: Fields, list: string): string {
    const entries: unknown[] = Array.isArray(root[list]) ? root[list] : [];
    const names = entries
      .map((one) => (isFields(one) ? one["name"] : undefined))
      .filter((name) => typeof name === "string");
    return names.length === 0
      ? `${list} has no entries`
      : `use one of ${names.map((name) => JSON.stringify(name)).join(", ")}`;
  }

  /** A text field; "" if absent or null. */
  #string(fields: Fields, name: string, path: string): string {
    const value = fields[name];
    if (value === undefined || value === null) return "";
    if (typeof value !== "string") this.#fail(`${path}${name}`, NO_TEXT);
    return value;
  }

  /** File names are relative to the kubeconfig. */
  #absolute(file: string): string {
    return isAbsolute(file) ? file : resolve(dirname(this.file), file);
  }

  #fail(field: string, reason: string): never {
    const at = field === "" ? "" : `${field} `;
    throw new ConnectionSettingsError(`kubeconfig ${this.file}: ${at}${reason}`);
  }
}

function execConfig({ extensions }: Fields): unknown {
  const all: readonly unknown[] = Array.isArray(extensions) ? extensions : [];
  const own = all.find((one) => isFields(one) && one["name"] === EXEC_EXTENSION);
  return isFields(own) ? (own["extension"] ?? null) : null;
}

function impersonationOf(fields: Fields): Record<string, string | readonly string[]> {
  const headers: Record<string, string | readonly string[]> = {};
  const { as, "as-uid": uid, "as-groups": groups, "as-user-extra": extra } = fields;
  if (typeof as === "string" && as !== "") headers["Impersonate-User"] = as;
  if (typeof uid === "string" && uid !== "") headers["Impersonate-Uid"] = uid;
  if (Array.isArray(groups)) headers["Impersonate-Group"] = groups.filter((group) => typeof group === "string");
  if (isFields(extra)) {
    for (const [name, values] of Object.entries(extra)) {
      const texts: unknown[] = Array.isArray(values) ? values : [];
      const header = `Impersonate-Extra-${encodeURIComponent(name.toLowerCase())}`;
      headers[header] = texts.filter((value) => typeof value === "string");
    }
  }
  return headers;
}
