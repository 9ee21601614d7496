/** Sets and maps that packets fill: the kernel has their only copy, so each call asks it. */
import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { batchLayout, type Element, elementsOf } from "../kernel/element-batch.js";
import { isErrno } from "../kernel/errors.js";
import type { ElementBatch, Kernel, Op, TableRef } from "../kernel/kernel.js";
import type { ElementSet, SetFate } from "../elements/element-set.js";
import { withCatchAll } from "../language/intervals.js";
import { commentData, commentOf } from "../bytes/names-and-comments.js";
import type { FieldType } from "../language/fields/field-types.js";
import { TableError } from "../sync/results.js";
import { FieldCodec, type FieldsValue } from "./field-codec.js";
import {
  checkedOptions,
  checkFate,
  type KeyIn,
  type ElementOptions,
  type MapEntry,
  type SetEntry,
  type SetSpec,
} from "./set-spec.js";

/** A table in the kernel. */
export interface KernelTable {
  readonly ref: TableRef;
  /** Runs a call on the kernel between other calls of the table. Rejects with TableError. */
  readonly call: <T>(call: (kernel: Kernel) => Promise<T>) => Promise<T>;
  /** The same for a transaction. */
  readonly commit: (ops: readonly Op[]) => Promise<void>;
}

/** A change of elements of one set. `flush` removes all. */
type ElementChange =
  | { readonly op: "add" | "create" | "delete"; readonly elements: ElementBatch; readonly carry?: Uint32Array }
  | { readonly op: "flush" };

/** The common part of dynamic sets and maps. Rejects with TableError, or FieldError. */
abstract class Filled<Key extends readonly FieldType[], Entry extends SetEntry<Key>> {
  readonly #spec: SetSpec;
  readonly #fate: SetFate;
  readonly #table: KernelTable;
  readonly #keys: FieldCodec;

  /** @internal */
  constructor({ spec, fate }: ElementSet, table: KernelTable) {
    this.#spec = spec;
    this.#fate = fate;
    this.#table = table;
    this.#keys = new FieldCodec(`set ${spec.set}, key`, spec.key);
  }

