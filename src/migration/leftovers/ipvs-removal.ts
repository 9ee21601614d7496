/**
 * Removes leftovers of kube-proxy's IPVS mode (`ipvsPass`) while the proxier runs. It checks at growing intervals until
 * nothing is left, or until for 15 min only ipsets in use by a rule are left. There is no time limit for connections:
 * an idle one ends in IPVS by itself (`ipvs.tcpTimeout`, 15 min), so the remaining ones are in use. Waiting servers
 * accept no new connections, and cost one check a minute. kube-proxy's own graceful termination has no limit either.
 */
import { counted } from "../../base/counted.js";
import { type IpFamily, parseCIDR, type Prefix } from "../../base/ip.js";
import { Backoff } from "../../base/backoff.js";
import { BoundedFrequencyRunner, type WriteOutcome } from "../../base/bounded-frequency-runner.js";
import type { Logger } from "../../base/logger.js";
import { reasonOf } from "../../base/unknown.js";
import { foundAny, type IpvsKernel, type IpvsPass, ipvsPass, isDone, type Removed, removedAny } from "./ipvs-pass.js";

/** First and longest interval between checks, ms. The latter is kube-proxy's interval for terminating destinations. */
const FIRST_MS = 2000;
const LONGEST_MS = 60_000;
/**
 * Number of checks, 15 min in total, after which sets in use are left if all else is gone. Another process may prevent
 * the removal of kube-proxy's rules for that long.
 */
const BUSY_PASSES = 20;
/** Maximum number of remaining virtual servers to name in the log. */
const NAMED = 10;

interface IpvsRemovalOptions {
  readonly kernel: IpvsKernel;
  readonly log: Logger;
  /** Canonical CIDRs of `ipvs.excludeCIDRs`. */
  readonly excludeCIDRs: readonly string[];
}

/**
 * Removes everything at once, including open connections, and logs the removed objects. Returns true if nothing of
 * kube-proxy is left. Never throws.
 */
export async function removeIpvsNow(options: IpvsRemovalOptions, families: readonly IpFamily[]): Promise<boolean> {
  const { kernel, log } = options;
  try {
    const excluded = prefixesOf(options.excludeCIDRs);
    const pass = await ipvsPass({ kernel, families: new Set(families), excluded, remove: "now" });
    if (!foundAny(pass)) return true;
    logStaying(log, pass);
    log.info(pass.removed, "leftovers of kube-proxy's IPVS mode removed");
    if (pass.busySets.length > 0) logBusy(log, pass);
    return isDone(pass);
  } catch (error) {
    logFailure(log, error);
    return false;
  }
}

/** Does the same while the proxier runs, without cutting connections. */
export class IpvsRemoval {
  readonly #excluded: readonly Prefix[];
  readonly #families = new Set<IpFamily>();
  #last: IpvsPass | undefined;
  /** Sum over all passes since the last completed removal. */
  #removed: Removed = NOTHING;
  readonly #backoff = new Backoff({ firstMs: FIRST_MS, longestMs: LONGEST_MS });
  readonly #runner = new BoundedFrequencyRunner(() => this.#pass(), { gapMs: 0, maxRetryMs: LONGEST_MS });
  #busyPasses = 0;
  #failed = false;

  constructor(private readonly options: IpvsRemovalOptions) {
    this.#excluded = prefixesOf(options.excludeCIDRs);
  }

  /** Our rules of the family are active, so its objects in IPVS may be removed. */
  start(family: IpFamily): void {
    this.#families.add(family);
    this.#backoff.reset();
    this.#runner.requestIn(0);
  }

  /** Describes the objects that remain in use. Returns undefined if nothing does. */
  get note(): string | undefined {
    if (this.#last === undefined || isDone(this.#last)) return undefined;
    const { waitingServers, openConnections, waitingAddresses, busySets } = this.#last;
    const parts = [
      ...(waitingServers > 0
        ? [`${counted(openConnections, "connection")} to ${counted(waitingServers, "virtual server")}`]
        : []),
      ...(waitingAddresses.length > 0
        ? [`${counted(waitingAddresses.length, "VIP")} in use by sockets of this node`]
        : []),
      ...(busySets.length > 0 ? [`ipsets in use: ${busySets.join(", ")}`] : []),
    ];
    return `kube-proxy's IPVS leftovers stay until they are idle: ${parts.join("; ")}`;
  }

  /** Stops. No check runs after it resolves. */
  close(): Promise<void> {
    return this.#runner.stop();
  }

  async #pass(): Promise<WriteOutcome> {
    return { ok: true, ...((await this.#isLeft()) && { againMs: this.#backoff.next() }) };
  }

  /** Runs a pass. Returns whether to check again. */
  async #isLeft(): Promise<boolean> {
    const { kernel, log } = this.options;
    try {
      const families = this.#families;
      const pass = await ipvsPass({ kernel, families, excluded: this.#excluded, remove: "when-idle" });
      if (this.#last === undefined) this.#logFirst(pass);
      this.#last = pass;
      this.#removed = together(this.#removed, pass.removed);
      this.#failed = false;
      return this.#goOn(pass);
    } catch (error) {
      if (!this.#failed) logFailure(log, error);
      this.#failed = true;
      return true;
    }
  }

  #logFirst(pass: IpvsPass): void {
    const { log } = this.options;
    if (!foundAny(pass)) return;
    logStaying(log, pass);
    if (isDone(pass)) return;
    const { waitingServers: virtualServers, openConnections: connections, waitingAddresses, busySets } = pass;
    const waiting = { virtualServers, connections, addresses: waitingAddresses.length, ipsets: busySets.length };
    log.info(
      { ...pass.removed, waiting },
      "leftovers of kube-proxy's IPVS mode: idle ones removed; the others are removed when their last connection ends",
    );
  }

  #goOn(pass: IpvsPass): boolean {
    const { log } = this.options;
    if (isDone(pass)) {
      if (removedAny(this.#removed)) {
        log.info(this.#removed, "leftovers of kube-proxy's IPVS mode removed");
      }
      // Objects of another family are counted separately.
      this.#last = undefined;
      this.#removed = NOTHING;
      return false;
    }
    const onlySets = pass.waitingServers === 0 && pass.waitingAddresses.length === 0;
    this.#busyPasses = onlySets ? this.#busyPasses + 1 : 0;
    if (this.#busyPasses < BUSY_PASSES) return true;
    logBusy(log, pass);
    return false;
  }
}

function prefixesOf(cidrs: readonly string[]): readonly Prefix[] {
  return cidrs.flatMap((text) => parseCIDR(text) ?? []);
}

const NOTHING: Removed = { virtualServers: 0, addresses: 0, interfaces: 0, ipsets: 0 };

function together(a: Removed, b: Removed): Removed {
  return {
    virtualServers: a.virtualServers + b.virtualServers,
    addresses: a.addresses + b.addresses,
    interfaces: a.interfaces + b.interfaces,
    ipsets: a.ipsets + b.ipsets,
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
  const hint = "remove the iptables rule that uses them, then run cleanup";
  log.warn({ ipsets: busySets, hint }, "leftover ipsets of kube-proxy kept; a rule refers to them");
}

function logFailure(log: Logger, error: unknown): void {
  const hint = "the removal is retried; to end the wait, run cleanup or restart the node";
  log.warn({ err: error, reason: reasonOf(error), hint }, "removing leftovers of kube-proxy's IPVS mode failed");
}
