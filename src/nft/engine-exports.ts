/**
 * `@nft-proxier/nft/engine`: the declarative Table as the proxier itself uses it. The only public module of this directory, and the only one that other rooms
 * import (test/unit/source-layout.test.ts).
 */
export type * from "./public-types.js";
export { Table, type TableDeclarations } from "./table.js";
export { probeRuleFeatures, type RuleFeatures } from "./sync/quirks.js";
export { hooksOf, prioritiesOf } from "./language/hooks-and-priorities.js";
export type { Target } from "./elements/verdict-registry.js";
export { bytesOf, expectedValue, protocolOf, readValue, writeValue } from "./language/fields/field-types.js";
export { type ListedRule, listRules } from "./printing/list-rules.js";
export { ruleText } from "./printing/rule-text.js";
export { elementText, keyText, type ListedSet, mappedText } from "./printing/set-text.js";
export { lowerRule, printRule } from "./statements/lower-rule.js";
export { commentData, isInterfaceName } from "./bytes/names-and-comments.js";
export { objectKey, OBJECTS } from "./language/object-kinds.js";
export type { FieldValues, Protocol, ProtocolName } from "./language/fields/field-types.js";
export type { ValueRange } from "./language/fields/values.js";
export type { SetSpec } from "./language/set-spec.js";
export type { Direction } from "./statements/set-field.js";
export * as vocabulary from "./language/vocabulary.js";
export { TABLE_DELETED } from "./sync/describe-changes.js";
export { describeRefusal, joinResults, TableError, type TableErrorCode } from "./sync/results.js";
export { TableWatch } from "./table-watch.js";
export { protocolNumber } from "../base/protocols.js";
