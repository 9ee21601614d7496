/** Sets as programs declare them, their elements as programs see them, and the options of an element. */
import type { FieldType } from "../language/fields/field-types.js";
import type { SetSpec as FullSetSpec } from "../language/set-spec.js";
import type { SetFate } from "../elements/element-set.js";
import { TableError } from "../sync/results.js";
import { elementOptions } from "../statements/checks.js";
import { check } from "../language/fields/field-error.js";
import { FieldError, type FieldsValue } from "./field-codec.js";

/** Specification of a set or map: its key, the type of its values, its maximum size. */
export interface SetSpec extends Omit<FullSetSpec, "deferUndesired"> {
  /**
   * Elements that are in the kernel's set when the program starts stay, with their remaining times: the first `load()` or `apply()` adds them to the
   * desired state. They also stay if the set gets another timeout, size or comment. Not for verdict maps. Dynamic sets keep their elements anyway.
   */
  readonly keep?: boolean;
}

/** A readable key, "*" for the catch-all element, or packed bytes. */
export type KeyIn<Value> = Value | "*" | Uint8Array;

/** One element of a set. Protocols and classes are numbers. */
export interface SetEntry<Key extends readonly FieldType[] = readonly FieldType[], Value = FieldsValue<Key>> {
  readonly key: Value;
  /** The element's timeout. Absent if it does not expire. */
  readonly timeoutMs?: number;
  /** Time until it expires. Absent if it does not expire. */
  readonly leftMs?: number;
  /** Packets and bytes that matched the element. Only in sets with `counters`. */
  readonly counted?: Counted;
  readonly comment?: string;
}

/** One network of a set of networks, such as "192.0.2.0/24". */
export type NetworkEntry = SetEntry<readonly FieldType[], string>;

/** One element of a map. */
export interface MapEntry<
  Key extends readonly FieldType[] = readonly FieldType[],
  Data = FieldsValue<readonly FieldType[]>,
  Value = FieldsValue<Key>,
> extends SetEntry<Key, Value> {
  readonly data: Data;
}

/** Packets, and their bytes with headers of the network layer. */
export interface Counted {
  readonly packets: number;
  readonly bytes: number;
}

/** Throws TableError "invalid" if the set of a handle is no longer declared. */
export function checkFate(set: string, { gone }: SetFate): void {
  if (gone === undefined) return;
  throw new TableError("invalid", `set ${set} was ${gone}. Use the last return value of Table.set()`);
}

/** Options for one element. */
export interface ElementOptions {
  /**
   * For sets with `timeoutMs`: this element's own timeout. It starts with the call, which restarts the time of an existing element. Without it, an
   * element that is already desired keeps its remaining time, and a new one gets the set's timeout.
   */
  readonly timeoutMs?: number;
  /** Shown by nft; at most 128 bytes. Without it, an existing element keeps its comment. */
  readonly comment?: string;
}

/** Returns checked options. Throws FieldError. */
export function checkedOptions({ set, timeoutMs }: SetSpec, options: ElementOptions | undefined): ElementOptions {
  if (options === undefined) return NO_OPTIONS;
  check(elementOptions, `set ${set}, options`, options);
  if (timeoutMs !== undefined || options.timeoutMs === undefined) return options;
  throw new FieldError(
    `set ${set}, options, timeoutMs`,
    "a set that was declared with timeoutMs (0 is enough)",
    options.timeoutMs,
  );
}

const NO_OPTIONS: ElementOptions = {};
