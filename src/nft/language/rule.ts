/**
 * The declarative Table's vocabulary: rules as typed data (text is only a rendering), chains, sets and maps.
 *
 * A value that a packet carries is a `Field`. A `Statement` is one match or one action. A rule is a list of statements. `statements.ts` turns
 * statements into kernel expressions, and `print.ts` prints them as nft does.
 */
import type { RecordOf, ValueOf, VariantOf } from "../../base/shape.js";
import type { FieldValues, ValueType } from "./fields/field-types.js";
import type { FieldName, FieldsOf } from "./fields/packet-fields.js";
import type { BaseChain } from "./hooks-and-priorities.js";
import type {
  ACTIONS,
  addressSource,
  comparison,
  ctDirection,
  dataSource,
  direction,
  field,
  generatedField,
  portRange,
  portSource,
  SET,
} from "./vocabulary.js";

export { LIMIT_SECONDS } from "./vocabulary.js";
export type { BaseChain, HookName, PriorityName } from "./hooks-and-priorities.js";
export type { VerdictText } from "./verdicts.js";
export type { FieldName } from "./fields/packet-fields.js";
export type { FieldType, FieldValues, Protocol, ProtocolName } from "./fields/field-types.js";

/** A rule reads this: a field by nft's name ("ip saddr", "ct mark"), an address of either IP version ("saddr"), or a generated value. */
export type Field = ValueOf<typeof field>;
export type GeneratedField = ValueOf<typeof generatedField>;
/** "in" and "not in": of a list, of a named set ("@name"), or any of some flags. */
export type Comparison = ValueOf<typeof comparison>;
/** A value to write: a constant, a field with some bits changed, or what a map holds. */
export type DataSource = ValueOf<typeof dataSource>;
export type AddressSource = ValueOf<typeof addressSource>;
export type PortSource = ValueOf<typeof portSource>;
/** A port or an inclusive range of ports. */
export type PortRange = ValueOf<typeof portRange>;
/** One of a packet's two ends. */
export type Direction = ValueOf<typeof direction>;
/** The direction of a packet in its connection, or one of the connection's two tuples. */
export type CtDirectionName = ValueOf<typeof ctDirection>;

type Values<V> = V | readonly (V | readonly [from: V, to: V])[] | `@${string}`;
type Compared<F, V> = {
  readonly field: F;
  /** Default: "==", but for flags "in". */
  readonly op?: Comparison;
  /** One value, or a list of values and ranges; an address may be a network or "FROM-TO". Or a named set: "@name". */
  readonly value: Values<V>;
  /** Compares these bits only. */
  readonly mask?: V | readonly V[];
};

/** A condition: compares any field, or several with the elements of a set. The rule continues with its next statement only if it holds. */
export type FieldMatch =
  | { [T in ValueType]: Compared<FieldsOf<T>, FieldValues[T]> }[ValueType]
  | Compared<GeneratedField | Exclude<Field & string, FieldName>, number | string>
  | {
      readonly field: readonly Field[];
      readonly op?: "in" | "not in";
      readonly value:
        | `@${string}`
        | readonly (readonly (string | number | readonly [from: string | number, to: string | number])[])[];
    };

/** The effect of a rule. */
export type Action = VariantOf<"action", typeof ACTIONS>;

/** One condition or one action of a rule. */
export type Statement = FieldMatch | Action;

export interface Rule {
  readonly statements: readonly Statement[];
  /** Shown by nft; at most 128 bytes. */
  readonly comment?: string;
}

export interface ChainSpec {
  readonly chain: string;
  /** Absent for a chain that other chains jump to. */
  readonly base?: BaseChain;
  readonly rules: readonly Rule[];
  readonly comment?: string;
}

export type { ObjectName, ObjectSpec } from "./object-kinds.js";
export type { ObjectKind } from "./vocabulary.js";

export interface SetSpec extends RecordOf<typeof SET> {
  /**
   * Deletes undesired elements that a read of the kernel finds (from an earlier run) only after a grace period. Use it if packets may still look them
   * up through a verdict that is deleted in the same transaction. A function selects the elements.
   */
  readonly deferUndesired?: boolean | ((key: Uint8Array) => boolean);
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
  readonly spec: SetSpec;
  readonly keyLen: number;
  readonly dataLen: number;
  /** Number of desired elements. */
  readonly size: number;
  /** Number of elements that the kernel is known to hold. 0 before the first read of the kernel. */
  readonly kernelSize: number;
  /**
   * Desires `key` (with `data`). Returns true if this changes the desired state. In a set with timeouts, the element is desired until it expires. The
   * timeout is the set's, or `timeoutMs`, which also renews an element that is already desired.
   */
  put(key: Uint8Array, data?: Uint8Array, timeoutMs?: number): boolean;
  /** Returns the desired timeout of the element in a set with timeouts, and the time left, ms. 0 if it has none. */
  times(key: Uint8Array): readonly [timeoutMs: number, leftMs: number];
  /** No longer desires `key`, regardless of its use count. Returns true if it was desired. */
  delete(key: Uint8Array, deferred?: boolean): boolean;
  /** Desires `key` and counts one more use. `data` replaces earlier data. The key stays until it is released as often as it was retained. */
  retain(key: Uint8Array, data?: Uint8Array): void;
  /** Undoes one `retain`. */
  release(key: Uint8Array, deferred?: boolean): void;
  has(key: Uint8Array): boolean;
  /** Desired data of `key`, as a view that is valid until the next change. */
  get(key: Uint8Array): Uint8Array | undefined;
  /** The data that the kernel is known to hold for `key`, as a view. Undefined before the first read of the kernel. */
  kernelValue(key: Uint8Array): Uint8Array | undefined;
  /**
   * Retains the elements of a list. Their keys are `key`, followed by `base`, `base + 1` and so on as 4 bytes in host order (a field `index`).
   * @param data packed words of `count` elements, one after the other.
   */
  retainList(key: Uint8Array, base: number, data: Int32Array, count: number): void;
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
  /** Additionally desires every element that the kernel is known to hold. */
  desireObserved(): void;
  /** Interval sets only: desires exactly these networks (CIDR, address or FROM-TO). Overlapping networks are merged. */
  replaceNets(nets: readonly string[]): void;
  /** Interval sets only: the desired networks, merged, as nft prints them. A range that is not a network is FROM-TO. */
  nets(): readonly string[];
  clear(): void;
}
