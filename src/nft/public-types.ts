/** The types of the library's programs, which the proxier uses as well. */
export type { ElementSet } from "./elements/element-set.js";
export type { BaseChain, HookName, PriorityName } from "./language/hooks-and-priorities.js";
export type { FieldType } from "./language/fields/field-types.js";
export type { FieldName } from "./language/fields/packet-fields.js";
export type { ObjectName, ObjectSpec } from "./language/object-kinds.js";
export type { VerdictText } from "./language/verdicts.js";
export type { Comparison, Field, GeneratedField, KeyPart, MaskedField, ObjectKind } from "./language/vocabulary.js";
export type { Action } from "./statements/actions.js";
export type { FieldMatch } from "./statements/conditions.js";
export type { AddressSource, PortRange, PortSource } from "./statements/nat.js";
export type { ChainSpec, Rule, Statement } from "./statements/rule.js";
export type { CtDirectionName, DataSource } from "./statements/set-field.js";
export type * from "./sync/apply-result.js";
export type { TablePlan } from "./sync/plan-text.js";
export type { ForeignChange, WatchHandlers, WatchOptions } from "./table-watch.js";
