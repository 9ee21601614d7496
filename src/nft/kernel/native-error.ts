import { errnoName, KernelError, type Fault, type KernelErrorCode } from "./errors.js";

/** An error that the addon throws or rejects with. */
export interface NativeError extends Error {
  readonly code: KernelErrorCode;
  readonly action: string;
  /** 0 for none. */
  readonly errno: number;
  readonly faults: readonly {
    readonly op: number;
    readonly element?: number;
    readonly errno: number;
    readonly text?: string;
  }[];
}

function isNativeError(error: unknown): error is NativeError {
  return error instanceof Error && "action" in error && "faults" in error && Array.isArray(error.faults);
}

/** Converts the addon's errors to KernelErrors. Returns any other error unchanged. */
export function translate(error: unknown, action: string): unknown {
  if (!isNativeError(error)) return error;
  const faults = error.faults.map((fault): Fault => ({ ...fault, errno: errnoName(fault.errno) }));
  return new KernelError(error.code, error.message, {
    // The addon's check of arguments does not know the action.
    action: error.action === "nf_tables" ? action : error.action,
    ...(error.errno !== 0 && { errno: errnoName(error.errno) }),
    ...(faults.length !== 0 && { faults }),
  });
}
