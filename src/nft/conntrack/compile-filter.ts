/**
 * Parses filters strictly: a filter decides what is deleted, so nothing in it is guessed or ignored. A filter becomes
 * patterns over the bytes of a record (encode.ts). An entry matches if it has the bits of one of them.
 */
import { AF, FAMILY_NAMES, IP_FAMILIES } from "../../base/ip-families.js";
import { type IpFamily, packAddress, parseCIDR } from "../../base/ip.js";
import { checkInteger, display, familyNumber, invalid, KEY_BYTES, KIND, kindOf, OFFSET } from "./encode.js";
import { STATES } from "./protocol-states.js";
import { type ConntrackFilter, type ConntrackPrefilter, MOST_ADDRESSES, type TupleFilter } from "./conntrack-table.js";

/** An entry matches if its record, masked with `mask`, equals `value`. Both are KEY_BYTES long. */
export interface Pattern {
  readonly value: Uint8Array<ArrayBuffer>;
  readonly mask: Uint8Array<ArrayBuffer>;
}

const FIELDS = ["family", "protocol", "zone", "mark", "status", "state", "original", "reply", "addresses"];
const TUPLE_FIELDS = ["source", "destination", "sourcePort", "destinationPort"];
const ALL_BITS = 0xffffffff;

/** Returns the fields of `value`. Rejects unknown and undefined ones. */
function fieldsOf(action: string, what: string, value: unknown, known: readonly string[]): Record<string, unknown> {
  // Only plain objects: fields inherited from a class would not be seen, and the filter would select more than
  // intended.
  const prototype: unknown = typeof value === "object" && value !== null ? Object.getPrototypeOf(value) : undefined;
  if (prototype !== Object.prototype && prototype !== null) {
    throw invalid(action, `${what}: expected a plain object, found ${display(value)}`);
  }
  for (const [name, field] of Object.entries(value as object)) {
    if (!known.includes(name))
      throw invalid(action, `${what}: unknown field ${name}; the fields are ${known.join(", ")}`);
    if (field === undefined) throw invalid(action, `${what}.${name} is undefined; remove it, or give it a value`);
  }
  return value as Record<string, unknown>;
}

/** Collects the bits that a filter requires of a record. */
class PatternBuilder {
  readonly value = new Uint8Array(KEY_BYTES);
  readonly mask = new Uint8Array(KEY_BYTES);
  readonly #valueView = new DataView(this.value.buffer);
  readonly #maskView = new DataView(this.mask.buffer);
  /** The field that determined the family. */
  #familyFrom = "";

  constructor(readonly action: string) {}

  byte(offset: number, value: number): void {
    this.value[offset] = value;
    this.mask[offset] = 0xff;
  }

  short(offset: number, value: number): void {
    this.#valueView.setUint16(offset, value, true);
    this.#maskView.setUint16(offset, 0xffff, true);
  }

  bits(offset: number, value: number, mask: number): void {
    this.#valueView.setUint32(offset, (value & mask) >>> 0, true);
    this.#maskView.setUint32(offset, mask, true);
  }

  family(family: number, from: string): void {
    if (this.mask[OFFSET.family] !== 0 && this.value[OFFSET.family] !== family) {
      const name = (number: number): string => FAMILY_NAMES[number === AF.ip ? "ip" : "ip6"];
      const before = name(this.value[OFFSET.family]);
      throw invalid(this.action, `${from} is ${name(family)}, but ${this.#familyFrom} is ${before}`);
    }
    this.#familyFrom ||= from;
    this.byte(OFFSET.family, family);
  }

  address(offset: number, what: string, text: unknown): void {
    const prefix = readPrefix(this.action, what, text);
    this.family(prefix.bytes.length === 4 ? AF.ip : AF.ip6, `${what} ${display(text)}`);
    this.prefix(offset, prefix);
  }

  /** Requires an address at one offset. Returns false if another address is already required there. */
  prefix(offset: number, { bytes, length }: PrefixBytes): boolean {
    for (let i = 0; i < bytes.length; i++) {
      const mask = prefixMask(length, i);
      if (((this.value[offset + i] ^ bytes[i]) & this.mask[offset + i] & mask) !== 0) return false;
      this.value[offset + i] |= bytes[i] & mask;
      this.mask[offset + i] |= mask;
    }
    // A record's IPv4 addresses are padded with zeros, so that whole addresses are compared at once.
    if (length === bytes.length * 8) this.mask.fill(0xff, offset, offset + 16);
    return true;
  }

