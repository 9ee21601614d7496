/** Elements of sets and maps, as people write them. Packed bytes are taken as they are: the fast path. */
import type { Verdict } from "../kernel/types.js";
import type { ElementSet, FieldType, SetSpec as FullSetSpec } from "../table/index.js";
import { FieldCodec, FieldError, type FieldsValue } from "./fields.js";
import { parseVerdict, verdictText, type VerdictText } from "./verdicts.js";

/** What a set or map is: its key, what it maps to, how large it may grow. */
export interface SetSpec extends Omit<FullSetSpec, "deferLeftovers"> {}

/** What `Table.set` returns for a specification. */
export type ElementsOf<Spec extends SetSpec> = Spec extends { readonly interval: true }
  ? NetworkSet
  : Spec extends { readonly dynamic: true }
    ? DynamicSet
    : Spec extends { readonly data: "verdict" }
      ? VerdictMap<Spec["key"]>
      : Spec extends { readonly data: infer Data extends readonly FieldType[] }
        ? DataMap<Spec["key"], Data>
        : PlainSet<Spec["key"]>;

/** A set that packets fill (`update`): the program only declares it. */
export class DynamicSet {
  /** @internal */
  constructor(readonly spec: SetSpec) {}
}

/** What sets and maps have in common. Keys that are bytes have every field of a concatenation padded to 4 bytes. */
abstract class Keyed<Key extends readonly FieldType[]> {
  /** @internal */
  protected readonly elements: ElementSet;
  readonly #keys: FieldCodec;

  /** @internal */
  constructor(elements: ElementSet) {
    this.elements = elements;
    this.#keys = new FieldCodec(`set ${elements.spec.set}, key`, elements.spec.key);
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

  /** @internal */
  protected packKey(key: unknown): Uint8Array {
    return this.#keys.pack(key);
  }
}

/** A set: keys alone. */
export class PlainSet<Key extends readonly FieldType[] = readonly FieldType[]> extends Keyed<Key> {
  /** The element comes with the next apply. False: it was desired already. Throws FieldError. */
  put(key: FieldsValue<Key> | Uint8Array): boolean {
    return this.elements.put(this.packKey(key));
  }
}

/** A map from keys to values. */
export class DataMap<
  Key extends readonly FieldType[] = readonly FieldType[],
  Data extends readonly FieldType[] = readonly FieldType[],
> extends Keyed<Key> {
  readonly #data: FieldCodec;

  /** @internal */
  constructor(elements: ElementSet) {
    super(elements);
    this.#data = new FieldCodec(`map ${elements.spec.set}, data`, elements.spec.data as readonly FieldType[]);
  }

  /** The key maps to this with the next apply. False: it was desired already. Throws FieldError. */
  put(key: FieldsValue<Key> | Uint8Array, data: FieldsValue<Data> | Uint8Array): boolean {
    return this.elements.put(this.packKey(key), this.#data.pack(data));
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
  constructor(elements: ElementSet, numbers: VerdictNumbers) {
    super(elements);
    this.#numbers = numbers;
  }

  /** The key maps to this with the next apply. False: it was desired already. Throws FieldError. */
  put(key: FieldsValue<Key> | Uint8Array, verdict: VerdictText): boolean {
    const bytes = this.packKey(key);
    this.#data[0] = this.#numbers.id(parseVerdict(`map ${this.elements.spec.set}, data`, verdict));
    return this.elements.put(bytes, new Uint8Array(this.#data.buffer));
  }

  get(key: FieldsValue<Key> | Uint8Array): VerdictText | undefined {
    const data = this.elements.get(this.packKey(key));
    if (data === undefined) return undefined;
    return verdictText(this.#numbers.verdict(new Uint32Array(data.slice().buffer)[0]));
  }
}

/** A set of networks (`interval: true`). */
export class NetworkSet {
  readonly #elements: ElementSet;

  /** @internal */
  constructor(elements: ElementSet) {
    this.#elements = elements;
  }

  /** Ranges, after overlapping networks are merged. */
  get size(): number {
    return this.#elements.size;
  }

  /** Exactly these networks ("192.0.2.0/24") and addresses, with the next apply. Throws FieldError. */
  replace(networks: readonly string[]): void {
    const { set, key } = this.#elements.spec;
    try {
      this.#elements.replaceNets(networks);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      const expected = `networks and addresses of ${key[0]} (${error.message})`;
      throw new FieldError(`set ${set}, key (${key[0]})`, expected, networks.length > 8 ? "a list" : networks);
    }
  }

  /** The desired networks, merged; what is no network is FROM-TO. */
  networks(): readonly string[] {
    return this.#elements.nets();
  }

  clear(): void {
    this.#elements.replaceNets([]);
  }
}
