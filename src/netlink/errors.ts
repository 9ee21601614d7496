import { constants } from "node:os";

/** Where in a batch the kernel found fault. */
export interface Fault {
  /** Index into the `ops` that were passed to `commit`. */
  readonly op: number;
  /** For an `elements` operation: index of the record at fault, when the kernel named it. */
  readonly element?: number;
  /** Symbolic errno: "ENOENT". */
  readonly errno: string;
  /** The kernel's extended-ACK text, when it gave one. */
  readonly text?: string;
}

/** What went wrong, by code; callers switch on this and never on the message. */
export type KernelErrorCode =
  /** The kernel refused the batch; `faults` says where. Nothing of it is in force. */
  | "refused"
  /** The generation was not the expected one (ERESTART): read again. */
  | "stale"
  /** The outcome of a commit is not known (ENOBUFS, a dead socket): read again. */
  | "unknown-outcome"
  /** No CAP_NET_ADMIN in the namespace's user namespace. */
  | "no-permission"
  /** The kernel has no nf_tables. */
  | "no-nftables"
  /** The kernel has no ctnetlink. */
  | "no-conntrack"
  /** The batch does not fit the socket's send buffer, and it cannot be raised without CAP_NET_ADMIN in the first user namespace. */
  | "too-large"
  /** An argument that cannot be encoded; the message names operation and field. */
  | "invalid"
  /** A dump was interrupted more often than is sensible. */
  | "interrupted"
  /** The object to read is not there. */
  | "not-found"
  /** The addon could not be loaded. */
  | "addon"
  /** Used after close(). */
  | "closed"
  /** Any other system error; `errno` says which. */
  | "system";

/** An error of the kernel port. */
export class KernelError extends Error {
  override readonly name = "KernelError";
  constructor(
    readonly code: KernelErrorCode,
    message: string,
    readonly details: {
      /** What was being done: "commit", "dump rules", "open". */
      readonly action: string;
      /** Symbolic errno, where there was one. */
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

const NAMES = new Map(Object.entries(constants.errno).map(([name, number]) => [number, name]));
/** Linux errnos that netfilter uses and Node's table lacks. */
NAMES.set(85, "ERESTART").set(524, "ENOTSUPP");
/** Its other name is EWOULDBLOCK. */
NAMES.set(constants.errno.EAGAIN, "EAGAIN");

/** Symbolic name of a Linux errno, "E<number>" for an unknown one. */
export function errnoName(errno: number): string {
  return NAMES.get(Math.abs(errno)) ?? `E${Math.abs(errno)}`;
}
