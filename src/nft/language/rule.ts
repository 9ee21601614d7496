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
