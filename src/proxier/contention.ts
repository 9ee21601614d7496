/**
 * Detects another process that keeps undoing our writes while we undo its writes. It is a second proxier on this node,
 * or a program that treats our tables as its own. Neither can win, so the contention is logged once until it is over.
 *
 * Neither side gives way. Only people can decide which of two proxiers is the wrong one, and one that gave way silently
 * would stop serving without any sign. Both keep writing changes of services and repair at their own pace. The last
 * write is active.
 */
import type { IpFamily } from "../base/ip.js";
import type { ForeignChange } from "../table/table-exports.js";
import type { ProxierContext } from "./proxier-context.js";

/** Names of proxiers that write through their own socket. (kube-proxy runs `nft`, each time with a new socket.) */
const PROXIERS: ReadonlySet<string> = new Set(["nft-proxier", "kube-proxy"]);
/**
 * Number of repairs after changes through one socket of such a process. One is no proof, because `run --once` writes
 * and exits. The second follows our repair, so the process has undone that.
 */
const ROUNDS = 2;
/**
 * Repairs of one family in a row, whatever their cause, that must continue for LONG_MS. A reload of a firewall ends
 * sooner.
 */
const MANY_REPAIRS = 5;
const LONG_MS = 10_000;
/** Contention ends after this long without another process's change, ms. Rounds further apart are unrelated. */
const QUIET_MS = 60_000;
/** Interval between checks that the other process still has its socket, ms. */
const CHECK_MS = 1000;
/** Maximum number of participants to remember. */
const MAX_PEERS = 16;
const MAX_NAMES = 5;

/**
 * Returns advice on a program that changes our tables. kube-proxy's nftables mode looks like any other user of `nft`:
 * only that program is visible, started once per change.
 * @param by the processes, as text: "nft (pid 12)".
 */
function remedyFor(by: readonly string[]): string {
  const keep = "keep that program from the tables named kube-proxy, or start with `--own-table` (Linux 6.9)";
  if (!by.some((name) => name.startsWith("nft "))) return keep;
  return `nft may be kube-proxy in mode nftables. If kube-proxy runs on this node, end it; otherwise ${keep}`;
}

/** The process that changed a table. */
export type Writer = Pick<ForeignChange, "portId" | "process">;

/** Queries to the system. */
export interface PeerLookup {
  /** Whether the netlink socket is open. Resolves to undefined if that is unknown. Never rejects. */
  portOpen(portId: number): Promise<boolean | undefined>;
  /** Returns the process of a thread. Never rejects. */
  processOf(thread: number, name: string): Promise<number>;
}

interface ContentionOptions extends ProxierContext {
  readonly lookup: PeerLookup;
}

interface Rounds {
  readonly first: number;
  count: number;
  last: number;
}

/** Covers all families: two proxiers collide in each of them, but that is reported once. */
export class Contention {
  readonly #options: ContentionOptions;
  /** By family and port of a proxier, and by family alone. */
  readonly #rounds = new Map<string, Rounds>();
  /** The participants by port, with whether their socket has been seen open. */
  readonly #peers = new Map<number, { readonly writer: Writer; open: boolean }>();
  #began: number | undefined;
  #amongProxiers = false;
  #last = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: ContentionOptions) {
    this.#options = options;
  }

  /** Another process changed a table. */
  noticed(): void {
    this.#last = this.#options.clock.now();
  }

  /**
   * The changes of these writers to a family's table have been undone. Returns whether this repair belongs to
   * contention that has already been reported.
   */
  repaired(family: IpFamily, writers: readonly Writer[]): boolean {
    const now = this.#options.clock.now();
    this.#last = now;
    for (const [key, { last }] of this.#rounds) if (now - last >= QUIET_MS) this.#rounds.delete(key);
    const known = this.#began !== undefined;
    const rivals = writers.filter((writer) => this.#isRival(family, writer, now));
    this.#amongProxiers ||= rivals.length > 0;
    const { first, count } = this.#round(family, now);
    const many = count > MANY_REPAIRS && now - first >= LONG_MS;
    if (rivals.length > 0 || many) this.#join(rivals.length > 0 ? rivals : writers);
    return known;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #join(writers: readonly Writer[]): void {
    for (const writer of writers) {
      if (this.#peers.size < MAX_PEERS && !this.#peers.has(writer.portId))
        this.#peers.set(writer.portId, { writer, open: false });
    }
    if (this.#began !== undefined) return;
    this.#began = this.#last;
    void this.#begin();
  }

  #isRival(family: IpFamily, { portId, process }: Writer, now: number): boolean {
    if (process === undefined || !PROXIERS.has(process.name)) return false;
    return this.#round(`${family} ${portId}`, now).count >= ROUNDS;
  }

  #round(key: string, now: number): Rounds {
    const rounds = this.#rounds.get(key) ?? { first: now, count: 0, last: now };
    this.#rounds.set(key, rounds);
    rounds.last = now;
    rounds.count++;
    return rounds;
  }

  async #begin(): Promise<void> {
    const { log, observers } = this.#options;
    const [by] = await Promise.all([this.#names(), this.#seeOpen()]);
    if (this.#closed) return;
    const hint = this.#amongProxiers
      ? "two proxiers serve this node, and the rules that were written last apply. End one of them"
      : remedyFor(by);
    log.error({ by, pid: process.pid, hint }, "tables contended by another process");
    for (const observer of observers) observer.contended?.({ by, hint });
    this.#checkLater();
  }

  async #names(): Promise<string[]> {
    const names = [...this.#peers.values()].slice(0, MAX_NAMES).map(async ({ writer: { process: other } }) => {
      if (other === undefined) return "a process that the kernel does not name";
      return `${other.name} (pid ${await this.#options.lookup.processOf(other.pid, other.name)})`;
    });
    return [...new Set(await Promise.all(names))];
  }

  #checkLater(): void {
    this.#timer = setTimeout(() => void this.#check(), CHECK_MS);
    this.#timer.unref();
  }

  /**
   * A process that exits closes its socket. If its socket has never been seen open (`nft`), only its changes show that
   * it exists.
   */
  async #check(): Promise<void> {
    const gone = await this.#seeOpen();
    if (this.#closed) return;
    if (gone) this.#end("its netlink socket is closed");
    else if (this.#options.clock.now() - this.#last >= QUIET_MS) this.#end("it made no changes for a minute");
    else this.#checkLater();
  }

  /** Records which sockets are open. Returns true if all those that were open are now closed. */
  async #seeOpen(): Promise<boolean> {
    const { lookup } = this.#options;
    let seen = false;
    let open = false;
    for (const [portId, peer] of [...this.#peers]) {
      const now = await lookup.portOpen(portId);
      if (now === true) peer.open = true;
      seen ||= peer.open;
      // If its state is no longer known, it may still be open.
      open ||= peer.open && now !== false;
    }
    return seen && !open;
  }

  #end(reason: string): void {
    const { log, clock, observers } = this.#options;
    const seconds = Math.round((clock.now() - (this.#began ?? 0)) / 1000);
    this.#began = undefined;
    this.#amongProxiers = false;
    this.#peers.clear();
    this.#rounds.clear();
    log.info({ reason, seconds }, "contention ended");
    for (const observer of observers) observer.uncontended?.();
  }
}
