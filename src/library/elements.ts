/** Elements of sets and maps, in readable form. Packed bytes are used unchanged, as a fast path. */
import type { Verdict } from "../netlink/kernel.js";
import type { FieldType, ListedElements } from "../table/table-exports.js";
import { parseRange, rangeText } from "../base/ip-ranges.js";
import { rangeKey, rangeOfKey } from "../table/rules/intervals.js";
import { FieldCodec, FieldError, type FieldsValue } from "./field-codec.js";
import type { DynamicMap, DynamicSet } from "./filled-sets.js";
import {
  checkedOptions,
  checkFate,
  type Counted,
  type ElementOptions,
  type MapEntry,
  type NetworkEntry,
  type SetEntry,
  type SetFate,
  type SetSpec,
} from "./set-spec.js";
import { parseVerdict, verdictText, type VerdictText } from "./verdicts.js";

type Flag<Spec, Name extends keyof SetSpec> = Name extends keyof Spec
  ? Spec[Name] extends true
    ? true
    : Spec[Name] extends false | undefined
      ? false
      : boolean
  : false;

/** The return type of `Table.set` for a specification: a union if the specification's type does not determine one. */
export type ElementsOf<Spec extends SetSpec> = OfInterval<Flag<Spec, "interval">, Spec>;
type OfInterval<Interval, Spec extends SetSpec> = Interval extends true
  ? NetworkSet
  : OfDynamic<Flag<Spec, "dynamic">, Spec>;
type OfDynamic<Dynamic, Spec extends SetSpec> = Dynamic extends true
  ? OfFilled<DataOf<Spec>, Spec>
  : OfData<DataOf<Spec>, Spec>;
type DataOf<Spec extends SetSpec> = "data" extends keyof Spec ? Spec["data"] : undefined;
type OfFilled<Data, Spec extends SetSpec> = Data extends readonly FieldType[]
  ? DynamicMap<Spec["key"], Data>
  : DynamicSet<Spec["key"]>;
type OfData<Data, Spec extends SetSpec> = Data extends "verdict"
  ? VerdictMap<Spec["key"]>
  : Data extends readonly FieldType[]
    ? DataMap<Spec["key"], Data>
    : PlainSet<Spec["key"]>;

/** Returns the elements of a handle's set. Throws TableError if the set is no longer declared. */
function living(elements: ListedElements, fate: SetFate): ListedElements {
  checkFate(elements.spec.set, fate);
  return elements;
}

/** The common part of sets and maps. In keys that are bytes, every field of a concatenation is padded to 4 bytes. */
abstract class Keyed<Key extends readonly FieldType[]> {
  readonly #elements: ListedElements;
  readonly #fate: SetFate;
  readonly #keys: FieldCodec;

  /** @internal */
  constructor(elements: ListedElements, fate: SetFate) {
    this.#elements = elements;
    this.#fate = fate;
    this.#keys = new FieldCodec(`set ${elements.spec.set}, key`, elements.spec.key);
  }

  /** @internal */
  protected get elements(): ListedElements {
    return living(this.#elements, this.#fate);
  }

  /** Number of desired elements. */
  get size(): number {
    return this.elements.size;
  }

  has(key: FieldsValue<Key> | Uint8Array): boolean {
    return this.elements.has(this.packKey(key));
  }

  /** Returns the keys of all desired elements, in no particular order. */
  keys(): FieldsValue<Key>[] {
    const keys: FieldsValue<Key>[] = [];
    this.elements.forEach((key) => void keys.push(this.unpackKey(key)));
    return keys;
  }

  /** Removes the element with the next apply. Returns false if it was not desired. */
  delete(key: FieldsValue<Key> | Uint8Array): boolean {
    return this.elements.delete(this.packKey(key));
  }

  clear(): void {
    this.elements.clear();
  }

  /**
   * Returns the packets and bytes that matched the element, as of the last `Table.readCounters()`. Needs a set with `counters`. Returns undefined
   * if the element is not desired.
   */
  counted(key: FieldsValue<Key> | Uint8Array): Counted | undefined {
    const bytes = this.packKey(key);
    const { set, counters } = this.elements.spec;
    if (counters === undefined) throw new FieldError(`set ${set}`, "a set with counters", "no counters");
    return this.elements.has(bytes) ? this.elements.counted(bytes) : undefined;
  }

  /** @internal */
  protected packKey(key: unknown): Uint8Array {
    return this.#keys.pack(key);
  }

  /** @internal */
  protected unpackKey(key: Uint8Array): FieldsValue<Key> {
    return this.#keys.unpack(key) as FieldsValue<Key>;
  }

  /** @internal */
  protected entryOf(key: Uint8Array): SetEntry<Key> {
    const { elements } = this;
    const [timeoutMs, leftMs] = elements.times(key);
    const comment = elements.comment(key);
    return {
      key: this.unpackKey(key),
      ...(timeoutMs > 0 && { timeoutMs, leftMs }),
      ...(elements.spec.counters !== undefined && { counted: elements.counted(key) }),
      ...(comment !== undefined && { comment }),
    };
  }
}

/** A set, which has only keys. */
export class PlainSet<Key extends readonly FieldType[] = readonly FieldType[]> extends Keyed<Key> {
  /** Adds the element with the next apply. Returns false if it was already desired. Throws FieldError. */
  put(key: FieldsValue<Key> | Uint8Array, options?: ElementOptions): boolean {
    const { timeoutMs, comment } = checkedOptions(this.elements.spec, options);
    return this.elements.put(this.packKey(key), undefined, timeoutMs, comment);
  }