  copy(): Pattern {
    return { value: this.value.slice(), mask: this.mask.slice() };
  }
}

interface PrefixBytes {
  readonly bytes: Uint8Array;
  readonly length: number;
}

/** Reads an address, or a CIDR without host bits, because one with host bits is ambiguous. */
function readPrefix(action: string, what: string, text: unknown): PrefixBytes {
  if (typeof text === "string" && text.includes("/")) {
    const prefix = parseCIDR(text);
    if (prefix === undefined) throw invalid(action, `${what}: ${display(text)} is not a CIDR`);
    const host = readPrefix(action, what, text.slice(0, text.indexOf("/")));
    if (!host.bytes.every((byte, i) => byte === prefix.bytes[i])) {
      throw invalid(action, `${what}: ${display(text)} has host bits; the network is ${prefix.text}`);
    }
    return prefix;
  }
  const bytes = new Uint8Array(16);
  const length = typeof text === "string" ? packAddress(text, bytes, 0) : 0;
  if (length === 0) throw invalid(action, `${what}: expected an address or a CIDR, found ${display(text)}`);
  return { bytes: bytes.subarray(0, length), length: length * 8 };
}

/** Returns the mask of byte `i` of a prefix. */
function prefixMask(length: number, i: number): number {
  return (0xff00 >> Math.min(8, Math.max(0, length - 8 * i))) & 0xff;
}

function readTuple(builder: PatternBuilder, direction: "original" | "reply", filter: TupleFilter): void {
  const { action } = builder;
  const fields = fieldsOf(action, direction, filter, TUPLE_FIELDS);
  const addresses = OFFSET[direction];
  const ports = direction === "original" ? OFFSET.originalPorts : OFFSET.replyPorts;
  if ("source" in fields) builder.address(addresses, `${direction}.source`, fields["source"]);
  if ("destination" in fields) builder.address(addresses + 16, `${direction}.destination`, fields["destination"]);
  for (const [name, offset] of [
    ["sourcePort", ports],
    ["destinationPort", ports + 2],
  ] as const) {
    if (!(name in fields)) continue;
    const protocol = builder.mask[OFFSET.protocol] === 0 ? undefined : builder.value[OFFSET.protocol];
    if (protocol !== undefined && kindOf(protocol) !== KIND.ports) {
      throw invalid(action, `${direction}.${name}: protocol ${protocol} has no ports`);
    }
    builder.short(offset, checkInteger(action, `${direction}.${name}`, fields[name], 0xffff));
    builder.byte(OFFSET.kind, KIND.ports);
  }
}

function readBits(builder: PatternBuilder, name: "mark" | "status", given: unknown): void {
  const { action } = builder;
  const fields = fieldsOf(action, name, given, ["value", "mask"]);
  const value = checkInteger(action, `${name}.value`, fields["value"], ALL_BITS);
  const all = name === "mark" && !("mask" in fields);
  builder.bits(OFFSET[name], value, all ? ALL_BITS : checkInteger(action, `${name}.mask`, fields["mask"], ALL_BITS));
}

/** Returns one pattern per protocol that has a state of this name. */
function withState(builder: PatternBuilder, state: unknown): Pattern[] {
  const { action } = builder;
  const only = builder.mask[OFFSET.protocol] === 0 ? undefined : builder.value[OFFSET.protocol];
  const protocols = [...STATES].filter(([protocol]) => only === undefined || only === protocol);
  if (protocols.length === 0) throw invalid(action, `state: protocol ${only} has no states`);
  const patterns: Pattern[] = [];
  for (const [protocol, names] of protocols) {
    const number = typeof state === "string" ? names.indexOf(state) : -1;
    if (number < 0) continue;
    builder.byte(OFFSET.protocol, protocol);
    builder.byte(OFFSET.state, number + 1);
    patterns.push(builder.copy());
  }
  if (patterns.length > 0) return patterns;
  const known = [...new Set(protocols.flatMap(([, names]) => names))];
  throw invalid(action, `state: unknown state ${display(state)}; the states are ${known.join(", ")}`);
}

/**
 * Returns the patterns, of which an entry must match one. Throws KernelError "invalid" if any part of the filter is not
 * understood; the message names the error and its place.
 */
