/**
 * Removes what kube-proxy's IPVS mode left (`ipvsPass`), while the proxier runs: looks, longer and longer apart, until nothing of
 * it is left, or for 15 min nothing but ipsets that a rule refers to. Connections have no time limit. One that carries nothing
 * ends in IPVS by itself (`ipvs.tcpTimeout`, 15 min), so what is counted after that is in use; and what waits takes no new
 * connections, and costs a look a minute. kube-proxy's own graceful termination has no limit either.
 */
import { counted } from "../../base/counted.js";
import { type IpFamily, parseCIDR, type Prefix } from "../../base/ip.js";
import { Backoff } from "../../base/backoff.js";
import type { Logger } from "../../base/logger.js";
import { reasonOf } from "../../base/unknown.js";
import type { NetlinkExchange } from "../../netlink/exchange.js";
import { ipvsKernel } from "./ipvs-kernel.js";
import { foundAny, type IpvsKernel, type IpvsPass, ipvsPass, isDone } from "./ipvs-pass.js";

/** Between looks: the first, and the longest, ms. The latter is kube-proxy's, between looks at terminating destinations. */
const FIRST_MS = 2000;
const LONGEST_MS = 60_000;
/** Looks at sets that are in use when all else is gone, 15 min: so long another process may keep rules of kube-proxy's from being removed. */
const BUSY_LOOKS = 20;
/** Of virtual servers that stay, so many are named. */
const NAMED = 10;

export interface IpvsRemovalOptions {
  readonly kernel: IpvsKernel;
  readonly log: Logger;
  /** Canonical CIDRs of `ipvs.excludeCIDRs`. */
  readonly excludeCIDRs?: readonly string[];
  /** Calls back once in so many ms; returns what cancels it. Default setTimeout. */
  readonly later?: (work: () => void, ms: number) => () => void;
}

/** For `IpvsRemovalOptions.kernel`; `root` is where /proc and /sys are. */
export function ipvsKernelOf(netlink: NetlinkExchange, root = "/"): IpvsKernel {
  return ipvsKernel(netlink, root);
}

/**
 * Removes all of it at once, open connections with it, and logs what was removed. True when nothing of kube-proxy's is left. Never
 * throws.
 */
export async function removeIpvsNow(options: IpvsRemovalOptions, families: readonly IpFamily[]): Promise<boolean> {
  const { kernel, log } = options;
  try {
    const excluded = prefixesOf(options.excludeCIDRs);
    const pass = await ipvsPass({ kernel, families: new Set(families), excluded, remove: "now" });
    if (!foundAny(pass)) return true;
    logStaying(log, pass);
    log.info(removedFields(pass), "leftovers of kube-proxy's IPVS mode removed");
    if (pass.busySets.length > 0) logBusy(log, pass);
    return isDone(pass);
  } catch (error) {
    logFailure(log, error);
    return false;
  }
}

/** The same of a running proxier, without a connection cut. */
export class IpvsRemoval {
  readonly #options: IpvsRemovalOptions;
  readonly #excluded: readonly Prefix[];
  readonly #later: NonNullable<IpvsRemovalOptions["later"]>;
  readonly #families = new Set<IpFamily>();
  #last: IpvsPass | undefined;
  /** By all looks since nothing was known. */
  #removed: Removed = NOTHING;
  readonly #backoff = new Backoff({ firstMs: FIRST_MS, longestMs: LONGEST_MS });
  #cancel: (() => void) | undefined;
  #work: Promise<void> = Promise.resolve();
  #busyLooks = 0;
  #failed = false;
  #closed = false;

  constructor(options: IpvsRemovalOptions) {
    this.#options = options;
    this.#excluded = prefixesOf(options.excludeCIDRs);
    this.#later = options.later ?? callLater;
  }

  /** Our rules of the family are in force: what IPVS has of it may go. Resolves after the first look. Never rejects. */
  async start(family: IpFamily): Promise<void> {
    this.#families.add(family);
    this.#backoff.reset();
    this.#cancel?.();
    await this.#look();
  }

  /** What waits, in words; undefined: nothing does. */
  get note(): string | undefined {
    if (this.#last === undefined || isDone(this.#last)) return undefined;
    const { waitingServers, openConnections, waitingAddresses, busySets } = this.#last;
    const parts = [
      ...(waitingServers > 0
        ? [`${counted(openConnections, "connection")} of ${counted(waitingServers, "virtual server")} of kube-proxy's`]
        : []),
      ...(waitingAddresses.length > 0 ? [`sockets of this node with ${counted(waitingAddresses.length, "VIP")}`] : []),
      ...(busySets.length > 0 ? [`ipsets in use: ${busySets.join(", ")}`] : []),
    ];
    return `IPVS is left to go on until it is idle: ${parts.join("; ")}`;
  }

  /** No look behind this. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel?.();
    await this.#work;
  }

  /** One look at a time, and the next one planned. */
  #look(): Promise<void> {
    const before = this.#work;
    this.#work = (async () => {
      await before;
      if (this.#closed) return;
      this.#cancel?.();
      const again = await this.#pass();
      if (again && !this.#closed) this.#cancel = this.#later(() => void this.#look(), this.#backoff.next());
    })();
    return this.#work;
  }