  /** Returns the desired element, or undefined if it is not desired. */
  get(key: FieldsValue<Key> | Uint8Array): SetEntry<Key> | undefined {
    const bytes = this.packKey(key);
    return this.elements.has(bytes) ? this.entryOf(bytes) : undefined;
  }

  /** Returns all desired elements, in no particular order. Their `counted` is as of the last `Table.readCounters()`. */
  entries(): SetEntry<Key>[] {
    const entries: SetEntry<Key>[] = [];
    this.elements.forEach((key) => void entries.push(this.entryOf(key)));
    return entries;
  }
}

/** The common part of maps. */
abstract class Mapped<Key extends readonly FieldType[], Data> extends Keyed<Key> {
  /** @internal */
  protected abstract unpackData(data: Uint8Array): Data;

  /** Returns the key's desired value, with protocols and classes as numbers, or undefined if the key is not desired. */
  get(key: FieldsValue<Key> | Uint8Array): Data | undefined {
    const data = this.elements.get(this.packKey(key));
    return data === undefined ? undefined : this.unpackData(data);
  }

  /** Returns all desired elements, in no particular order. Their `counted` is as of the last `Table.readCounters()`. */
  entries(): MapEntry<Key, Data>[] {
    const entries: MapEntry<Key, Data>[] = [];
    this.elements.forEach((key, data) => void entries.push({ ...this.entryOf(key), data: this.unpackData(data) }));
    return entries;
  }
}

/** A map from keys to values. */
export class DataMap<
  Key extends readonly FieldType[] = readonly FieldType[],
  Data extends readonly FieldType[] = readonly FieldType[],
> extends Mapped<Key, FieldsValue<Data>> {
  readonly #data: FieldCodec;

  /** @internal */
  constructor(elements: ListedElements, fate: SetFate) {
    super(elements, fate);
    this.#data = new FieldCodec(`map ${elements.spec.set}, data`, elements.spec.data as readonly FieldType[]);
  }

  /** Maps the key to this value with the next apply. Returns false if this was already desired. Throws FieldError. */
  put(key: FieldsValue<Key> | Uint8Array, data: FieldsValue<Data> | Uint8Array, options?: ElementOptions): boolean {
    const { timeoutMs, comment } = checkedOptions(this.elements.spec, options);
    return this.elements.put(this.packKey(key), this.#data.pack(data), timeoutMs, comment);
  }

  /** @internal */
  protected override unpackData(data: Uint8Array): FieldsValue<Data> {
    return this.#data.unpack(data) as FieldsValue<Data>;
  }
}

export interface VerdictNumbers {
  id(verdict: Verdict): number;
  verdict(id: number): Verdict;
}

/** A map from keys to verdicts. */
export class VerdictMap<Key extends readonly FieldType[] = readonly FieldType[]> extends Mapped<Key, VerdictText> {
  readonly #numbers: VerdictNumbers;
  readonly #data = new Uint32Array(1);

  /** @internal */
  constructor(elements: ListedElements, fate: SetFate, numbers: VerdictNumbers) {
    super(elements, fate);
    this.#numbers = numbers;
  }

  /** Maps the key to this value with the next apply. Returns false if this was already desired. Throws FieldError. */
  put(key: FieldsValue<Key> | Uint8Array, verdict: VerdictText, options?: ElementOptions): boolean {
    const bytes = this.packKey(key);
    const { timeoutMs, comment } = checkedOptions(this.elements.spec, options);
    this.#data[0] = this.#numbers.id(parseVerdict(`map ${this.elements.spec.set}, data`, verdict));
    return this.elements.put(bytes, new Uint8Array(this.#data.buffer), timeoutMs, comment);
  }

  /** @internal */
  protected override unpackData(data: Uint8Array): VerdictText {
    return verdictText(this.#numbers.verdict(new Uint32Array(data.slice().buffer)[0]));
  }
}

/** A set of networks (`interval: true`). A network is "192.0.2.0/24", an address or a range "192.0.2.1-192.0.2.9". */
export class NetworkSet {
  readonly #own: ListedElements;
  readonly #fate: SetFate;

  /** @internal */
  constructor(elements: ListedElements, fate: SetFate) {
    this.#own = elements;
    this.#fate = fate;
  }

  get #elements(): ListedElements {
    return living(this.#own, this.#fate);
  }

  /** Number of ranges, after overlapping networks are merged. */
  get size(): number {
    return this.#elements.size;
  }

  /** Replaces the content by these networks. In a set with timeouts, all times start again. Throws FieldError. */
  replace(networks: readonly string[]): void {
    const where = this.#where;
    if (!Array.isArray(networks)) throw new FieldError(where, "a list of networks and addresses", networks);
    for (const [index, network] of networks.entries())
      if (typeof network !== "string") throw new FieldError(`${where}[${index}]`, "a network or an address", network);
    this.#orFieldError("networks and addresses", networks, () => this.#elements.replaceNets(networks));
  }

  /**
   * Sets with `timeoutMs` only: adds the network with the next apply. Returns false if it was already desired. Throws FieldError, also if it overlaps another
   * network of the set.
   */
  put(network: string, options?: ElementOptions): boolean {
    const { timeoutMs, comment } = checkedOptions(this.#timed.spec, options);
    const key = this.#key(network);
    return this.#orFieldError("a network that overlaps no other", network, () =>
      this.#timed.put(key, undefined, timeoutMs, comment),
    );
  }

  /** Sets with `timeoutMs` only: removes the network with the next apply. Returns false if it was not desired. */
  delete(network: string): boolean {
    return this.#timed.delete(this.#key(network));
  }

  /** Whether exactly this network is desired. */
  has(network: string): boolean {
    return this.#elements.has(this.#key(network));
  }

  /** Returns the desired network, or undefined if exactly this network is not desired. */
  get(network: string): NetworkEntry | undefined {
    const key = this.#key(network);
    return this.#elements.has(key) ? this.#entryOf(key) : undefined;
  }

  /** Returns all desired networks, in no particular order. */
  entries(): NetworkEntry[] {
    const entries: NetworkEntry[] = [];
    this.#elements.forEach((key) => void entries.push(this.#entryOf(key)));
    return entries;
  }

  /**
   * Returns the desired networks, with other ranges as FROM-TO. `replace` accepts them. Without timeouts, networks that touch are merged.
   */
  networks(): readonly string[] {
    const { spec } = this.#elements;
    return spec.timeoutMs === undefined ? this.#elements.nets() : this.entries().map(({ key }) => key);
  }

  /** Like `networks()`, as in other sets. */
  keys(): readonly string[] {
    return this.networks();
  }

  clear(): void {
    this.#elements.replaceNets([]);
  }

  get #timed(): ListedElements {
    const elements = this.#elements;
    const { set, timeoutMs } = elements.spec;
    if (timeoutMs !== undefined) return elements;
    throw new FieldError(`set ${set}`, "a set with timeoutMs; without, call replace()", "no timeoutMs");
  }

  get #where(): string {
    const { set, key } = this.#elements.spec;
    return `set ${set}, key (${key[0]})`;
  }

  #key(network: string): Uint8Array {
    const { keyLen, spec } = this.#elements;
    return this.#orFieldError("a network or an address", network, () => {
      if (typeof network !== "string") throw new RangeError("not a text");
      const { version, ...range } = parseRange(network);
      if (version !== (keyLen === 8 ? 4 : 6)) throw new RangeError(`not of type ${spec.key[0]}`);
      return rangeKey(range, keyLen / 2);
    });
  }

  #entryOf(key: Uint8Array): NetworkEntry {
    const [timeoutMs, leftMs] = this.#elements.times(key);
    const comment = this.#elements.comment(key);
    return {
      key: rangeText(rangeOfKey(key), key.length / 2),
      ...(timeoutMs > 0 && { timeoutMs, leftMs }),
      ...(comment !== undefined && { comment }),
    };
  }

  #orFieldError<T>(expected: string, given: unknown, action: () => T): T {
    try {
      return action();
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      const type = this.#elements.spec.key[0];
      throw new FieldError(this.#where, `${expected} of ${type} (${error.message})`, given);
    }
  }
}
