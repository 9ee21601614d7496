/** The options that select entries. Unknown or invalid values are rejected. */
import { protocolNumber } from "../../../base/protocols.js";
import { CONNTRACK_STATUS } from "../../../nft/conntrack/conntrack-table.js";
import { BadValue, flag, type OptionsOf } from "../../read-flags.js";

/** Protocols that have names in options and output. */
export const PROTOCOL_NUMBERS: ReadonlyMap<string, number> = new Map(
  ["icmp", "tcp", "udp", "dccp", "gre", "icmpv6", "sctp", "udplite"].map((name) => [name, protocolNumber(name)]),
);

/** Bits of an entry's status, by their names in options and output. */
export const STATUS_NAMES: Readonly<Record<string, number>> = {
  expected: CONNTRACK_STATUS.expected,
  "seen-reply": CONNTRACK_STATUS.seenReply,
  assured: CONNTRACK_STATUS.assured,
  confirmed: CONNTRACK_STATUS.confirmed,
  snat: CONNTRACK_STATUS.sourceNat,
  dnat: CONNTRACK_STATUS.destinationNat,
  dying: CONNTRACK_STATUS.dying,
  "fixed-timeout": CONNTRACK_STATUS.fixedTimeout,
  helper: CONNTRACK_STATUS.helper,
  offload: CONNTRACK_STATUS.offload,
  "hardware-offload": CONNTRACK_STATUS.hardwareOffload,
};

/** Parses a whole number, decimal or 0x…, from 0 to `highest`. */
function readNumber(text: string, highest: number): number {
  const number = /^(0x[0-9a-f]+|\d+)$/i.test(text) ? Number(text) : Number.NaN;
  if (Number.isSafeInteger(number) && number <= highest) return number;
  throw new BadValue(`must be a number from 0 to ${highest}`);
}

export function readProtocol(text: string): number {
  const known = PROTOCOL_NUMBERS.get(text.toLowerCase());
  if (known !== undefined) return known;
  if (/^\d+$/.test(text)) return readNumber(text, 255);
  throw new BadValue(`must be ${[...PROTOCOL_NUMBERS.keys()].join(", ")}, or a number`);
}

/** Ports, and zones of connections. */
export function readPort(text: string): number {
  return readNumber(text, 65_535);
}

/** Parses bits that must be set or not set: "assured,!seen-reply". */
export function readStatus(text: string): { value: number; mask: number } {
  let value = 0;
  let mask = 0;
  for (const word of text.split(",")) {
    const bit = STATUS_NAMES[word.replace(/^!/, "")];
    if (bit === undefined) {
      const names = Object.keys(STATUS_NAMES).join(", ");
      throw new BadValue(`must be some of ${names}, with ! before a flag that must not be set`);
    }
    if ((mask & bit) !== 0) throw new BadValue(`must not have ${word.replace(/^!/, "")} twice`);
    mask |= bit;
    if (!word.startsWith("!")) value |= bit;
  }
  return { value, mask };
}

function readMark(text: string): { value: number; mask?: number } {
  const [value = "", mask, ...more] = text.split("/");
  if (more.length > 0) throw new BadValue("must be VALUE or VALUE/MASK");
  const number = readNumber(value, 0xffffffff);
  return mask === undefined ? { value: number } : { value: number, mask: readNumber(mask, 0xffffffff) };
}

/** The options that `filterOf` reads. */
export const FILTER_FLAGS = [
  flag("-f, --family <family>", "address family", { choices: ["ip", "ip6"] }),
  flag("-p, --protocol <protocol>", "tcp, udp, sctp, icmp, icmpv6, … or a number", { read: readProtocol }),
  flag("-s, --src <address>", "original source: the client; here and below, an address or a CIDR"),
  flag("-d, --dst <address>", "original destination: the VIP"),
  flag("--sport <port>", "original source port", { read: readPort }),
  flag("--dport <port>", "original destination port", { read: readPort }),
  flag("--reply-src <address>", "source of the replies: the endpoint"),
  flag("--reply-dst <address>", "destination of the replies: the client, or the node if it masquerades"),
  flag("--reply-sport <port>", "source port of the replies: the endpoint's", { read: readPort }),
  flag("--reply-dport <port>", "destination port of the replies", { read: readPort }),
  flag(
    "--address <address>",
    "source or destination in either direction; separate several with commas, or repeat the option",
    { type: "strings" },
  ),
  flag("--state <state>", "state of the protocol, such as ESTABLISHED", { read: (text: string) => text.toUpperCase() }),
  flag("--status <flags>", "flags that must be set, or with ! must not be set, such as assured,!seen-reply", {
    read: readStatus,
  }),
  flag("--mark <value>", "connection mark, as VALUE or VALUE/MASK", { read: readMark }),
  flag("--zone <zone>", "conntrack zone", { read: readPort }),
] as const;
export type FilterOptions = OptionsOf<typeof FILTER_FLAGS>;
