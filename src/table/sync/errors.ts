import { KernelError, type KernelErrorCode } from "../../kernel/errors.js";
import type { FaultyObject } from "../rules/types.js";

/**
 * `apply()`, `load()` or `destroy()` failed. Nothing of the transaction is in force and what is wanted stays wanted, so that
 * a later `apply()` tries again. `code` is the kernel port's; "invalid" also stands for a wanted state that
 * contradicts itself (a rule that names a chain which is not wanted).
 */
export class TableError extends Error {
  override readonly name = "TableError";
  /** Netlink port of the program that owns the table, when that is why: it succeeds once that program has ended. */
  readonly owner: number | undefined;
  constructor(
    readonly code: KernelErrorCode,
    message: string,
    /** The objects whose operations were refused, when the kernel told. */
    readonly faulty: readonly FaultyObject[] = [],
    options: { readonly cause?: unknown; readonly owner?: number } = {},
  ) {
    super(message, options);
    this.owner = options.owner;
  }
}

/** A commit that failed, with the objects at fault. */
export class CommitFailure extends Error {
  constructor(
    readonly kernelError: KernelError,
    readonly faulty: readonly FaultyObject[],
  ) {
    super(kernelError.message, { cause: kernelError });
  }
}

/** Wraps anything that a kernel call threw. */
export function toTableError(table: string, error: unknown, faulty: readonly FaultyObject[] = []): TableError {
  if (error instanceof TableError) return error;
  if (!(error instanceof KernelError))
    return new TableError("system", `${table}: ${String(error)}`, faulty, { cause: error });
  const objects = faulty.map(describeFault).join("; ");
  return new TableError(error.code, `${table}: ${error.message}${objects === "" ? "" : ` (${objects})`}`, faulty, {
    cause: error,
  });
}

function describeFault(fault: FaultyObject): string {
  const where = [
    fault.chain !== undefined ? `chain ${fault.chain}` : undefined,
    fault.ruleIndex !== undefined ? `rule ${fault.ruleIndex}` : undefined,
    fault.set !== undefined ? `set ${fault.set}` : undefined,
    fault.key !== undefined ? `element 0x${Buffer.from(fault.key).toString("hex")}` : undefined,
  ].filter((part) => part !== undefined);
  return `${where.length === 0 ? fault.kind : where.join(", ")}: ${fault.errno}${fault.text === undefined ? "" : `, ${fault.text}`}`;
}
