import { constants } from "node:os";

/** An operation of a batch that the kernel rejected. */
export interface Fault {
  /** Index into the `ops` that were passed to `commit`. */
  readonly op: number;
  /** For an `elements` operation: index of the rejected record, if the kernel names it. */
  readonly element?: number;
  /** Symbolic errno: "ENOENT". */
  readonly errno: string;
  /** The kernel's extended-ACK text, if there is one. */
  readonly text?: string;
}

/** Kind of failure. Callers must decide by this code, never by the message. */
export type KernelErrorCode =
  /** The kernel rejected the batch, because of the operations in `faults`. No part of it is active. */
  | "refused"
  /** The generation was not the expected one (ERESTART). Read again. */
  | "stale"
  /** The outcome of a commit is unknown (ENOBUFS, a dead socket). Read again. */
  | "unknown-outcome"
  /** No CAP_NET_ADMIN in the namespace's user namespace. */
  | "no-permission"
  /** The kernel has no nf_tables. */
  | "no-nftables"
  /** The kernel has no ctnetlink. */
  | "no-conntrack"
  /** The batch does not fit in the send buffer, which cannot grow without CAP_NET_ADMIN in the initial user namespace. */
  | "too-large"
  /** An argument cannot be encoded. The message names operation and field. */
  | "invalid"
  /** A dump was interrupted too often. */
  | "interrupted"
  /** The object to read does not exist. */
  | "not-found"
  /** The addon could not be loaded. */
  | "addon"
  /** A method was called after close(). */
  | "closed"
  /** Any other system error, which `errno` names. */
  | "system";

/** An error of the kernel interface. */
export class KernelError extends Error {
  override readonly name = "KernelError";
  constructor(
    readonly code: KernelErrorCode,
    message: string,
    readonly details: {
      /** The failed action: "commit", "dump rules", "open". */
      readonly action: string;
      /** Symbolic errno, if there was one. */
      readonly errno?: string;
      readonly faults?: readonly Fault[];
      readonly cause?: unknown;
    },
  ) {
    super(message, { cause: details.cause });
  }

  get errno(): string | undefined {
    return this.details.errno;
  }
  get faults(): readonly Fault[] {
    return this.details.faults ?? [];
  }
}

/** Whether the kernel answered with one of these errnos ("ENOENT"). */
export function isErrno(error: unknown, ...errnos: readonly string[]): boolean {
  return error instanceof KernelError && error.errno !== undefined && errnos.includes(error.errno);
}

/** Returns the result, or `fallback` if the kernel answered with one of these errnos. Throws any other error. */
export async function unlessErrno<T, F>(errnos: readonly string[], fallback: F, result: Promise<T>): Promise<T | F> {
  try {
    return await result;
  } catch (error) {
    if (isErrno(error, ...errnos)) return fallback;
    throw error;
  }
}

const NAMES = new Map(Object.entries(constants.errno).map(([name, number]) => [number, name]));
/** Linux errnos that netfilter uses and Node's table lacks. */
NAMES.set(85, "ERESTART").set(524, "ENOTSUPP");
/** The same number is also EWOULDBLOCK. */
NAMES.set(constants.errno.EAGAIN, "EAGAIN");

/** Returns the symbolic name of a Linux errno, or "E<number>" if it is unknown. */
export function errnoName(errno: number): string {
  return NAMES.get(Math.abs(errno)) ?? `E${Math.abs(errno)}`;
}
