/** Elements of sets and maps, in readable form. Packed bytes are used unchanged, as a fast path. */
import type { FieldType } from "../language/fields/field-types.js";
import type { ObjectKind } from "../language/vocabulary.js";
import type { ElementSet, SetFate } from "../elements/element-set.js";
import { CATCH_ALL } from "../elements/rows.js";
import { FieldCodec, FieldError, type FieldsValue } from "./field-codec.js";
import type { DynamicMap, DynamicSet } from "./filled-sets.js";
import {
  checkedOptions,
  checkFate,
  type Counted,
  type ElementOptions,
  type KeyIn,
  type MapEntry,
  type SetEntry,
  type SetSpec,
} from "./set-spec.js";
import { type FieldsRange, RangeCodec } from "./range-codec.js";
import type { VerdictText } from "../language/verdicts.js";

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
  ? OfRanges<DataOf<Spec>, Spec["key"]>
  : OfDynamic<Flag<Spec, "dynamic">, Spec>;
type OfRanges<Data, Key extends readonly FieldType[]> = Data extends "verdict"
  ? VerdictMap<Key, FieldsRange<Key>>
  : Data extends readonly FieldType[]
    ? DataMap<Key, Data, FieldsRange<Key>>
    : Key extends readonly ["ipv4_addr"] | readonly ["ipv6_addr"]
      ? NetworkSet
      : RangeSet<Key>;
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
    : Data extends { readonly object: ObjectKind }
      ? ObjectMap<Spec["key"]>
      : PlainSet<Spec["key"]>;

/**
 * The common part of sets and maps. In keys that are bytes, every field of a concatenation is padded to 4 bytes. The key "*" is the catch-all element, which
 * matches if no other element does (Linux 5.13).
 */
abstract class Keyed<Key extends readonly FieldType[], Value> {
  readonly #elements: ElementSet;
  readonly #fate: SetFate;
  readonly #keys: FieldCodec | RangeCodec;

  /** @internal */
  constructor(elements: ElementSet) {
    this.#elements = elements;
    this.#fate = elements.fate;
    const { set, key, interval } = elements.spec;
    this.#keys = new (interval === true ? RangeCodec : FieldCodec)(`set ${set}, key`, key);
  }

