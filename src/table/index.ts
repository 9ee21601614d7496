/** The declarative Table: any program can own an nf_tables table with it. The room's only public face. */
export { DeclaredTable, type TableDeclarations } from "./declared-table.js";
export { probeRejectPrerouting, type Features } from "./quirks.js";
export { printRule } from "./rules/statements.js";
export { protocolNumber } from "./rules/protocols.js";
export { FIELD_BYTES } from "./rules/types.js";
export type {
  Action,
  ApplyResult,
  ChainSpec,
  Clock,
  Drift,
  ElementSet,
  FaultyObject,
  Field,
  FieldType,
  Insertion,
  Match,
  OperationCounts,
  PortRange,
  Rule,
  SetSpec,
  Statement,
  TableOptions,
} from "./rules/types.js";
export { TableError } from "./sync/errors.js";
export { joinResults } from "./sync/results.js";
export { TableWatch, type ForeignChange, type WatchHandlers, type WatchOptions } from "./sync/watch.js";
export { Table } from "./table.js";
