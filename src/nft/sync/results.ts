/** The results and errors of an apply. */
import { strideOf } from "../kernel/element-batch.js";
import { KernelError, type KernelErrorCode } from "../kernel/errors.js";
import type { CommitOptions, CommitResult, Family, Kernel } from "../kernel/kernel.js";
import { joined } from "./drift.js";
import { noCounts, type Counts, type Plan, type PlannedOp } from "./plan.js";
import type { ApplyResult, FaultyObject } from "./apply-result.js";

/** Returns the sum of two counts. */
export function joinCounts(a: Readonly<Counts>, b: Readonly<Counts>): Counts {
  const sum = noCounts();
  for (const kind of Object.keys(sum) as (keyof Counts)[])
    sum[kind] = { add: a[kind].add + b[kind].add, delete: a[kind].delete + b[kind].delete };
  return sum;
}

/** Joins the results of two consecutive applies or transactions. The later one tells the remaining work. */
export function joinResults(a: ApplyResult, b: ApplyResult): ApplyResult {
  const drift = joined(a.drift, b.drift);
  const resynced = a.resynced ?? b.resynced;
  return {
    ...b,
    transactions: a.transactions + b.transactions,
    operations: joinCounts(a.operations, b.operations),
    total: a.total + b.total,
    bytes: a.bytes + b.bytes,
    kernelNs: a.kernelNs + b.kernelNs,
    encodeNs: a.encodeNs + b.encodeNs,
    resynced,
    drift,
  };
}

/** Commits the plan in one transaction, or none if there is nothing to do. Throws TableError. @param table its name, for errors. */
export async function commitPlan(
  kernel: Kernel,
  table: string,
  plan: Plan,
  options: CommitOptions = {},
): Promise<ApplyResult> {
  const { ops, counts: operations } = plan;
  const batch = ops.map(({ op }) => op);
  let commit: CommitResult | undefined;
  try {
    if (batch.length > 0) commit = await kernel.commit(batch, options);
  } catch (error) {
    throw toTableError(table, error, ops);
  }
  plan.settle();
  const total = Object.values(operations).reduce((sum, { add, delete: deleted }) => sum + add + deleted, 0);
  return {
    transactions: commit === undefined ? 0 : 1,
    operations,
    total,
    bytes: commit?.bytes ?? 0,
    kernelNs: commit?.kernelNs ?? 0,
    encodeNs: commit?.encodeNs ?? 0,
  };
}

/** Expressions that are part of nf_tables itself (net/netfilter/nf_tables_core.c). Each of the others has a module. */
const BUILT_IN = /^(bitwise|byteorder|cmp|counter|dynset|exthdr|immediate|last|lookup|meta|opaque|payload|range|rt)$/;

/** The module of an expression. Two expressions have one for each family. */
function moduleOf(type: string, family: Family): string {
  if (type !== "reject" && type !== "fib") return `nft_${type}`;
  return `nft_${type}_${{ ip: "ipv4", ip6: "ipv6" }[family as string] ?? family}`;
}

/** A new rule is refused with ENOENT if the kernel lacks one of its expressions, or an object that it names. */
function hintFor(op: PlannedOp["op"], errno: string): string | undefined {
  if (errno !== "ENOENT" || op.op !== "add" || op.kind !== "rule") return undefined;
  const types = [...new Set(op.exprs.map(({ type }) => type))].filter((type) => !BUILT_IN.test(type));
  const lacking = types.map((type) => `${type} (module ${moduleOf(type, op.family)})`);
  return lacking.length === 0 ? undefined : `this kernel may lack ${lacking.join(" or ")}`;
}

/** Translates the kernel's faults to our objects. */
function faultyObjects(error: KernelError, ops: readonly PlannedOp[]): FaultyObject[] {
  return error.faults.flatMap((fault) => {
    const planned = ops[fault.op];
    if (planned === undefined) return [];
    const { op, origin } = planned;
    const { errno, element, text } = fault;
    const hint = hintFor(op, errno);
    const object = { ...origin, operation: `${op.op} ${op.kind}`, errno, position: fault.op, text, hint };
    if (op.kind !== "elements" || op.op === "flush" || origin.kind !== "element" || element === undefined)
      return [object];
    const { bytes, keyLen } = op.elements;
    const at = element * strideOf(op.elements);
    return [{ ...object, key: bytes.slice(at, at + keyLen) }];
  });
}

/** "busy": the table was changed while `apply()` or `load()` runs. Await that call first. The other codes are those of the kernel interface. */
export type TableErrorCode = KernelErrorCode | "busy";

/**
 * `apply()`, `load()` or `destroy()` failed. Nothing of the transaction was committed. The desired state is kept, so a later `apply()` tries again.
 * `code` "invalid" also means that the desired state contradicts itself (a rule refers to a chain that is not desired).
 */
export class TableError extends Error {
  override readonly name = "TableError";
  /** Netlink port of the program that owns the table, if this is the reason. A retry succeeds after that program ends. */
  readonly owner: number | undefined;
  constructor(
    readonly code: TableErrorCode,
    message: string,
    /** The objects of the refused operations, if the kernel named them. */
    readonly faulty: readonly FaultyObject[] = [],
    options: { readonly cause?: unknown; readonly owner?: number | undefined } = {},
  ) {
    super(message, options);
    this.owner = options.owner;
  }
}

/** @param ops the operations of the refused transaction. */
export function toTableError(table: string, error: unknown, ops: readonly PlannedOp[] = []): TableError {
  if (error instanceof TableError) return error;
  if (!(error instanceof KernelError))
    return new TableError("system", `${table}: ${String(error)}`, [], { cause: error });
  const faulty = faultyObjects(error, ops);
  const objects = faulty.map(describeFault).join("; ");
  return new TableError(error.code, `${table}: ${error.message}${objects === "" ? "" : ` (${objects})`}`, faulty, {
    cause: error,
  });
}

/** Errors because an object exists, does not exist, is in use, or has an owner. */
const DRIFT = new Set(["ENOENT", "EEXIST", "EBUSY", "ENFILE", "EPERM"]);

/** Whether the error means that the kernel's state is not the observed one. */
export function isDrift({ code, faulty }: TableError): boolean {
  return code === "not-found" || (code === "refused" && faulty.some(({ errno }) => DRIFT.has(errno)));
}

/** Describes a refusal: "delete chain __chain3: ENOENT". */
export function describeRefusal({ operation, errno, text, hint, ...fault }: FaultyObject): string {
  const where = fault.chain ?? fault.set ?? fault.object ?? "";
  return [`${operation ?? fault.kind} ${where}: ${errno}`, text, hint].filter((part) => part !== undefined).join(", ");
}

function describeFault(fault: FaultyObject): string {
  const { chain, ruleIndex: rule, set, object, key } = fault;
  const element = key && `0x${Buffer.from(key).toString("hex")}`;
  const where = Object.entries({ chain, rule, set, object, element }).flatMap(([kind, name]) =>
    name === undefined ? [] : `${kind} ${name}`,
  );
  const isElsewhere = fault.errno === "EOPNOTSUPP" && rule !== undefined;
  const why = isElsewhere
    ? "an action of it, or of a chain that it leads to, does not work at this hook or with this kernel"
    : fault.hint;
  const reason = [fault.errno, fault.text, why].filter((part) => part !== undefined).join(", ");
  return `${where.length === 0 ? fault.kind : where.join(", ")}: ${reason}`;
}
