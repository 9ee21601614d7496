/** Types of values in a KubeProxyConfiguration, each with its error message. */
import { z } from "zod";
import { parseAddress, parseCIDR } from "../base/ip.js";
import { closest } from "../base/closest.js";
import { parseDuration } from "./duration.js";
import { NODE_PORT_WORDS } from "./node-port-addresses.js";

const INT32_MAX = 2 ** 31 - 1;

export const string = z.string("must be a string");
export const boolean = z.boolean("must be true or false");
const integer = z
  .int("must be a whole number")
  .min(-INT32_MAX - 1, "is too small")
  .max(INT32_MAX, "is too large");
export const count = integer.min(0, "must not be negative");

/** Milliseconds. */
export const duration = z.string('must be a duration such as "30s"').transform((text, context) => {
  const ms = parseDuration(text);
  if (ms !== undefined) return ms;
  const message = `${JSON.stringify(text)} is not a duration such as "30s" or "1m30s"`;
  context.issues.push({ code: "custom", input: text, message });
  return z.NEVER;
});

/** Milliseconds. */
export const period = duration.refine((ms) => ms >= 0, "must not be negative");

/** Milliseconds; a bare number counts nanoseconds (component-base logs/api/v1 TimeOrMetaDuration). */
export const flushFrequency = z
  .union([z.int().transform((ns) => ns / 1e6), duration], { error: "must be a duration, or a number of nanoseconds" })
  .refine((ms) => ms >= 0, "must not be negative");

const QUANTITY = /^[+-]?(\d+\.?\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$/;

/** Kept as text (k8s.io/apimachinery/pkg/api/resource Quantity). */
export const quantity = z
  .union([string, z.number()], { error: 'must be a quantity such as "64Ki"' })
  .transform(String)
  .refine((text) => QUANTITY.test(text), 'must be a quantity such as "64Ki"');

export const masqueradeBit = integer.min(0, "must be from 0 to 31").max(31, "must be from 0 to 31");
export const oomScore = integer.min(-1000, "must be from -1000 to 1000").max(1000, "must be from -1000 to 1000");

/** Canonical; "" stays "". */
export const address = string.transform((text, context) => {
  const canonical = text === "" ? "" : parseAddress(text);
  if (canonical !== undefined) return canonical;
  context.issues.push({ code: "custom", input: text, message: `${JSON.stringify(text)} is not an IP address` });
  return z.NEVER;
});

/** Address of a server; host "": all addresses. */
export interface Endpoint {
  /** Canonical, without brackets. */
  readonly host: string;
  readonly port: number;
}

/** "IP:port" with an IPv6 address in brackets, or only an IP, which gets the default port; undefined for "". */
export const endpoint = (defaultPort: number) =>
  string.transform((text, context): Endpoint | undefined => {
    if (text === "") return undefined;
    const alone = parseAddress(text);
    if (alone !== undefined) return { host: alone, port: defaultPort };
    const [, bracketed, plain, digits] = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d{1,5})$/.exec(text) ?? [];
    const written = bracketed ?? plain ?? "";
    const host = written === "" ? "" : parseAddress(written);
    const port = Number(digits);
    if (host !== undefined && port >= 1 && port <= 65_535) return { host, port };
    context.issues.push({ code: "custom", input: text, message: "must be an address and port such as 0.0.0.0:10256" });
    return z.NEVER;
  });

/** Canonical CIDRs and keywords, without duplicates. */
export const nodePortAddresses = z
  .array(
    string.transform((text, context) => {
      const entry = text.trim();
      if (NODE_PORT_WORDS.includes(entry)) return entry;
      const prefix = parseCIDR(entry);
      if (prefix !== undefined) return prefix.text;
      context.issues.push({ code: "custom", input: text, message: nodePortAddressProblem(entry) });
      return z.NEVER;
    }),
    "must be a list",
  )
  .transform((list) => [...new Set(list)]);

function nodePortAddressProblem(entry: string): string {
  const written = JSON.stringify(entry);
  const forms = `a CIDR, ${NODE_PORT_WORDS.slice(0, -1)
    .map((word) => `"${word}"`)
    .join(", ")} or "${NODE_PORT_WORDS.at(-1)}"`;
  const address = parseAddress(entry);
  if (address !== undefined) {
    return `${written} is an address, not ${forms}: did you mean ${address}/${address.includes(":") ? 128 : 32}?`;
  }
  const guess = closest(entry, NODE_PORT_WORDS);
  return `${written} must be ${forms}${guess === undefined ? "" : `: did you mean "${guess}"?`}`;
}

/** Interface names are shorter than IFNAMSIZ (16, linux/if.h) and contain no slash or white space. */
export const interfaceName = string.regex(/^[^\s/]{0,15}$/, "must be an interface name of at most 15 characters");

export const strings = z.array(string, "must be a list");

const NOT_AN_OBJECT = "must be an object";

/** An object whose unknown fields cause a warning, not an error. */
export function section<S extends z.ZodRawShape>(shape: S) {
  return z.looseObject(shape, NOT_AN_OBJECT);
}

/**
 * Parses clusterCIDR: comma-separated, at most one CIDR of each family.
 * @returns the problem, or the canonical CIDRs.
 */
export function parseClusterCIDR(text: string): { readonly cidrs: readonly string[] } | { readonly problem: string } {
  if (text.trim() === "") return { cidrs: [] };
  const found: string[] = [];
  for (const part of text.split(",")) {
    const prefix = parseCIDR(part.trim());
    const written = JSON.stringify(part.trim());
    if (prefix === undefined) return { problem: `${written} is not a CIDR` };
    if (found.some((other) => other.includes(":") === (prefix.family === "ip6"))) {
      return { problem: `${written} is a second CIDR of the same family` };
    }
    found.push(prefix.text);
  }
  return { cidrs: found };
}
