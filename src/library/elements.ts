/** Elements of sets and maps, as people write them. Packed bytes are taken as they are: the fast path. */
import type { Verdict } from "../netlink/kernel.js";
import { type ElementSet, type FieldType, type SetSpec as FullSetSpec, TableError } from "../table/table-exports.js";
import { check, elementOptions } from "./checks.js";
import { FieldCodec, FieldError, type FieldsValue } from "./field-codec.js";
import { parseVerdict, verdictText, type VerdictText } from "./verdicts.js";

/** What a set or map is: its key, what it maps to, how large it may grow. */
export interface SetSpec extends Omit<FullSetSpec, "deferLeftovers"> {}

type Flag<Spec, Name extends keyof SetSpec> = Name extends keyof Spec
  ? Spec[Name] extends true
    ? true
    : Spec[Name] extends false | undefined
      ? false
      : boolean
  : false;

/** What `Table.set` returns for a specification: one of several where its type leaves open which. */
export type ElementsOf<Spec extends SetSpec> = OfInterval<Flag<Spec, "interval">, Spec>;
type OfInterval<Interval, Spec extends SetSpec> = Interval extends true
  ? NetworkSet
  : OfDynamic<Flag<Spec, "dynamic">, Spec>;
type OfDynamic<Dynamic, Spec extends SetSpec> = Dynamic extends true
  ? DynamicSet
  : OfData<"data" extends keyof Spec ? Spec["data"] : undefined, Spec>;
type OfData<Data, Spec extends SetSpec> = Data extends "verdict"
  ? VerdictMap<Spec["key"]>
  : Data extends readonly FieldType[]
    ? DataMap<Spec["key"], Data>
    : PlainSet<Spec["key"]>;

/** What became of the set that a handle stands for. */
export interface SetFate {
  /** "removed from the table"; absent: it is declared. */
  gone?: string;
}

/** The elements of a handle's set. Throws TableError if the set is no longer declared. */
function living(elements: ElementSet, fate: SetFate): ElementSet {
  if (fate.gone === undefined) return elements;
  throw new TableError("invalid", `set ${elements.spec.set} was ${fate.gone}: use what Table.set returned last`);
}

/** A set that packets fill (`update`): the program only declares it. */
export class DynamicSet {
  /** @internal */
  constructor(readonly spec: SetSpec) {}
}

/** Of one element. */
export interface ElementOptions {
  /**
   * For sets with `timeoutMs`: this element's own timeout. It begins with the call, and renews an element that is there. Without it an element
   * that is desired already keeps its time, and a new one has the set's.
   */
  readonly timeoutMs?: number;
}

/** What sets and maps have in common. Keys that are bytes have every field of a concatenation padded to 4 bytes. */
abstract class Keyed<Key extends readonly FieldType[]> {
  readonly #elements: ElementSet;
  readonly #fate: SetFate;
  readonly #keys: FieldCodec;

  /** @internal */
  constructor(elements: ElementSet, fate: SetFate) {
    this.#elements = elements;
    this.#fate = fate;
    this.#keys = new FieldCodec(`set ${elements.spec.set}, key`, elements.spec.key);
  }

