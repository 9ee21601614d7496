import type { SetSpec } from "../language/set-spec.js";

/** A set whose elements stay when the program starts. */
export interface KeptSpec extends SetSpec {
  /** The first read of the kernel desires the elements that it finds, like `desireObserved`, with their remaining times. Not for verdict maps. */
  readonly keep?: boolean;
}

/** Whether the declaration of a set that a handle stands for is still valid. */
export interface SetFate {
  /** Why it is not, such as "removed from the table". Absent if it is. */
  gone?: string;
}

/**
 * The desired elements of one set or map that the Table fills. This is the hot path: keys and data are packed bytes as in `ElementBatch`. They are
 * copied, so a caller may reuse one scratch buffer.
 *
 * - Every field is padded to 4 bytes with zeros at the end.
 * - Fields have network byte order, but marks, classids and indices have host order.
 * - The data of a verdict map is the 4 bytes of `Table.verdictId()`, in host order.
 *
 * `deferred` keeps a deleted element in the kernel until a transaction after the next one, and for at least `TableOptions.gracePeriodMs`. Use it for
 * an element that packets under the old verdict may still look up.
 */
export interface ElementSet {
  readonly spec: KeptSpec;
  /** Whether the current declaration is still valid. @internal */
  readonly fate: SetFate;
  readonly keyLen: number;
  readonly dataLen: number;
  /** Number of desired elements. */
  readonly size: number;
  /** Number of elements that the kernel is known to hold. 0 before the first read of the kernel. */
  readonly kernelSize: number;
  /**
   * Desires `key` (with `data`). Returns true if this changes the desired state. In a set with timeouts, the element is desired until it expires. The
   * timeout is the set's, or `timeoutMs`, which also renews an element that is already desired. Without `comment`, the element keeps its comment.
   */
  put(key: Uint8Array, data?: Uint8Array, timeoutMs?: number, comment?: string): boolean;
  /** The desired comment of the element. */
  comment(key: Uint8Array): string | undefined;
  /** Returns the desired timeout of the element in a set with timeouts, and the time left, ms. 0 if it has none. */
  times(key: Uint8Array): readonly [timeoutMs: number, leftMs: number];
  /** No longer desires `key`, regardless of its use count. Returns true if it was desired. */
  delete(key: Uint8Array, deferred?: boolean): boolean;
  /**
   * Desires `key` and counts one more use. `data` replaces earlier data. The key stays until it is released as often as it was retained. Returns true
   * if this changes the desired state.
   */
  retain(key: Uint8Array, data?: Uint8Array): boolean;
  /** Undoes one `retain`. */
  release(key: Uint8Array, deferred?: boolean): void;
  has(key: Uint8Array): boolean;
  /** Desired data of `key`, as a view that is valid until the next change. */
  get(key: Uint8Array): Uint8Array | undefined;
  /** The data that the kernel is known to hold for `key`, as a view. Undefined before the first read of the kernel. */
  kernelValue(key: Uint8Array): Uint8Array | undefined;
  /** Announces that many further elements. If the set of size "auto" must be replaced by a larger one, this happens before they come. */
  plan(more: number): void;
  /**
   * Retains the elements of a list. Their keys are `key`, followed by `base`, `base + 1` and so on as 4 bytes in host order (a field `index`).
   * Returns how many of them are new or have other data than before.
   * @param data packed words of `count` elements, one after the other.
   */
  retainList(key: Uint8Array, base: number, data: Int32Array, count: number): number;
  /** Gives the retained elements of a list other data. Returns how many had other data before. */
  replaceList(key: Uint8Array, base: number, data: Int32Array, count: number): number;
  /** Releases the elements of a list. */
  releaseList(key: Uint8Array, base: number, count: number, deferred: boolean): void;
  /** Whether the kernel is known to hold all elements of a list with this data. */
  kernelHoldsList(key: Uint8Array, base: number, data: Int32Array, count: number): boolean;
  /** The packets that the element has counted, at the last reading. 0 if there is no element. Only for sets with `counters`. */
  count(key: Uint8Array): number;
  /** Like `count`, with bytes. */
  counted(key: Uint8Array): { readonly packets: number; readonly bytes: number };
  /** The count at the reading before the last. */
  countBefore(key: Uint8Array): number;
  /** Calls `visit` with each key that counted packets between the last two readings. The view is valid during the call only. */
  forEachGrown(visit: (key: Uint8Array) => void): void;
  /** Calls `visit` with every undesired key that the kernel is known to hold. The view is valid during the call only. */
  forEachUndesired(visit: (key: Uint8Array) => void): void;
  /** Additionally desires every element that the kernel is known to hold, but no range that overlaps a desired one. */
  desireObserved(): void;
  /** Interval sets only: desires exactly these networks (CIDR, address or FROM-TO). Overlapping networks are merged. */
  replaceNets(nets: readonly string[]): void;
  /** Interval sets only: the desired networks, merged, as nft prints them. A range that is not a network is FROM-TO. */
  nets(): readonly string[];
  /**
   * Sets without data only: desires exactly these keys. Elements that stay keep their timeouts and comments, as with `put`. In interval sets, ranges of
   * one field are merged, unless the set has counters. Before the first read of the kernel, nothing that it finds is kept.
   *
   * Long work pauses now and then. The call runs after earlier calls of the Table, and holds it like `apply()`. It reads `keys` when it runs. Rejects with
   * RangeError if a key has another length, or ranges overlap that are not merged; then nothing changes.
   */
  replace(keys: Iterable<Uint8Array>, timeoutMs?: number, comment?: string): Promise<void>;
  /** Calls `visit` with every desired element. The views are valid during the call only. */
  forEach(visit: (key: Uint8Array, data: Uint8Array) => void): void;
  /** No longer desires any element. Before the first read of the kernel, nothing that it finds is kept. */
  clear(): void;
}
