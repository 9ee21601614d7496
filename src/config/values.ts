/** Kinds of values in a KubeProxyConfiguration, each with its error message. */
import { closest } from "../base/closest.js";
import { parseAddress, parseCIDR } from "../base/ip.js";
import { parseDuration } from "./duration.js";
import { type Field, Invalid, list, scalar } from "./config-fields.js";
import { NODE_PORT_WORDS } from "./node-port-addresses.js";

const INT32_MAX = 2 ** 31 - 1;
const NOT_A_STRING = new Invalid("must be a string");

/** Text in the form that `convert` returns. */
function converted<T>(convert: (text: string) => T | Invalid, otherwise = NOT_A_STRING): Field<T> {
  return scalar((given) => (typeof given === "string" ? convert(given) : otherwise));
}

export const string = converted((text) => text);

/** Text that matches the pattern. */
export function matching(pattern: RegExp, message: string): Field<string> {
  return converted((text) => (pattern.test(text) ? text : new Invalid(message)));
}

/** One of the words. @param message of another value. */
export function word<const Word extends string>(
  words: readonly Word[],
  message: (given: unknown) => string,
): Field<Word> {
  return scalar((given) => words.find((each) => each === given) ?? new Invalid(message(given)));
}

export const boolean = scalar((given) => (typeof given === "boolean" ? given : new Invalid("must be true or false")));
export const number = scalar((given) => (Number.isFinite(given) ? (given as number) : new Invalid("must be a number")));

function integer(least: number, most: number, tooSmall: string, tooLarge = tooSmall): Field<number> {
  return scalar((given) => {
    if (typeof given !== "number" || !Number.isInteger(given)) return new Invalid("must be a whole number");
    if (given < least) return new Invalid(tooSmall);
    return given > most ? new Invalid(tooLarge) : given;
  });
}

export const count = integer(0, INT32_MAX, "must not be negative", "is too large");
export const masqueradeBit = integer(0, 31, "must be from 0 to 31");
export const oomScore = integer(-1000, 1000, "must be from -1000 to 1000");

const NOT_A_DURATION = new Invalid('must be a duration such as "30s"');

function durationOf(text: string): number | Invalid {
  return parseDuration(text) ?? new Invalid(`${JSON.stringify(text)} is not a duration such as "30s" or "1m30s"`);
}

function positive(ms: number | Invalid): number | Invalid {
  return typeof ms === "number" && ms < 0 ? new Invalid("must not be negative") : ms;
}

/** Milliseconds. */
export const duration = converted(durationOf, NOT_A_DURATION);

/** Milliseconds. */
export const period = converted((text) => positive(durationOf(text)), NOT_A_DURATION);

/** Milliseconds; a bare number counts nanoseconds (component-base logs/api/v1 TimeOrMetaDuration). */
export const flushFrequency = scalar((given) => {
  const ms = Number.isInteger(given) ? Number(given) / 1e6 : parseDuration(String(given));
  return positive(ms ?? new Invalid("must be a duration, or a number of nanoseconds"));
});

const QUANTITY = /^[+-]?(\d+\.?\d*|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$/;

/** Kept as text (k8s.io/apimachinery/pkg/api/resource Quantity). */
export const quantity = scalar((given) =>
  ["string", "number"].includes(typeof given) && QUANTITY.test(String(given))
    ? String(given)
    : new Invalid('must be a quantity such as "64Ki"'),
);

/** Canonical; "" stays "". */
export const address = converted(
  (text) => (text === "" ? "" : parseAddress(text)) ?? new Invalid(`${JSON.stringify(text)} is not an IP address`),
);

/** Address of a server; host "": all addresses. */
export interface Endpoint {
  /** Canonical, without brackets. */
  readonly host: string;
  readonly port: number;
}

/** "IP:port" with an IPv6 address in brackets, or only an IP, which gets the default port; undefined for "". */
export const endpoint = (defaultPort: number) =>
  converted((text): Endpoint | Invalid | undefined => {
    if (text === "") return undefined;
    const alone = parseAddress(text);
    if (alone !== undefined) return { host: alone, port: defaultPort };
    const [, bracketed, plain, digits] = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d{1,5})$/.exec(text) ?? [];
    const written = bracketed ?? plain ?? "";
    const host = written === "" ? "" : parseAddress(written);
    const port = Number(digits);
    if (host !== undefined && port >= 1 && port <= 65_535) return { host, port };
    return new Invalid("must be an address and port such as 0.0.0.0:10256");
  });

/** Canonical CIDRs and keywords. */
export const nodePortAddresses = list(
  converted((text) => {
    const entry = text.trim();
    if (NODE_PORT_WORDS.includes(entry)) return entry;
    return parseCIDR(entry)?.text ?? new Invalid(nodePortAddressProblem(entry));
  }),
);

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
export const interfaceName = matching(/^[^\s/]{0,15}$/, "must be an interface name of at most 15 characters");

/** The canonical CIDRs of clusterCIDR: comma-separated, at most one of each family. */
export function parseClusterCIDR(text: string): readonly string[] | Invalid {
  if (text.trim() === "") return [];
  const found: string[] = [];
  for (const part of text.split(",")) {
    const prefix = parseCIDR(part.trim());
    const written = JSON.stringify(part.trim());
    if (prefix === undefined) return new Invalid(`${written} is not a CIDR`);
    if (found.some((other) => other.includes(":") === (prefix.family === "ip6"))) {
      return new Invalid(`${written} is a second CIDR of the same family`);
    }
    found.push(prefix.text);
  }
  return found;
}
