/**
 * Entries over the bytes that the addon returns. A field is decoded on access, because most entries of a dump are
 * examined once and for a field or two.
 */
import { AF } from "../../base/ip-families.js";
import type { NativeRecords } from "../kernel/conntrack-addon.js";
import { formatAddress, type IpFamily } from "../../base/ip.js";
import { KEY_BYTES, KIND, LABEL_BYTES, OFFSET, packIdentity, PART, SHORT_BYTES } from "./encode.js";
import { stateName } from "./protocol-states.js";
import type { ConntrackEntry, ConntrackTuple } from "./conntrack-table.js";

/** Records of one length, as the addon returns them. */
interface Block {
  readonly view: DataView;
  /** Whether IPv4 addresses take 4 bytes. */
  readonly short: boolean;
}

/**
 * Cached texts of recent addresses, by a hash of their bytes. Even a table of many entries has few VIPs and endpoints.
 */
const CACHED = 4_096;
const cachedV4 = new Uint32Array(CACHED);
const cachedV4Texts: string[] = new Array<string>(CACHED).fill("0.0.0.0");
const cachedV6 = new Uint32Array(CACHED * 4);
const cachedV6Texts: string[] = new Array<string>(CACHED).fill("::");

function textV4(address: number): string {
  const mixed = Math.imul(address, 0x9e3779b1);
  const slot = (mixed ^ (mixed >>> 15)) & (CACHED - 1);
  if (cachedV4[slot] === address) return cachedV4Texts[slot];
  cachedV4[slot] = address;
  const text = `${address & 0xff}.${(address >>> 8) & 0xff}.${(address >>> 16) & 0xff}.${address >>> 24}`;
  cachedV4Texts[slot] = text;
  return text;
}

function textV6(view: DataView, at: number): string {
  const a = view.getUint32(at, true);
  const b = view.getUint32(at + 4, true);
  const c = view.getUint32(at + 8, true);
  const d = view.getUint32(at + 12, true);
  const mixed = Math.imul(
    a ^ Math.imul(b ^ Math.imul(c ^ Math.imul(d, 0x85ebca6b), 0xc2b2ae35), 0x27d4eb2f),
    0x9e3779b1,
  );
  const slot = (mixed ^ (mixed >>> 15)) & (CACHED - 1);
  const word = slot * 4;
  if (cachedV6[word] === a && cachedV6[word + 1] === b && cachedV6[word + 2] === c && cachedV6[word + 3] === d) {
    return cachedV6Texts[slot];
  }
  const text = formatAddress(new Uint8Array(view.buffer, view.byteOffset + at, 16));
  cachedV6.set([a, b, c, d], word);
  cachedV6Texts[slot] = text;
  return text;
}

function addressOf({ view, short }: Block, record: number, index: number): string {
  if (short) return textV4(view.getUint32(record + OFFSET.original + 4 * index, true));
  const at = record + OFFSET.original + 16 * index;
  return view.getUint8(record + OFFSET.family) === AF.ip ? textV4(view.getUint32(at, true)) : textV6(view, at);
}

class PackedTuple implements ConntrackTuple {
  readonly #block: Block;
  /** Offset of the record. */
  readonly #at: number;
  /** 0: original, 1: reply. */
  readonly #direction: number;

  constructor(block: Block, at: number, direction: number) {
    this.#block = block;
    this.#at = at;
    this.#direction = direction;
  }

  get source(): string {
    return addressOf(this.#block, this.#at, 2 * this.#direction);
  }
  get destination(): string {
    return addressOf(this.#block, this.#at, 2 * this.#direction + 1);
  }
  get protocol(): number {
    return this.#block.view.getUint8(this.#at + OFFSET.protocol);
  }
  get sourcePort(): number {
    return this.#kind === KIND.ports ? this.#block.view.getUint16(this.#ports, true) : 0;
  }
  get destinationPort(): number {
    return this.#kind === KIND.ports ? this.#block.view.getUint16(this.#ports + 2, true) : 0;
  }
  get icmp(): ConntrackTuple["icmp"] {
    if (this.#kind !== KIND.icmp) return undefined;
    const at = this.#ports;
    return {
      id: this.#block.view.getUint16(at, true),
      type: this.#block.view.getUint8(at + 3),
      code: this.#block.view.getUint8(at + 2),
    };
  }
  get zone(): number | undefined {
    const zone = this.#block.view.getUint16(this.#at + OFFSET.originalZone + 2 * this.#direction, true);
    return zone === 0 ? undefined : zone;
  }

  get #kind(): number {
    return this.#block.view.getUint8(this.#at + OFFSET.kind);
  }
  get #ports(): number {
    return this.#at + OFFSET.originalPorts + 4 * this.#direction;
  }

  toJSON(): ConntrackTuple {
    return plainTuple(this);
  }
}

/** An entry of a block. It keeps the block in memory. */
class PackedEntry implements ConntrackEntry {
  readonly #block: Block;
  readonly #at: number;

