/** Converts options of the conntrack commands to a ConntrackFilter. Unknown or invalid values are rejected. */
import { type Command, InvalidArgumentError, Option } from "commander";
import type { CliCommand } from "../../cli-command.js";
import { protocolNumber } from "../../../base/protocols.js";
import { compileFilter } from "../../../nft/conntrack/compile-filter.js";
import { CONNTRACK_STATUS, type ConntrackFilter, type TupleFilter } from "../../../nft/conntrack/conntrack-table.js";
import { KernelError } from "../../../nft/kernel/errors.js";
import type { IpFamily } from "../../../base/ip.js";

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

/** The options from commander. */
export interface FilterOptions {
  readonly family?: IpFamily;
  readonly protocol?: number;
  readonly src?: string;
  readonly dst?: string;
  readonly sport?: number;
  readonly dport?: number;
  readonly replySrc?: string;
  readonly replyDst?: string;
  readonly replySport?: number;
  readonly replyDport?: number;
  readonly state?: string;
  readonly status?: { readonly value: number; readonly mask: number };
  readonly mark?: { readonly value: number; readonly mask?: number };
  readonly zone?: number;
  readonly address?: readonly string[];
}

/** Parses a whole number, decimal or 0x…, from 0 to `highest`. */
export function parseNumber(text: string, highest: number): number {
  const number = /^(0x[0-9a-f]+|\d+)$/i.test(text) ? Number(text) : Number.NaN;
  if (Number.isSafeInteger(number) && number <= highest) return number;
  throw new InvalidArgumentError(`Use a number from 0 to ${highest}.`);
}

export function parseProtocol(text: string): number {
  const known = PROTOCOL_NUMBERS.get(text.toLowerCase());
  if (known !== undefined) return known;
  if (/^\d+$/.test(text)) return parseNumber(text, 255);
  throw new InvalidArgumentError(`Use ${[...PROTOCOL_NUMBERS.keys()].join(", ")}, or a number.`);
}

function parseFamily(text: string): IpFamily {
  if (text === "ip" || text === "ip6") return text;
  throw new InvalidArgumentError("Use ip or ip6.");
}

function parsePort(text: string): number {
  return parseNumber(text, 65_535);
}

/** Parses bits that must be set or not set: "assured,!seen-reply". */
export function parseStatus(text: string): { value: number; mask: number } {
  let value = 0;
  let mask = 0;
  for (const word of text.split(",")) {
    const bit = STATUS_NAMES[word.replace(/^!/, "")];
    if (bit === undefined) {
      throw new InvalidArgumentError(
        `Use ${Object.keys(STATUS_NAMES).join(", ")}; put ! before a flag that must not be set.`,
      );
    }
    if ((mask & bit) !== 0) throw new InvalidArgumentError(`${word.replace(/^!/, "")} is given twice.`);
    mask |= bit;
    if (!word.startsWith("!")) value |= bit;
  }
  return { value, mask };
}

function parseMark(text: string): { value: number; mask?: number } {
  const [value = "", mask, ...more] = text.split("/");
  if (more.length > 0) throw new InvalidArgumentError("Use VALUE or VALUE/MASK.");
  const number = parseNumber(value, 0xffffffff);
  return mask === undefined ? { value: number } : { value: number, mask: parseNumber(mask, 0xffffffff) };
}

/** Adds the options that `filterOf` reads. */
export function addFilterOptions(command: CliCommand): CliCommand {
  const option = (flags: string, text: string, parse?: (text: string, before?: string[]) => unknown): void => {
    const made = new Option(flags, text);
    command.addOption(
      parse === undefined ? made : made.argParser<unknown>((value, before) => parse(value, before as string[])),
    );
  };
  option("-f, --family <family>", "address family: ip or ip6", parseFamily);
  option("-p, --protocol <protocol>", "tcp, udp, sctp, icmp, icmpv6, … or a number", parseProtocol);
  option("-s, --src <address>", "original source: the client; here and below, an address or a CIDR");
  option("-d, --dst <address>", "original destination: the VIP");
  option("--sport <port>", "original source port", parsePort);
  option("--dport <port>", "original destination port", parsePort);
  option("--reply-src <address>", "source of the replies: the endpoint");
  option("--reply-dst <address>", "destination of the replies: the client, or the node if it masquerades");
  option("--reply-sport <port>", "source port of the replies: the endpoint's", parsePort);
  option("--reply-dport <port>", "destination port of the replies", parsePort);
  option(
    "--address <address>",
    "source or destination in either direction; separate several with commas, or repeat the option",
    (text, before?: string[]) => [...(before ?? []), ...text.split(",")],
  );
  option("--state <state>", "state of the protocol, such as ESTABLISHED", (text) => text.toUpperCase());
  option(
    "--status <flags>",
    "flags that must be set, or with ! must not be set, such as assured,!seen-reply",
    parseStatus,
  );
  option("--mark <value>", "connection mark, as VALUE or VALUE/MASK", parseMark);
  option("--zone <zone>", "conntrack zone", (text) => parseNumber(text, 65_535));
  return command;
}

/** Returns `values` without undefined ones, because a filter rejects properties that are undefined. */
function given<T extends object>(values: T): T {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as T;
}

function tupleOf(values: TupleFilter): TupleFilter | undefined {
  const tuple = given(values);
  return Object.keys(tuple).length === 0 ? undefined : tuple;
}

/** Returns the options' filter. If they are invalid, ends `command` with exit code 2. */
export function filterOf(options: FilterOptions, command: Command): ConntrackFilter {
  const { family, protocol, state, status, mark, zone, address: addresses } = options;
  const original = tupleOf({
    source: options.src,
    destination: options.dst,
    sourcePort: options.sport,
    destinationPort: options.dport,
  });
  const reply = tupleOf({
    source: options.replySrc,
    destination: options.replyDst,
    sourcePort: options.replySport,
    destinationPort: options.replyDport,
  });
  const filter: ConntrackFilter = given({ family, protocol, state, status, mark, zone, original, reply, addresses });
  try {
    compileFilter(filter, "filter");
  } catch (error) {
    if (error instanceof KernelError && error.code === "invalid") command.error(`error: ${error.message}`);
    throw error;
  }
  return filter;
}