export function compileFilter(filter: ConntrackFilter, action: string): readonly Pattern[] {
  const builder = new PatternBuilder(action);
  const fields = fieldsOf(action, "filter", filter, FIELDS);
  if ("family" in fields) builder.family(familyNumber(action, fields["family"]), "family");
  if ("protocol" in fields) builder.byte(OFFSET.protocol, checkInteger(action, "protocol", fields["protocol"], 0xff));
  if ("zone" in fields) {
    builder.short(OFFSET.zone, checkInteger(action, "zone", fields["zone"], 0xffff));
    // Zone 0 means entries that have no zone in either direction.
    builder.short(OFFSET.originalZone, 0);
    builder.short(OFFSET.replyZone, 0);
  }
  if ("mark" in fields) readBits(builder, "mark", fields["mark"]);
  if ("status" in fields) readBits(builder, "status", fields["status"]);
  if (filter.original !== undefined) readTuple(builder, "original", filter.original);
  if (filter.reply !== undefined) readTuple(builder, "reply", filter.reply);
  const patterns = "state" in fields ? withState(builder, fields["state"]) : [builder.copy()];
  return "addresses" in fields ? withAddresses(action, patterns, fields["addresses"]) : patterns;
}

/** Returns four patterns per address, one for each place that it may have. */
function withAddresses(action: string, patterns: readonly Pattern[], given: unknown): Pattern[] {
  if (!Array.isArray(given) || given.length === 0 || given.length > MOST_ADDRESSES) {
    throw invalid(
      action,
      `addresses: expected 1 to ${MOST_ADDRESSES}, found ${Array.isArray(given) ? given.length : display(given)}`,
    );
  }
  const all = patterns.flatMap((pattern) =>
    given.flatMap((address: unknown, i) => {
      const prefix = readPrefix(action, `addresses[${i}]`, address);
      const family = prefix.bytes.length === 4 ? AF.ip : AF.ip6;
      if (pattern.mask[OFFSET.family] !== 0 && pattern.value[OFFSET.family] !== family) return [];
      return ENDS.flatMap((offset) => withAddress(pattern, offset, prefix) ?? []);
    }),
  );
  if (all.length === 0) throw invalid(action, "addresses: no entry can match one of them and the rest of the filter");
  return all;
}

/** Offsets of a record's four addresses. */
const ENDS = [OFFSET.original, OFFSET.original + 16, OFFSET.reply, OFFSET.reply + 16];

/**
 * Returns the pattern with an address at one offset. Returns undefined if the pattern requires another address there.
 */
function withAddress(pattern: Pattern, offset: number, prefix: PrefixBytes): Pattern | undefined {
  const builder = new PatternBuilder("");
  builder.value.set(pattern.value);
  builder.mask.set(pattern.mask);
  builder.byte(OFFSET.family, prefix.bytes.length === 4 ? AF.ip : AF.ip6);
  return builder.prefix(offset, prefix) ? builder : undefined;
}

/** Returns the families that matching entries may have. */
export function familiesOf(patterns: readonly Pattern[]): ReadonlySet<IpFamily> {
  const all = patterns.flatMap(({ value, mask }): readonly IpFamily[] => {
    if (mask[OFFSET.family] === 0) return IP_FAMILIES;
    return [value[OFFSET.family] === AF.ip ? "ip" : "ip6"];
  });
  return new Set(all);
}

/** Whether a record (`packEntry`) matches one of the patterns. */
export function matchesPatterns(patterns: readonly Pattern[], record: Uint8Array): boolean {
  return patterns.some(({ value, mask }) => value.every((byte, i) => (record[i] & mask[i]) === byte));
}

/** Returns the patterns in the addon's format: value and mask of each. */
export function packPatterns(patterns: readonly Pattern[]): Uint8Array {
  const bytes = new Uint8Array(patterns.length * 2 * KEY_BYTES);
  patterns.forEach(({ value, mask }, i) => {
    bytes.set(value, 2 * i * KEY_BYTES);
    bytes.set(mask, (2 * i + 1) * KEY_BYTES);
  });
  return bytes;
}

/** Throws KernelError "invalid" unless the filter has the prefilter's family. */
export function checkPrefilter(filter: ConntrackFilter, prefilter: ConntrackPrefilter): void {
  if (filter.family !== prefilter.family) throw invalid("dump", "prefilter: the filter has another family");
}