  constructor(block: Block, at: number) {
    this.#block = block;
    this.#at = at;
  }

  get family(): IpFamily {
    return this.#block.view.getUint8(this.#at + OFFSET.family) === AF.ip ? "ip" : "ip6";
  }
  get original(): ConntrackTuple {
    return new PackedTuple(this.#block, this.#at, 0);
  }
  get reply(): ConntrackTuple {
    return new PackedTuple(this.#block, this.#at, 1);
  }
  get id(): number {
    return this.#block.view.getUint32(this.#at + OFFSET.id, true);
  }
  get status(): number {
    return this.#block.view.getUint32(this.#at + OFFSET.status, true);
  }
  get timeout(): number | undefined {
    return this.#has(PART.timeout) ? this.#block.view.getUint32(this.#at + OFFSET.timeout, true) : undefined;
  }
  get mark(): number {
    return this.#block.view.getUint32(this.#at + OFFSET.mark, true);
  }
  get zone(): number {
    return this.#block.view.getUint16(this.#at + OFFSET.zone, true);
  }
  get state(): string | undefined {
    const state = this.#block.view.getUint8(this.#at + OFFSET.state);
    return state === 0 ? undefined : stateName(this.#block.view.getUint8(this.#at + OFFSET.protocol), state - 1);
  }
  get labels(): Uint8Array | undefined {
    if (!this.#has(PART.labels)) return undefined;
    const { buffer, byteOffset } = this.#block.view;
    return new Uint8Array(buffer, byteOffset + this.#at + OFFSET.labels, LABEL_BYTES).slice();
  }
  get counters(): ConntrackEntry["counters"] {
    if (!this.#has(PART.counters)) return undefined;
    const count = (index: number): bigint =>
      this.#block.view.getBigUint64(this.#at + OFFSET.counters + index * 8, true);
    return {
      original: { packets: count(0), bytes: count(1) },
      reply: { packets: count(2), bytes: count(3) },
    };
  }
  get startedAt(): number | undefined {
    if (!this.#has(PART.start)) return undefined;
    return Number(this.#block.view.getBigUint64(this.#at + OFFSET.start, true) / 1_000_000n);
  }

  #has(part: number): boolean {
    return (this.#block.view.getUint16(this.#at + OFFSET.parts, true) & part) !== 0;
  }

  toJSON(): ConntrackEntry {
    return plainEntry(this);
  }

  /** Writes the entry's key and id at `offset`. Returns false if `entry` is not of this class. */
  static writeKey(entry: ConntrackEntry, into: Uint8Array, offset: number): boolean {
    if (!(#block in entry)) return false;
    const { view, short } = entry.#block;
    const at = view.byteOffset + entry.#at;
    if (!short) {
      into.set(new Uint8Array(view.buffer, at, KEY_BYTES), offset);
      return true;
    }
    into.set(new Uint8Array(view.buffer, at, OFFSET.original), offset);
    for (let i = 0; i < 4; i++) {
      into.set(new Uint8Array(view.buffer, at + OFFSET.original + 4 * i, 4), offset + OFFSET.original + 16 * i);
    }
    return true;
  }
}

export function unpackRecords({ stride, bytes }: NativeRecords): ConntrackEntry[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const block: Block = { view, short: stride === SHORT_BYTES };
  const entries: ConntrackEntry[] = [];
  for (let at = 0; at < bytes.length; at += stride) entries.push(new PackedEntry(block, at));
  return entries;
}

/** Returns keys and ids of entries to delete, in the addon's format. Throws KernelError "invalid". */
export function packIdentities(entries: readonly ConntrackEntry[]): Uint8Array {
  const keys = new Uint8Array(entries.length * KEY_BYTES);
  entries.forEach((entry, i) => {
    if (!PackedEntry.writeKey(entry, keys, i * KEY_BYTES)) keys.set(packIdentity("delete", entry), i * KEY_BYTES);
  });
  return keys;
}

const TUPLE_FIELDS = ["source", "destination", "protocol", "sourcePort", "destinationPort", "icmp", "zone"] as const;
const OWN_FIELDS = ["id", "status", "timeout", "mark", "zone", "state", "labels", "counters", "startedAt"] as const;

/** Returns a copy of those fields that are set. */
function picked<T, Field extends keyof T>(from: T, fields: readonly Field[]): Pick<T, Field> {
  const set = fields.map((field) => [field, from[field]] as const).filter(([, value]) => value !== undefined);
  return Object.fromEntries(set) as Pick<T, Field>;
}

function plainTuple(tuple: ConntrackTuple): ConntrackTuple {
  return picked(tuple, TUPLE_FIELDS);
}

/** Returns a copy as a plain object with only the fields that are set: to keep, compare or print. */
export function plainEntry(entry: ConntrackEntry): ConntrackEntry {
  const { family, original, reply } = entry;
  return { family, original: plainTuple(original), reply: plainTuple(reply), ...picked(entry, OWN_FIELDS) };
}