  /** Whether to look again. */
  async #pass(): Promise<boolean> {
    const { kernel, log } = this.#options;
    try {
      const families = this.#families;
      const pass = await ipvsPass({ kernel, families, excluded: this.#excluded, remove: "when-idle" });
      if (this.#last === undefined) this.#logFirst(pass);
      this.#last = pass;
      this.#removed = together(this.#removed, pass);
      this.#failed = false;
      return this.#goOn(pass);
    } catch (error) {
      if (!this.#failed) logFailure(log, error);
      this.#failed = true;
      return true;
    }
  }

  #logFirst(pass: IpvsPass): void {
    const { log } = this.#options;
    if (!foundAny(pass)) return;
    logStaying(log, pass);
    if (isDone(pass)) return;
    const { waitingServers: virtualServers, openConnections: connections, waitingAddresses, busySets } = pass;
    const waiting = { virtualServers, connections, addresses: waitingAddresses.length, ipsets: busySets.length };
    log.info(
      { ...removedFields(pass), waiting },
      "leftovers of kube-proxy's IPVS mode: what is idle was removed; the rest goes with its last connection",
    );
  }

  #goOn(pass: IpvsPass): boolean {
    const { log } = this.#options;
    if (isDone(pass)) {
      if (removedAny(this.#removed)) {
        log.info(removedFields(this.#removed), "leftovers of kube-proxy's IPVS mode removed");
      }
      // What another family brings is counted by itself.
      this.#last = undefined;
      this.#removed = NOTHING;
      return false;
    }
    const onlySets = pass.waitingServers === 0 && pass.waitingAddresses.length === 0;
    this.#busyLooks = onlySets ? this.#busyLooks + 1 : 0;
    if (this.#busyLooks < BUSY_LOOKS) return true;
    logBusy(log, pass);
    return false;
  }
}

function callLater(work: () => void, ms: number): () => void {
  const timer = setTimeout(work, ms);
  timer.unref();
  return () => clearTimeout(timer);
}

function prefixesOf(cidrs: readonly string[] = []): readonly Prefix[] {
  return cidrs.flatMap((text) => parseCIDR(text) ?? []);
}

type Removed = Pick<IpvsPass, "removedServers" | "removedAddresses" | "removedInterface" | "removedSets">;

const NOTHING: Removed = { removedServers: 0, removedAddresses: 0, removedInterface: false, removedSets: 0 };

function together(a: Removed, b: Removed): Removed {
  return {
    removedServers: a.removedServers + b.removedServers,
    removedAddresses: a.removedAddresses + b.removedAddresses,
    removedInterface: a.removedInterface || b.removedInterface,
    removedSets: a.removedSets + b.removedSets,
  };
}

function removedAny({ removedServers, removedAddresses, removedInterface, removedSets }: Removed): boolean {
  return removedServers + removedAddresses + removedSets > 0 || removedInterface;
}

function removedFields({ removedServers, removedAddresses, removedInterface, removedSets }: Removed) {
  return {
    virtualServers: removedServers,
    addresses: removedAddresses,
    interfaces: removedInterface ? 1 : 0,
    ipsets: removedSets,
  };
}

function logStaying(log: Logger, { foreign, excluded }: IpvsPass): void {
  const say = (servers: readonly string[], message: string): void => {
    if (servers.length === 0) return;
    log.info({ virtualServers: servers.slice(0, NAMED), count: servers.length }, message);
  };
  say(foreign, "virtual servers kept; not kube-proxy's");
  say(excluded, "virtual servers kept; in ipvs.excludeCIDRs");
}

function logBusy(log: Logger, { busySets }: IpvsPass): void {
  const hint = "remove the iptables rule that matches with them, then run cleanup";
  log.warn({ ipsets: busySets, hint }, "leftover ipsets of kube-proxy kept; a rule refers to them");
}

function logFailure(log: Logger, error: unknown): void {
  const hint = "retried; or run cleanup, or restart the node";
  log.warn({ err: error, reason: reasonOf(error), hint }, "removing leftovers of kube-proxy's IPVS mode failed");
}
