/**
 * Detects another process that keeps undoing our writes while we undo its writes: a second proxier on this node, or a program that treats our
 * tables as its own. This is logged once until it is over.
 *
 * Neither side gives way. Only people can decide which of two proxiers is the wrong one, and one that gave way silently would stop serving
 * without any sign. Both keep writing changes of services and repair at their own pace. The last write is active.
 */
import type { ProxierContext } from "./proxier-context.js";

/** Repairs in a row, of all families together. A reload of a firewall needs fewer. */
const MANY_REPAIRS = 6;
/** Changes further apart than this are unrelated, ms. */
const QUIET_MS = 20_000;
/** Time after which the processes have been found in /proc, ms. */
const NAMED_MS = 1000;
const MAX_NAMES = 5;

/**
 * Returns advice on programs that change our tables. kube-proxy's nftables mode looks like any other user of `nft`: only that program is
 * visible, started once per change.
 * @param by the processes, as text: "nft (pid 12)".
 */
function remedyFor(by: readonly string[]): string {
  const isBy = (program: string): boolean => by.some((name) => name.startsWith(`${program} `));
  if (isBy("nft-proxier") || isBy("kube-proxy")) {
    return "two proxiers serve this node, and the rules that were written last apply. End one of them";
  }
  const keep = "keep that program from the tables named kube-proxy, or start with `--own-table` (Linux 6.9)";
  if (!isBy("nft")) return keep;
  return `nft may be kube-proxy in mode nftables. If kube-proxy runs on this node, end it; otherwise ${keep}`;
}

/** Covers all families: two proxiers collide in each of them, but that is reported once. */
export class Contention {
  #repairs = 0;
  /** The processes of the last repair. */
  #by: readonly string[] = [];
  #began: number | undefined;
  #last = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #report: NodeJS.Timeout | undefined;

  constructor(private readonly context: ProxierContext) {}

  /** Another process changed a table. */
  noticed(): void {
    this.#last = this.context.clock.now();
  }

  /** Changes of these processes have been undone. Returns whether this repair belongs to contention that has already been reported. */
  repaired(by: readonly string[]): boolean {
    this.noticed();
    this.#repairs++;
    this.#by = by;
    this.#timer ??= this.#checkAfter(QUIET_MS);
    const known = this.#began !== undefined;
    if (!known && this.#repairs >= MANY_REPAIRS) {
      this.#began = this.#last;
      this.#report = setTimeout(() => this.#begin(), NAMED_MS).unref();
    }
    return known;
  }

  close(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#report);
  }

  #begin(): void {
    const { log, observers } = this.context;
    const by = this.#by.slice(0, MAX_NAMES);
    const hint = remedyFor(by);
    log.error({ by, pid: process.pid, hint }, "tables contended by another process");
    for (const observer of observers) observer.contended?.({ by, hint });
  }

  #checkAfter(ms: number): NodeJS.Timeout {
    return setTimeout(() => {
      const rest = this.#last + QUIET_MS - this.context.clock.now();
      if (rest > 0) this.#timer = this.#checkAfter(rest);
      else this.#end();
    }, ms).unref();
  }

  #end(): void {
    this.#timer = undefined;
    this.#repairs = 0;
    if (this.#began === undefined) return;
    const { clock, log, observers } = this.context;
    log.info({ seconds: Math.round((clock.now() - this.#began) / 1000) }, "contention ended");
    this.#began = undefined;
    for (const observer of observers) observer.uncontended?.();
  }
}
