/** The declarative Table: any program can own an nf_tables table with it. */
export { DeclaredTable, type TableDeclarations } from "./declared-table.js";
export { TableError } from "./errors.js";
export { probeRejectPrerouting, type Features } from "./features.js";
export { joinResults } from "./results.js";
export { Table } from "./table.js";
export { FIELD_BYTES } from "./types.js";
export type {
  Action,
  ApplyResult,
  ChainSpec,
  Clock,
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
} from "./types.js";
