/**
 * Another process that keeps undoing what we write, as we undo what it writes: a second proxier on this node, or a program that takes
 * our tables for its own. None of them can win, so it is said once until it is over.
 *
 * Neither cedes: which of two proxiers is the wrong one only people can tell, and one that gave way silently would serve nothing
 * without a sign of it. Both go on writing changes of services, and repair as their pace allows; what was written last is in force.
 */
import type { IpFamily } from "../base/ip.js";
import type { ForeignChange } from "../table/table-exports.js";
import type { ProxierContext } from "./proxier-context.js";

/** How proxiers that write through a socket of their own are called (kube-proxy starts `nft`, each time with a socket of its own). */
const PROXIERS: ReadonlySet<string> = new Set(["nft-proxier", "kube-proxy"]);
/**
 * Repairs of what one socket of such a process did. One is no proof: `run --once` writes, and ends. The second one follows our repair: it
 * has undone that.
 */
const ROUNDS = 2;
/** Repairs of one family in a row, whoever made them necessary, that go on for so long, ms: who reloads a firewall is done sooner. */
const MANY_REPAIRS = 5;
const LONG_MS = 10_000;
/** Without another process's change for this long it is over; rounds that are further apart have nothing to do with each other, ms. */
const QUIET_MS = 60_000;
/** Between two looks whether the other process still has its socket, ms. */
const LOOK_MS = 1000;
/** Kept of the processes that take part. */
const MAX_PEERS = 16;
const MAX_NAMES = 5;

/**
 * What to do about a program that changes our tables. kube-proxy's nftables mode cannot be told from any other user of `nft`: what is seen is that
 * program, started for each change.
 * @param by who did it, in words: "nft (pid 12)".
 */
export function remedyFor(by: readonly string[]): string {
  const keep = "keep that program from the tables named kube-proxy, or start with --own-table (Linux 6.9)";
  if (!by.some((name) => name.startsWith("nft "))) return keep;
  return `kube-proxy in mode nftables writes by nft: end it where it runs on this node; otherwise ${keep}`;
}

/** Who changed a table. */
export type Writer = Pick<ForeignChange, "portId" | "process">;

/** What is asked of the system. */
export interface PeerLookup {
  /** Whether the netlink socket is open; undefined: cannot be told. Never rejects. */
  portOpen(portId: number): Promise<boolean | undefined>;
  /** The process that a thread belongs to. Never rejects. */
  processOf(thread: number, name: string): Promise<number>;
}

export interface ContentionOptions extends ProxierContext {
  readonly lookup: PeerLookup;
}

interface Rounds {
  readonly first: number;
  count: number;
  last: number;
}

/** Of all families: two proxiers meet in each of them, and that is one thing to say. */
export class Contention {
  readonly #options: ContentionOptions;
  /** By family and port of a proxier, and by family alone. */
  readonly #rounds = new Map<string, Rounds>();
  /** By port, those that take part; and whether their socket has been seen open. */
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

  /** What these writers did to a family's table has been undone. Returns whether that is one repair of many, and has been said. */
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
      ? "two proxiers serve this node, and packets follow the one that wrote last: end one of them"
      : remedyFor(by);
    log.error({ by, pid: process.pid, hint }, "tables contended by another process");
    for (const observer of observers) observer.contended?.({ by, hint });
    this.#lookLater();
  }

  async #names(): Promise<string[]> {
    const names = [...this.#peers.values()].slice(0, MAX_NAMES).map(async ({ writer: { process: other } }) => {
      if (other === undefined) return "a process that the kernel does not name";
      return `${other.name} (pid ${await this.#options.lookup.processOf(other.pid, other.name)})`;
    });
    return [...new Set(await Promise.all(names))];
  }

  #lookLater(): void {
    this.#timer = setTimeout(() => void this.#look(), LOOK_MS);
    this.#timer.unref();
  }

  /** A process that ends takes its socket along. One whose socket has never been seen (`nft`) is known by its changes alone. */
  async #look(): Promise<void> {
    const gone = await this.#seeOpen();
    if (this.#closed) return;
    if (gone) this.#end("its netlink socket is closed");
    else if (this.#options.clock.now() - this.#last >= QUIET_MS) this.#end("it has changed nothing for a minute");
    else this.#lookLater();
  }

  /** Notes whose sockets are open. True: all those are closed that have been open. */
  async #seeOpen(): Promise<boolean> {
    const { lookup } = this.#options;
    let seen = false;
    let open = false;
    for (const [portId, peer] of [...this.#peers]) {
      const now = await lookup.portOpen(portId);
      if (now === true) peer.open = true;
      seen ||= peer.open;
      // Where it cannot be told any more, it may be.
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