  /** @internal */
  protected get elements(): ElementSet {
    checkFate(this.#elements.spec.set, this.#fate);
    return this.#elements;
  }

  /**
   * Number of desired elements, without "*".
   * @example
   * console.log(banned.size); // 1
   */
  get size(): number {
    const { elements } = this;
    return elements.size - (elements.has(CATCH_ALL) ? 1 : 0);
  }

  /**
   * Whether the element is desired.
   * @example
   * console.log(banned.has("192.0.2.1")); // true
   */
  has(key: KeyIn<Value>): boolean {
    return this.elements.has(this.packKey(key));
  }

  /**
   * Returns the keys of all desired elements except "*", in no particular order.
   * @example
   * console.log(banned.keys()); // [ "192.0.2.1" ]
   */
  keys(): Value[] {
    const keys: Value[] = [];
    this.forEachKeyed((key) => void keys.push(this.unpackKey(key)));
    return keys;
  }

  /**
   * Removes the element with the next apply. Returns false if it was not desired.
   * @example
   * banned.delete("192.0.2.1");
   */
  delete(key: KeyIn<Value>): boolean {
    return this.elements.delete(this.packKey(key));
  }

  /**
   * Removes all elements with the next apply.
   * @example
   * banned.clear();
   */
  clear(): void {
    this.elements.clear();
  }

  /**
   * Returns the packets and bytes that matched the element, as of the last `Table.readCounters()`. Needs a set with `counters`. Returns undefined
   * if the element is not desired.
   * @example
   * await table.readCounters();
   * console.log(banned.counted("192.0.2.1")?.packets); // 0
   */
  counted(key: KeyIn<Value>): Counted | undefined {
    const bytes = this.packKey(key);
    const { set, counters } = this.elements.spec;
    if (counters === undefined) throw new FieldError(`set ${set}`, "a set with counters", "no counters");
    return this.elements.has(bytes) ? this.elements.counted(bytes) : undefined;
  }

  /** @internal */
  protected packKey(key: unknown): Uint8Array {
    return key === "*" ? CATCH_ALL : this.#keys.pack(key);
  }

  /** @internal */
  protected unpackKey(key: Uint8Array): Value {
    return (key.length === 0 ? "*" : this.#keys.unpack(key)) as Value;
  }

  /** @internal */
  protected forEachKeyed(visit: (key: Uint8Array, data: Uint8Array) => void): void {
    this.elements.forEach((key, data) => {
      if (key.length > 0) visit(key, data);
    });
  }

  /** @internal */
  protected write(key: KeyIn<Value>, data: Uint8Array | undefined, options: ElementOptions | undefined): boolean {
    const { elements } = this;
    const { timeoutMs, comment } = checkedOptions(elements.spec, options);
    try {
      return elements.put(this.packKey(key), data, timeoutMs, comment);
    } catch (error) {
      return this.refuse(key, error);
    }
  }

  /** @internal */
  protected refuse(given: unknown, error: unknown): never {
    const { set, interval } = this.elements.spec;
    if (!(error instanceof RangeError) || interval !== true) throw error;
    throw new FieldError(`set ${set}, key`, `ranges that do not overlap (${error.message})`, given);
  }

  /** @internal */
  protected entryOf(key: Uint8Array): SetEntry<Key, Value> {
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
export class PlainSet<Key extends readonly FieldType[] = readonly FieldType[], Value = FieldsValue<Key>> extends Keyed<
  Key,
  Value
> {
  /**
   * Adds the element with the next apply. Returns false if it was already desired. Throws FieldError.
   * @example
   * banned.put("192.0.2.2", { timeoutMs: 60_000, comment: "scanner" });
   * await table.apply();
   */
  put(key: KeyIn<Value>, options?: ElementOptions): boolean {
    return this.write(key, undefined, options);
  }

  /**
   * Replaces the content by these elements with the next apply, as if `put` was called for each and `delete` for the others. With `interval: true`,
   * ranges of one field that overlap or touch are merged, unless the set has counters. If it is called before the first `load()` or `apply()`, a set
   * with `keep` keeps nothing else.
   *
   * A long list is read in slices, with other work of the program in between. `replace()`, `load()` and `apply()` run in the order of their calls. Until
   * it settles, `put()` and other changes of the table throw TableError "busy", and the set may show a part of its new content. Rejects with FieldError,
   * and then changes nothing.
   * @example
   * await networks.replace(["192.0.2.0/24", "198.51.100.1-198.51.100.9"]);
   */
  async replace(keys: readonly KeyIn<Value>[], options?: ElementOptions): Promise<void> {
    const { elements } = this;
    const { set, key } = elements.spec;
    if (!Array.isArray(keys)) throw new FieldError(`set ${set}, key (${key.join(" . ")})`, "a list", keys);
    const { timeoutMs, comment } = checkedOptions(elements.spec, options);
    const packed = this.#packed([...keys]);
    await elements.replace(packed, timeoutMs, comment).catch((error: unknown) => this.refuse(keys, error));
  }

  *#packed(keys: readonly unknown[]): Generator<Uint8Array> {
    for (const key of keys) yield this.packKey(key);
  }

  /**
   * Returns the desired element, or undefined if it is not desired.
   * @example
   * console.log(banned.get("192.0.2.1")?.timeoutMs); // 600000
   */
  get(key: KeyIn<Value>): SetEntry<Key, Value> | undefined {
    const bytes = this.packKey(key);
    return this.elements.has(bytes) ? this.entryOf(bytes) : undefined;
  }

  /**
   * Returns all desired elements except "*", in no particular order. Their `counted` is as of the last `Table.readCounters()`.
   * @example
   * for (const { key, leftMs } of banned.entries()) console.log(key, leftMs);
   */
  entries(): SetEntry<Key, Value>[] {
    const entries: SetEntry<Key, Value>[] = [];
    this.forEachKeyed((key) => void entries.push(this.entryOf(key)));
    return entries;
  }
}

/** A set of ranges (`interval: true`). Ranges must not overlap, but `replace` merges those of a set with one field. */
export class RangeSet<
  Key extends readonly FieldType[] = readonly FieldType[],
  Value = FieldsRange<Key>,
> extends PlainSet<Key, Value> {}

/** A set of networks. A network is "192.0.2.0/24", an address or a range "192.0.2.1-192.0.2.9". */
export class NetworkSet extends RangeSet<readonly FieldType[], string> {
  /**
   * Returns the desired networks, with other ranges as FROM-TO. `replace` accepts them. Without timeouts, networks that touch are merged.
   * @example
   * console.log(networks.networks()); // [ "192.0.2.0/24" ]
   */
  networks(): readonly string[] {
    const { spec } = this.elements;
    return spec.timeoutMs === undefined ? this.elements.nets() : this.keys();
  }
}

/** The common part of maps. */
abstract class Mapped<Key extends readonly FieldType[], Data, Value> extends Keyed<Key, Value> {
  /** @internal */
  protected abstract unpackData(data: Uint8Array): Data;

  /**
   * Returns the key's desired value, with protocols and classes as numbers, or undefined if the key is not desired.
   * @example
   * console.log(marks.get("192.0.2.1")); // 7
   */
  get(key: KeyIn<Value>): Data | undefined {
    const data = this.elements.get(this.packKey(key));
    return data === undefined ? undefined : this.unpackData(data);
  }

  /**
   * Returns all desired elements except "*", in no particular order. Their `counted` is as of the last `Table.readCounters()`.
   * @example
   * for (const { key, data } of marks.entries()) console.log(key, data);
   */
  entries(): MapEntry<Key, Data, Value>[] {
    const entries: MapEntry<Key, Data, Value>[] = [];
    this.forEachKeyed((key, data) => void entries.push({ ...this.entryOf(key), data: this.unpackData(data) }));
    return entries;
  }
}

/** A map from keys to values. */
export class DataMap<
  Key extends readonly FieldType[] = readonly FieldType[],
  Data extends readonly FieldType[] = readonly FieldType[],
  Value = FieldsValue<Key>,
> extends Mapped<Key, FieldsValue<Data>, Value> {
  readonly #data: FieldCodec;

  /** @internal */
  constructor(elements: ElementSet) {
    super(elements);
    this.#data = new FieldCodec(`map ${elements.spec.set}, data`, elements.spec.data as readonly FieldType[]);
  }

  /**
   * Maps the key to this value with the next apply. Returns false if this was already desired. Throws FieldError.
   * @example
   * marks.put("192.0.2.2", 8);
   */
  put(key: KeyIn<Value>, data: FieldsValue<Data> | Uint8Array, options?: ElementOptions): boolean {
    return this.write(key, this.#data.pack(data), options);
  }

  /** @internal */
  protected override unpackData(data: Uint8Array): FieldsValue<Data> {
    return this.#data.unpack(data) as FieldsValue<Data>;
  }
}

/** The numbers that stand for verdicts or objects in the Table. */
export interface TargetNumbers<Target extends string> {
  /** Throws FieldError. */
  id(target: Target): number;
  target(id: number): Target;
}

/** The common part of maps to verdicts and to named objects. */
abstract class Targeted<Key extends readonly FieldType[], Target extends string, Value> extends Mapped<
  Key,
  Target,
  Value
> {
  readonly #numbers: TargetNumbers<Target>;
  readonly #data = new Uint32Array(1);

  /** @internal */
  constructor(elements: ElementSet, numbers: TargetNumbers<Target>) {
    super(elements);
    this.#numbers = numbers;
  }

  /**
   * Maps the key to this value with the next apply. Returns false if this was already desired. Throws FieldError.
   * @example
   * services.put(80, "goto web");
   */
  put(key: KeyIn<Value>, target: Target, options?: ElementOptions): boolean {
    this.#data[0] = this.#numbers.id(target);
    return this.write(key, new Uint8Array(this.#data.buffer), options);
  }

  /** @internal */
  protected override unpackData(data: Uint8Array): Target {
    return this.#numbers.target(new Uint32Array(data.slice().buffer)[0]);
  }
}

/** A map from keys to verdicts. */
export class VerdictMap<
  Key extends readonly FieldType[] = readonly FieldType[],
  Value = FieldsValue<Key>,
> extends Targeted<Key, VerdictText, Value> {}

/** A map from keys to the names of objects of one kind. */
export class ObjectMap<
  Key extends readonly FieldType[] = readonly FieldType[],
  Value = FieldsValue<Key>,
> extends Targeted<Key, string, Value> {}