  /**
   * Reads all elements except "*" from the kernel, in no particular order. Empty before the first `apply()`.
   * @example
   * for (const { key, leftMs } of await seen.entries()) console.log(key, leftMs);
   */
  async entries(): Promise<Entry[]> {
    const elements = await this.#dump();
    return elements.filter(({ catchall }) => !catchall).map((element) => this.#entry(element));
  }

  /**
   * Reads all keys except "*" from the kernel, in no particular order.
   * @example
   * console.log(await seen.keys()); // [ "192.0.2.1" ]
   */
  async keys(): Promise<FieldsValue<Key>[]> {
    return (await this.entries()).map(({ key }) => key);
  }

  /**
   * Reads one element from the kernel: undefined if there is none. Reads the whole set.
   * @example
   * console.log((await seen.get("192.0.2.1"))?.timeoutMs); // 600000
   */
  async get(key: KeyIn<FieldsValue<Key>>): Promise<Entry | undefined> {
    const { bytes, keyLen } = this.#keyOnly(key);
    const wanted = bytes.subarray(0, keyLen);
    const found = (await this.#dump()).find((element) =>
      key === "*" ? element.catchall : !element.catchall && Buffer.compare(element.key, wanted) === 0,
    );
    return found && this.#entry(found);
  }

  /**
   * Whether the kernel has the element. Reads the whole set.
   * @example
   * console.log(await seen.has("192.0.2.1")); // true
   */
  async has(key: KeyIn<FieldsValue<Key>>): Promise<boolean> {
    return (await this.get(key)) !== undefined;
  }

  /**
   * Removes the element now, in a transaction of its own. Resolves to false if the kernel has no such element.
   * @example
   * await seen.delete("192.0.2.1");
   */
  async delete(key: KeyIn<FieldsValue<Key>>): Promise<boolean> {
    return this.#unless("ENOENT", [{ op: "delete", elements: this.#keyOnly(key) }]);
  }

  #keyOnly(key: unknown): ElementBatch {
    const bytes = key === "*" ? new Uint8Array(this.#keys.length) : this.#keys.pack(key).slice();
    const batch = { count: 1, keyLen: bytes.length, dataLen: 0, bytes };
    return key === "*" ? withCatchAll(batch, 0) : batch;
  }

  /**
   * Removes all elements now, in a transaction of its own.
   * @example
   * await seen.clear();
   */
  async clear(): Promise<void> {
    await this.#unless("ENOENT", [{ op: "flush" }]);
  }

  /** @internal */
  protected async write(key: unknown, data: Uint8Array, options: ElementOptions | undefined): Promise<boolean> {
    const spec = this.#spec;
    checkFate(spec.set, this.#fate);
    const { timeoutMs, comment } = checkedOptions(spec, options);
    const columns = {
      ...(spec.timeoutMs !== undefined && { timeouts: true }),
      ...(spec.counters !== undefined && { counters: true }),
    };
    const removal = this.#keyOnly(key);
    const shape = { keyLen: removal.keyLen, dataLen: data.length, ...columns };
    const layout = batchLayout(shape);
    const record = new Uint8Array(layout.stride);
    record.set(removal.bytes.subarray(0, shape.keyLen));
    record.set(data, shape.keyLen);
    if (layout.timeout >= 0)
      new DataView(record.buffer).setBigUint64(layout.timeout, BigInt(timeoutMs ?? 0), LITTLE_ENDIAN);
    const extras = comment === undefined ? {} : { extras: [{ record: 0, userdata: commentData(comment)! }] };
    const added = { count: 1, ...shape, ...extras, bytes: record };
    const elements = key === "*" ? withCatchAll(added, 0) : added;
    const carry = columns.counters === true ? { carry: Uint32Array.of(0) } : {};
    // The kernel does not change an element that exists.
    const replaces = timeoutMs !== undefined || comment !== undefined || data.length > 0;
    const replacement = [
      { op: "delete", elements: removal },
      { op: "add", elements, ...carry },
    ] as const;
    if (replaces && (await this.#unless("ENOENT", replacement))) return true;
    try {
      return await this.#unless("EEXIST", [{ op: "create", elements }]);
    } catch (error) {
      if (!(error instanceof TableError) || !isErrno(error.cause, "ENOENT")) throw error;
      throw new TableError("not-found", `set ${spec.set} is not in the kernel. Call apply() first`, [], {
        cause: error,
      });
    }
  }

  /** @internal */
  protected abstract entryOf(entry: SetEntry<Key>, data: Uint8Array): Entry;

  /** Returns nothing if the kernel has no such set with keys and data of these lengths. */
  async #dump(): Promise<Element[]> {
    const { set } = this.#spec;
    const { ref, call } = this.#table;
    checkFate(set, this.#fate);
    return call(async (kernel) => {
      const info = (await kernel.sets(ref)).find((found) => found.set === set);
      const fits = info?.keyLen === this.#keys.length && (info.dataLen ?? 0) === this.dataLen;
      return fits ? [...elementsOf(await kernel.elements(ref, info))] : [];
    });
  }

  /** @internal */
  protected abstract readonly dataLen: number;

  #entry({ key, catchall, data = NO_DATA, timeout, expiration: leftMs, counted, userdata }: Element): Entry {
    const comment = commentOf(userdata);
    const entry: SetEntry<Key> = {
      key: (catchall ? "*" : this.#keys.unpack(key)) as FieldsValue<Key>,
      ...(leftMs > 0 && { timeoutMs: timeout || (this.#spec.timeoutMs ?? 0), leftMs }),
      ...(counted !== undefined && { counted }),
      ...(comment !== undefined && { comment }),
    };
    return this.entryOf(entry, data);
  }

  /** Changes elements in one transaction. Returns false if the kernel refused the changes for this reason. */
  async #unless(errno: "ENOENT" | "EEXIST", changes: readonly ElementChange[]): Promise<boolean> {
    const { set } = this.#spec;
    const { ref, commit } = this.#table;
    checkFate(set, this.#fate);
    try {
      await commit(changes.map((change) => ({ kind: "elements", ...ref, set, ...change })));
      return true;
    } catch (error) {
      if (error instanceof TableError && isErrno(error.cause, errno)) return false;
      throw error;
    }
  }
}

const NO_DATA = new Uint8Array(0);

/**
 * A set that packets fill through rules (`update`, `connections-over`, `rate-over`). Its elements are not part of the desired state: every call reads or
 * changes the kernel's set at once.
 */
export class DynamicSet<Key extends readonly FieldType[] = readonly FieldType[]> extends Filled<Key, SetEntry<Key>> {
  /** @internal */
  protected override readonly dataLen = 0;

  /**
   * Adds the element now, in a transaction of its own. Resolves to false if it exists: then nothing changes. With `timeoutMs`, its time starts again,
   * and its counts stay.
   * @example
   * await seen.put("192.0.2.2", { timeoutMs: 60_000 });
   */
  async put(key: KeyIn<FieldsValue<Key>>, options?: ElementOptions): Promise<boolean> {
    return this.write(key, NO_DATA, options);
  }

  /** @internal */
  protected override entryOf(entry: SetEntry<Key>): SetEntry<Key> {
    return entry;
  }
}

/** A map that packets fill through rules (`update` with `data`). Like `DynamicSet`, with data. */
export class DynamicMap<
  Key extends readonly FieldType[] = readonly FieldType[],
  Data extends readonly FieldType[] = readonly FieldType[],
> extends Filled<Key, MapEntry<Key, FieldsValue<Data>>> {
  readonly #data: FieldCodec;
  /** @internal */
  protected override readonly dataLen: number;

  /** @internal */
  constructor(elements: ElementSet, table: KernelTable) {
    super(elements, table);
    const { set, data } = elements.spec;
    this.#data = new FieldCodec(`map ${set}, data`, data as readonly FieldType[]);
    this.dataLen = this.#data.length;
  }

  /**
   * Maps the key to this value now, in a transaction of its own. The element's time starts again. Its counts stay.
   * @example
   * await sessions.put("192.0.2.2", ["198.51.100.1", 80]);
   */
  async put(
    key: KeyIn<FieldsValue<Key>>,
    data: FieldsValue<Data> | Uint8Array,
    options?: ElementOptions,
  ): Promise<boolean> {
    return this.write(key, this.#data.pack(data).slice(), options);
  }

  /** @internal */
  protected override entryOf(entry: SetEntry<Key>, data: Uint8Array): MapEntry<Key, FieldsValue<Data>> {
    return { ...entry, data: this.#data.unpack(data) as FieldsValue<Data> };
  }
}
