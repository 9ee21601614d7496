/**
 * `nft-proxier/table`: nf_tables tables from a Node program. Declare chains, rules, sets and maps; `apply()` brings the kernel
 * there in one atomic transaction.
 *
 * @module
 */
import type { Kernel } from "../netlink/kernel.js";
import type { ConnectionOptions } from "../netlink/netlink-connection.js";
import { NftKernel } from "../netlink/nft-kernel.js";
import { printRule as printFullRule } from "../table/table-exports.js";
import { check, checkRule, kernelOptions, printOptions } from "./checks.js";
import type { SetSpec } from "./elements.js";
import { programName } from "./program-name.js";
import { fullRule, type Rule, type Statement } from "./rules.js";
import type { TableOptions } from "./owned-table.js";

export { Hook, Priority } from "../netlink/constants.js";
export { KernelError, type Fault, type KernelErrorCode } from "../netlink/errors.js";
export type * from "../netlink/kernel.js";
export { TableError, type TableErrorCode } from "../table/table-exports.js";
export type {
  Action,
  AddressTypeName,
  ApplyResult,
  CtDirectionName,
  CtStateName,
  Drift,
  FaultyObject,
  Features,
  Field,
  FieldType,
  ForeignChange,
  Match,
  OperationCounts,
  PortRange,
  TcpFlagName,
  WatchOptions,
} from "../table/table-exports.js";
export {
  DataMap,
  DynamicSet,
  NetworkSet,
  PlainSet,
  VerdictMap,
  type ElementOptions,
  type ElementsOf,
  type SetSpec,
} from "./elements.js";
export { FieldError, type FieldsValue, type FieldValues, type Protocol, type ProtocolName } from "./field-codec.js";
export {
  Table,
  TableWatch,
  type ApplyOptions,
  type Insertion,
  type TableOptions,
  type WatchHandlers,
} from "./owned-table.js";
export type { BaseChain, ChainSpec, HookName, PriorityName, Rule, Statement } from "./rules.js";
export type { VerdictText } from "./verdicts.js";

export interface KernelOptions extends ConnectionOptions {
  /**
   * Name that the kernel tells listeners to nf_tables events (`nft monitor`, `TableWatch`) with each commit; at most 15 bytes. Default: the
   * program's, from `process.title` or, where that is Node's own, the name of its main file.
   */
  readonly programName?: string;
}

/**
 * Opens nf_tables of a network namespace (the process's own, or `netns`). Needs CAP_NET_ADMIN there. Fails with FieldError, or KernelError
 * "addon", "no-permission", "no-nftables" or "system" (no such namespace).
 */
export async function openKernel(options: KernelOptions = {}): Promise<Kernel> {
  check(kernelOptions, "options", options);
  return NftKernel.open({ ...options, programName: options.programName ?? programName() });
}

export interface PrintOptions extends Pick<TableOptions, "family"> {
  /** Sets that the rule names, for the types of their keys. */
  readonly sets?: readonly SetSpec[];
}

/** A rule, or statements of one, as nft's own text. Throws FieldError, and RangeError for what no table of the family can hold. */
export function printRule(rule: Rule | readonly Statement[], options: PrintOptions): string {
  const { family, sets = [] } = options;
  check(printOptions, "options", options);
  const whole: Rule = Array.isArray(rule) ? { statements: rule as readonly Statement[] } : (rule as Rule);
  checkRule("rule", whole, family);
  return printFullRule(fullRule("rule", whole), { family, setSpec: (name) => sets.find(({ set }) => set === name) });
}
