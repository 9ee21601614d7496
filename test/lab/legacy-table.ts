/**
 * Converts tables of the older iptables between chains with rules and bytes. Independent of the program's implementation, so that tests can
 * compare the two. Structs of linux/netfilter/x_tables.h, linux/netfilter_ipv4/ip_tables.h and linux/netfilter_ipv6/ip6_tables.h, 64 bits.
 */
export type LegacyFamily = "ip" | "ip6";
export type BaseChain = "PREROUTING" | "INPUT" | "FORWARD" | "OUTPUT" | "POSTROUTING";

/** Indexed by NF_INET_*. */
export const BASE_CHAINS: readonly BaseChain[] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/** The built-in chains of the kernel's tables. */
export const TABLE_CHAINS: Readonly<Record<"nat" | "filter" | "mangle", readonly BaseChain[]>> = {
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  mangle: BASE_CHAINS,
};

export type Target =
  | { readonly jump: string }
  | { readonly goto: string }
  | { readonly verdict: "ACCEPT" | "DROP" | "RETURN" }
  /** No verdict: continue with the next rule. */
  | { readonly next: true }
  /** A whole extension: header and data. */
  | { readonly extension: string };

export interface LegacyRule {
  /** The entry's first part and its matches, in base64. Default: match everything. */
  readonly match?: string;
  readonly target: Target;
  /** Packets, bytes. */
  readonly counters?: readonly [bigint, bigint];
}

export interface LegacyChain {
  readonly name: string;
  /** Only for built-in chains. */
  readonly policy?: "ACCEPT" | "DROP";
  readonly policyCounters?: readonly [bigint, bigint];
  readonly rules: readonly LegacyRule[];
}

/** A table in the form of getsockopt and setsockopt. */
export interface RawTable {
  readonly hooks: { readonly valid: number; readonly entry: readonly number[]; readonly underflow: readonly number[] };
  readonly count: number;
  readonly bytes: Buffer;
}

interface Layout {
  /** Size of ipt_entry. */
  readonly entry: number;
  /** Offsets of its flags, its two offsets and its counters. */
  readonly flags: number;
  readonly offsets: number;
  readonly counters: number;
  /** The "goto" bit of the flags. */
  readonly goto: number;
}
export const LAYOUT: Readonly<Record<LegacyFamily, Layout>> = {
  ip: { entry: 112, flags: 82, offsets: 88, counters: 96, goto: 0x02 },
  ip6: { entry: 168, flags: 131, offsets: 140, counters: 152, goto: 0x04 },
};

const HEADER = 32;
const STANDARD = 40;
const ERROR = 64;
/** -NF_DROP - 1, -NF_ACCEPT - 1 and XT_RETURN. */
const VERDICTS = { DROP: -1, ACCEPT: -2, RETURN: -5 } as const;

/** The header of a match or target, and space for its data, aligned. */
export function extension(name: string, revision: number, data: Uint8Array): Buffer {
  const size = HEADER + Math.ceil(data.length / 8) * 8;
  const bytes = Buffer.alloc(size);
  bytes.writeUInt16LE(size, 0);
  bytes.write(name, 2, "latin1");
  bytes[31] = revision;
  bytes.set(data, HEADER);
  return bytes;
}

function errorTarget(name: string): Buffer {
  const bytes = Buffer.alloc(ERROR);
  bytes.writeUInt16LE(ERROR, 0);
  bytes.write("ERROR", 2, "latin1");
  bytes.write(name, HEADER, "latin1");
  return bytes;
}

function standardTarget(verdict: number): Buffer {
  const bytes = Buffer.alloc(STANDARD);
  bytes.writeUInt16LE(STANDARD, 0);
  bytes.writeInt32LE(verdict, HEADER);
  return bytes;
}

