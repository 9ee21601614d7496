/** Logs writes. Logs each of them only on request, so that a rolling update does not fill the log. */
import type { Logger } from "../base/logger.js";
import type { IpFamily } from "../base/ip.js";

/** Interval between summaries of writes, ms. */
const SUMMARY_MS = 60_000;
/** A write that takes longer gets its own line, ms. */
const SLOW_MS = 1000;

/** One write that the kernel accepted, or for which nothing had to be written. */
interface LoggedWrite {
  readonly transactions: number;
  readonly operations: number;
  readonly bytes: number;
  readonly ms: number;
  readonly kernelMs: number;
  /** Time since its first change came, ms. */
  readonly latencyMs: number;
}

interface Sum {
  writes: number;
  transactions: number;
  operations: number;
  bytes: number;
  kernelMs: number;
  longestMs: number;
}

export class SyncLog {
  readonly #written = new Set<IpFamily>();
  readonly #sums = new Map<IpFamily, Sum>();
  /** When the first of the sums began, by performance.now(). */
  #since = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly log: Logger) {}

  /** Logs the first write of a family and slow ones, and with -v=2 all others. Without it, counts the others. */
  wrote(family: IpFamily, write: LoggedWrite): void {
    const { ms, kernelMs, latencyMs } = write;
    const fields = { family, ...write, ms: round(ms), kernelMs: round(kernelMs), latencyMs: round(latencyMs) };
    if (write.transactions === 0) return this.log.debug(fields, "nothing written");
    const isFirst = !this.#written.has(family);
    this.#written.add(family);
    if (isFirst || ms > SLOW_MS) this.log.info(fields, "synced");
    else if (this.log.isLevelEnabled("verbose")) this.log.verbose(fields, "synced");
    else this.#count(family, write);
  }

  /** Logs the counted writes. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#sums.size === 0) return;
    const sums = Array.from(this.#sums, ([family, { kernelMs, longestMs, ...counts }]) => {
      return [family, { ...counts, kernelMs: round(kernelMs), longestMs: round(longestMs) }] as const;
    });
    this.#sums.clear();
    const seconds = Math.round((performance.now() - this.#since) / 1000);
    this.log.info({ seconds, ...Object.fromEntries(sums) }, "recent writes");
  }

  #count(family: IpFamily, { transactions, operations, bytes, ms, kernelMs }: LoggedWrite): void {
    if (this.#timer === undefined) {
      this.#since = performance.now();
      this.#timer = setTimeout(() => this.flush(), SUMMARY_MS).unref();
    }
    const sum = this.#sums.get(family) ?? {
      writes: 0,
      transactions: 0,
      operations: 0,
      bytes: 0,
      kernelMs: 0,
      longestMs: 0,
    };
    this.#sums.set(family, sum);
    sum.writes++;
    sum.transactions += transactions;
    sum.operations += operations;
    sum.bytes += bytes;
    sum.kernelMs += kernelMs;
    sum.longestMs = Math.max(sum.longestMs, ms);
  }
}

function round(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