  /** @internal */
  protected get elements(): ElementSet {
    return living(this.#elements, this.#fate);
  }

  /** Desired elements. */
  get size(): number {
    return this.elements.size;
  }

  has(key: FieldsValue<Key> | Uint8Array): boolean {
    return this.elements.has(this.packKey(key));
  }

  /** The element goes with the next apply. False: it was not desired. */
  delete(key: FieldsValue<Key> | Uint8Array): boolean {
    return this.elements.delete(this.packKey(key));
  }

  clear(): void {
    this.elements.clear();
  }

  /**
   * In a set with `counters`: what packets that found the element came to, as of the last `Table.readCounters()`. Undefined if the element is
   * not desired.
   */
  counted(key: FieldsValue<Key> | Uint8Array): { readonly packets: number; readonly bytes: number } | undefined {
    const bytes = this.packKey(key);
    const { set, counters } = this.elements.spec;
    if (counters === undefined) throw new FieldError(`set ${set}`, "a set with counters", "no counters");
    return this.elements.has(bytes) ? this.elements.counted(bytes) : undefined;
  }

  /** @internal */
  protected timeoutOf(options: ElementOptions | undefined): number | undefined {
    if (options === undefined) return undefined;
    const { set, timeoutMs } = this.elements.spec;
    check(elementOptions, `set ${set}, options`, options);
    if (timeoutMs !== undefined || options.timeoutMs === undefined) return options.timeoutMs;
    throw new FieldError(
      `set ${set}, options, timeoutMs`,
      "a set that has timeoutMs itself, be it 0",
      options.timeoutMs,
    );
  }

  /** @internal */
  protected packKey(key: unknown): Uint8Array {
    return this.#keys.pack(key);
  }
}

/** A set: keys alone. */
export class PlainSet<Key extends readonly FieldType[] = readonly FieldType[]> extends Keyed<Key> {
  /** The element comes with the next apply. False: it was desired already. Throws FieldError. */
  put(key: FieldsValue<Key> | Uint8Array, options?: ElementOptions): boolean {
    return this.elements.put(this.packKey(key), undefined, this.timeoutOf(options));
  }
}

/** A map from keys to values. */
export class DataMap<
  Key extends readonly FieldType[] = readonly FieldType[],
  Data extends readonly FieldType[] = readonly FieldType[],
> extends Keyed<Key> {
  readonly #data: FieldCodec;

  /** @internal */
  constructor(elements: ElementSet, fate: SetFate) {
    super(elements, fate);
    this.#data = new FieldCodec(`map ${elements.spec.set}, data`, elements.spec.data as readonly FieldType[]);
  }

  /** The key maps to this with the next apply. False: it was desired already. Throws FieldError. */
  put(key: FieldsValue<Key> | Uint8Array, data: FieldsValue<Data> | Uint8Array, options?: ElementOptions): boolean {
    return this.elements.put(this.packKey(key), this.#data.pack(data), this.timeoutOf(options));
  }

  /** What the key is desired to map to: protocols and classes as numbers. */
  get(key: FieldsValue<Key> | Uint8Array): FieldsValue<Data> | undefined {
    const data = this.elements.get(this.packKey(key));
    return data === undefined ? undefined : (this.#data.unpack(data) as FieldsValue<Data>);
  }
}

/** How a table numbers its verdicts. */
export interface VerdictNumbers {
  id(verdict: Verdict): number;
  verdict(id: number): Verdict;
}

/** A map from keys to verdicts. */
export class VerdictMap<Key extends readonly FieldType[] = readonly FieldType[]> extends Keyed<Key> {
  readonly #numbers: VerdictNumbers;
  readonly #data = new Uint32Array(1);

  /** @internal */
  constructor(elements: ElementSet, fate: SetFate, numbers: VerdictNumbers) {
    super(elements, fate);
    this.#numbers = numbers;
  }

  /** The key maps to this with the next apply. False: it was desired already. Throws FieldError. */
  put(key: FieldsValue<Key> | Uint8Array, verdict: VerdictText, options?: ElementOptions): boolean {
    const bytes = this.packKey(key);
    const timeoutMs = this.timeoutOf(options);
    this.#data[0] = this.#numbers.id(parseVerdict(`map ${this.elements.spec.set}, data`, verdict));
    return this.elements.put(bytes, new Uint8Array(this.#data.buffer), timeoutMs);
  }

  get(key: FieldsValue<Key> | Uint8Array): VerdictText | undefined {
    const data = this.elements.get(this.packKey(key));
    if (data === undefined) return undefined;
    return verdictText(this.#numbers.verdict(new Uint32Array(data.slice().buffer)[0]));
  }
}

/** A set of networks (`interval: true`). */
export class NetworkSet {
  readonly #own: ElementSet;
  readonly #fate: SetFate;

  /** @internal */
  constructor(elements: ElementSet, fate: SetFate) {
    this.#own = elements;
    this.#fate = fate;
  }

  get #elements(): ElementSet {
    return living(this.#own, this.#fate);
  }

  /** Ranges, after overlapping networks are merged. */
  get size(): number {
    return this.#elements.size;
  }

  /** Exactly these networks ("192.0.2.0/24"), addresses and ranges ("192.0.2.1-192.0.2.9"), with the next apply. Throws FieldError. */
  replace(networks: readonly string[]): void {
    const { set, key } = this.#elements.spec;
    const where = `set ${set}, key (${key[0]})`;
    if (!Array.isArray(networks)) throw new FieldError(where, "a list of networks and addresses", networks);
    for (const [index, network] of networks.entries())
      if (typeof network !== "string") throw new FieldError(`${where}[${index}]`, "a network or an address", network);
    try {
      this.#elements.replaceNets(networks);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new FieldError(where, `networks and addresses of ${key[0]} (${error.message})`, networks);
    }
  }

  /** The desired networks, merged; what is no network is FROM-TO. `replace` takes them. */
  networks(): readonly string[] {
    return this.#elements.nets();
  }

  clear(): void {
    this.#elements.replaceNets([]);
  }
}
