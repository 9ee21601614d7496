/**
 * `@nft-proxier/nft`: nf_tables tables from a Node program. Declare chains, rules, sets and maps, then call `apply()`, which changes
 * the kernel's table to match in one atomic transaction.
 *
 * @module
 */
import type { Kernel } from "./kernel/kernel.js";
import type { ConnectionOptions } from "./kernel/netlink-connection.js";
import { NftKernel } from "./kernel/nft-kernel.js";
import { kernelOptions, printOptions } from "./statements/checks.js";
import { check, within } from "./language/fields/field-error.js";
import { printRule as print } from "./statements/lower-rule.js";
import { ownProgramName } from "./kernel/own-program-name.js";
import type { Rule, Statement } from "./statements/rule.js";
import type { SetSpec } from "./handles/set-spec.js";
import type { TableOptions } from "./sync/apply-result.js";

export * from "./kernel/constants.js";
export { KernelError, type Fault, type KernelErrorCode } from "./kernel/errors.js";
export type * from "./kernel/kernel.js";
export { type ListedRule, listRules, TableError, type TableErrorCode } from "./engine-exports.js";
export type * from "./public-types.js";
// The kernel interface has a type of this name, too.
export type { BaseChain } from "./public-types.js";
export { DataMap, NetworkSet, ObjectMap, PlainSet, RangeSet, VerdictMap, type ElementsOf } from "./handles/elements.js";
export { DynamicMap, DynamicSet } from "./handles/filled-sets.js";
export { CountingObject, NamedObject, type ObjectOf, type ObjectUse, type QuotaUse } from "./handles/named-objects.js";
export type { Counted, ElementOptions, MapEntry, NetworkEntry, SetEntry, SetSpec } from "./handles/set-spec.js";
export type { FieldRange, FieldsRange } from "./handles/range-codec.js";
export {
  FieldError,
  type FieldsValue,
  type FieldValues,
  type Protocol,
  type ProtocolName,
} from "./handles/field-codec.js";
export { Table } from "./table.js";
export { TableWatch } from "./table-watch.js";
export type { Features } from "./sync/features.js";
export type { Insertion } from "./sync/inserted-rules.js";

export interface KernelOptions extends ConnectionOptions {
  /**
   * The name that the kernel reports with each commit to listeners (`nft monitor`, `TableWatch`). At most 15 bytes. Default: `process.title`,
   * or the name of the program's main file if the title is Node's own.
   */
  readonly programName?: string;
}

/**
 * Opens nf_tables of a network namespace (the process's own, or `netns`). Needs CAP_NET_ADMIN there. Rejects with FieldError, or KernelError
 * "addon", "no-permission", "no-nftables" or "system" (no such namespace).
 */
export async function openKernel(options: KernelOptions = {}): Promise<Kernel> {
  check(kernelOptions, "options", options);
  return NftKernel.open({ ...options, programName: options.programName ?? ownProgramName() });
}

export interface PrintOptions extends Pick<TableOptions, "family"> {
  /** The sets that the rule refers to, because their keys' types are needed. */
  readonly sets?: readonly SetSpec[];
}

/** Returns a rule, or statements, in nft's syntax. Throws FieldError. */
export function printRule(rule: Rule | readonly Statement[], options: PrintOptions): string {
  const { family, sets = [] } = options;
  check(printOptions, "options", options);
  const whole: Rule = Array.isArray(rule) ? { statements: rule as readonly Statement[] } : (rule as Rule);
  return within("rule", () => print(whole, { family, setSpec: (name) => sets.find(({ set }) => set === name) }));
}
