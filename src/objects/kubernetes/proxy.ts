/** Selects the proxy for a server from the environment, as Go's net/http does (golang.org/x/net/http/httpproxy). */
import { BlockList, isIP, isIPv6 } from "node:net";
import { ConnectionSettingsError } from "./errors.js";

/** Only client-node supports SOCKS. */
export function isSocks(proxyUrl: string): boolean {
  return proxyUrl.startsWith("socks");
}

const SCHEMES: ReadonlySet<string> = new Set([
  "http:",
  "https:",
  "socks:",
  "socks4:",
  "socks4a:",
  "socks5:",
  "socks5h:",
]);

/** Message for a text that is not a proxy's URL. It must not contain the text, which may include a password. */
export const NO_PROXY_URL =
  "is not the URL of a proxy; set it to http://host:port, https://host:port or socks5://host:port";

/** Whether this URL can be used as a proxy. With any other, connections would go directly to the server. */
export function isProxyUrl(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url !== undefined && SCHEMES.has(url.protocol) && url.hostname !== "" && text.startsWith(`${url.protocol}//`);
}

/** Whether this Node supports proxies for http and https (24.5 and 22.21 or later). An older one would ignore them silently. */
export function knowsProxies(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major > 24 || (major === 24 && minor >= 5) || (major === 22 && minor >= 21);
}

type Environment = Readonly<Record<string, string | undefined>>;

/** URL of the proxy for `server`; "" for none. Throws `ConnectionSettingsError` if the environment contains an invalid URL. */
export function proxyFromEnvironment(server: URL, environment: Environment): string {
  const read = (name: string) => environment[name.toUpperCase()] || environment[name.toLowerCase()] || "";
  const name = server.protocol === "https:" ? "https_proxy" : "http_proxy";
  const proxy = read(name);
  if (proxy === "" || !goesThroughProxy(server, read("no_proxy"))) return "";
  const url = proxy.includes("://") ? proxy : `http://${proxy}`;
  if (!isProxyUrl(url)) throw new ConnectionSettingsError(`environment variable ${name.toUpperCase()} ${NO_PROXY_URL}`);
  return url;
}

/**
 * Applies NO_PROXY: "*", hosts, ".domains", addresses and CIDRs, each with or without a port. Connections to this machine never
 * use a proxy.
 */
function goesThroughProxy(server: URL, exceptions: string): boolean {
  const host = server.hostname.replace(/^\[(.*)\]$/, "$1").toLowerCase();
  const port = server.port || (server.protocol === "https:" ? "443" : "80");
  if (host === "localhost" || host === "::1" || /^127(\.\d+){3}$/.test(host)) return false;
  const entries = exceptions.split(",").map((entry) => entry.trim().toLowerCase());
  return !entries.some((entry) => entry === "*" || (entry !== "" && excepts(entry, host, port)));
}

function excepts(entry: string, host: string, port: string): boolean {
  const [network = "", length] = entry.split("/");
  if (length !== undefined && isIP(network) !== 0) return isInside(host, network, Number(length));
  const [, bracketed, plain, entryPort] = /^(?:\[([^\]]+)\]|([^:]+|.*:.*:.*?))(?::(\d+))?$/.exec(entry) ?? [];
  const name = bracketed ?? plain ?? entry;
  if (entryPort !== undefined && entryPort !== port) return false;
  if (isIP(name) !== 0 || isIP(host) !== 0) return name === host;
  const domain = name.replace(/^\*?\./, "");
  // A leading dot matches only subdomains.
  return host.endsWith(`.${domain}`) || (host === domain && !/^\*?\./.test(name));
}

function isInside(host: string, network: string, length: number): boolean {
  const family = isIPv6(network) ? "ipv6" : "ipv4";
  if (isIP(host) !== (family === "ipv6" ? 6 : 4)) return false;
  if (!Number.isInteger(length) || length < 0 || length > (family === "ipv6" ? 128 : 32)) return false;
  const list = new BlockList();
  list.addSubnet(network, length, family);
  return list.check(host, family);
}