/** Writes entries one after the other. */
class Writer {
  readonly #layout: Layout;
  readonly #parts: Buffer[] = [];
  /** Verdict offsets of jumps, whose chain may come later. */
  readonly #jumps: { readonly part: Buffer; readonly at: number; readonly to: string }[] = [];
  readonly #starts = new Map<string, number>();
  offset = 0;

  constructor(family: LegacyFamily) {
    this.#layout = LAYOUT[family];
  }

  get count(): number {
    return this.#parts.length;
  }

  /** The first entry of a user-defined chain; also the end of a table. */
  head(name: string): void {
    this.#entry(Buffer.alloc(this.#layout.entry), errorTarget(name));
    this.#starts.set(name, this.offset);
  }

  rule({ match, target, counters = [0n, 0n] }: LegacyRule): void {
    const { entry, flags, goto, counters: at } = this.#layout;
    const matches = match === undefined ? Buffer.alloc(entry) : Buffer.from(match, "base64");
    matches.writeBigUInt64LE(counters[0], at);
    matches.writeBigUInt64LE(counters[1], at + 8);
    if ("extension" in target) return void this.#entry(matches, Buffer.from(target.extension, "base64"));
    const standard = standardTarget("verdict" in target ? VERDICTS[target.verdict] : 0);
    if ("goto" in target) matches[flags] |= goto;
    const to = "jump" in target ? target.jump : "goto" in target ? target.goto : undefined;
    const part = this.#entry(matches, standard);
    const verdictAt = matches.length + HEADER;
    if (to !== undefined) this.#jumps.push({ part, at: verdictAt, to });
    else if ("next" in target) part.writeInt32LE(this.offset, verdictAt);
  }

  #entry(matches: Buffer, target: Buffer): Buffer {
    const { offsets } = this.#layout;
    matches.writeUInt16LE(matches.length, offsets);
    matches.writeUInt16LE(matches.length + target.length, offsets + 2);
    const part = Buffer.concat([matches, target]);
    this.#parts.push(part);
    this.offset += part.length;
    return part;
  }

  end(): Buffer {
    for (const { part, at, to } of this.#jumps) {
      const start = this.#starts.get(to);
      if (start === undefined) throw new Error(`no chain ${to}`);
      part.writeInt32LE(start, at);
    }
    return Buffer.concat(this.#parts);
  }
}

/** Built-in chains come first, in the order of their hooks. Throws if a jump's chain does not exist. */
export function encodeTable(family: LegacyFamily, chains: readonly LegacyChain[]): RawTable {
  const writer = new Writer(family);
  const hooks = { valid: 0, entry: [0, 0, 0, 0, 0], underflow: [0, 0, 0, 0, 0] };
  for (const { name, policy, policyCounters, rules } of chains) {
    if (policy === undefined) writer.head(name);
    const hook = BASE_CHAINS.indexOf(name as BaseChain);
    if (policy !== undefined) {
      hooks.valid |= 1 << hook;
      hooks.entry[hook] = writer.offset;
    }
    for (const rule of rules) writer.rule(rule);
    if (policy !== undefined) hooks.underflow[hook] = writer.offset;
    writer.rule({ target: { verdict: policy ?? "RETURN" }, ...(policyCounters && { counters: policyCounters }) });
  }
  writer.head("ERROR");
  return { hooks, count: writer.count, bytes: writer.end() };
}

/** Views into the table's bytes: changes show in both. */
export interface Entry {
  readonly offset: number;
  readonly matches: Buffer;
  readonly target: Buffer;
}

export function* entriesOf(family: LegacyFamily, bytes: Buffer): Generator<Entry> {
  const { offsets } = LAYOUT[family];
  for (let offset = 0; offset < bytes.length;) {
    const target = bytes.readUInt16LE(offset + offsets);
    const next = bytes.readUInt16LE(offset + offsets + 2);
    yield {
      offset,
      matches: bytes.subarray(offset, offset + target),
      target: bytes.subarray(offset + target, offset + next),
    };
    offset += next;
  }
}

const textAt = (bytes: Buffer, from: number, longest: number): string =>
  bytes.toString("latin1", from, from + longest).replace(/\0.*$/s, "");

/** Returns the chains of a table, in order. Throws for bytes that encodeTable() would not have written. */
export function decodeTable(family: LegacyFamily, { hooks, count, bytes }: RawTable): LegacyChain[] {
  const entries = [...entriesOf(family, bytes)];
  if (entries.length !== count) throw new Error(`found ${entries.length} entries instead of ${count}`);
  const starts = new Map<number, string>();
  const nameOf = ({ target }: Entry): string | undefined =>
    textAt(target, 2, 29) === "ERROR" ? textAt(target, HEADER, 30) : undefined;
  for (const [index, entry] of entries.entries()) {
    const name = nameOf(entry);
    if (name !== undefined && index + 1 < entries.length) starts.set(entries[index + 1].offset, name);
  }
  const chains: { name: string; base: boolean; rules: LegacyRule[] }[] = [];
  for (const entry of entries) {
    const hook = hooks.entry.findIndex((at, index) => at === entry.offset && (hooks.valid & (1 << index)) !== 0);
    const name = nameOf(entry);
    if (hook >= 0) chains.push({ name: BASE_CHAINS[hook], base: true, rules: [] });
    if (name !== undefined) {
      chains.push({ name, base: false, rules: [] });
      continue;
    }
    const chain = chains.at(-1);
    if (chain === undefined) throw new Error("an entry outside every chain");
    chain.rules.push(decodeRule(family, entry, starts));
    const ends = hooks.underflow.findIndex((at, i) => at === entry.offset && (hooks.valid & (1 << i)) !== 0);
    if (ends >= 0 && BASE_CHAINS[ends] !== chain.name)
      throw new Error(`the policy of ${BASE_CHAINS[ends]} is elsewhere`);
  }
  const end = chains.pop();
  if (end?.name !== "ERROR" || end.rules.length > 0) throw new Error("the table has no end");
  return chains.map(({ name, base, rules }) => {
    const last = rules.pop();
    if (last === undefined || !("verdict" in last.target)) throw new Error(`${name} has no end`);
    const { verdict } = last.target;
    if ((verdict === "RETURN") === base) throw new Error(`${name} ends with ${verdict}`);
    const policyCounters = last.counters ?? [0n, 0n];
    return { name, ...(base && { policy: verdict as "ACCEPT" | "DROP" }), policyCounters, rules };
  });
}

function decodeRule(family: LegacyFamily, { offset, matches, target }: Entry, starts: Map<number, string>): LegacyRule {
  const { counters: at, flags, goto, offsets } = LAYOUT[family];
  const counters = [matches.readBigUInt64LE(at), matches.readBigUInt64LE(at + 8)] as const;
  const goes = (matches[flags] & goto) !== 0;
  const match = Buffer.from(matches);
  // Clear the fields that the writer sets and the kernel's own note (comefrom).
  match.fill(0, offsets, offsets + 8);
  match.fill(0, at, at + 16);
  match[flags] &= ~goto;
  const rule = { match: match.toString("base64"), counters };
  if (textAt(target, 2, 29) !== "") return { ...rule, target: { extension: target.toString("base64") } };
  const verdict = target.readInt32LE(HEADER);
  if (verdict === offset + matches.length + target.length) return { ...rule, target: { next: true } };
  if (verdict >= 0) {
    const to = starts.get(verdict);
    if (to === undefined) throw new Error(`a jump to ${verdict}, where no chain begins`);
    return { ...rule, target: goes ? { goto: to } : { jump: to } };
  }
  const name = Object.entries(VERDICTS).find(([, value]) => value === verdict)?.[0];
  if (name === undefined) throw new Error(`verdict ${verdict}`);
  return { ...rule, target: { verdict: name as keyof typeof VERDICTS } };
}
