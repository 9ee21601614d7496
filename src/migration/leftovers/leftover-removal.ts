/**
 * Removes leftovers of kube-proxy's other modes on the node, if the kernel's own interfaces allow it; otherwise reports
 * it.
 */
import { IP_FAMILIES } from "../../base/ip-families.js";
import type { IpFamily } from "../../base/ip.js";
import type { Logger } from "../../base/logger.js";
import type { ProxierObserver, SyncReport } from "../../proxier/observer.js";
import { removeIptablesChains, type TableCleanup } from "./iptables.js";
import { ipvsKernel } from "./ipvs-kernel.js";
import { IpvsRemoval, removeIpvsNow } from "./ipvs-removal.js";
import { findLegacy } from "./find-legacy.js";
import type { LeftoverKernel } from "./leftover-kernel.js";
import { ReturnedRules } from "./returned-rules.js";

export interface LeftoverOptions {
  /** Leftovers in the tables of the older iptables are reported and stay. */
  readonly kernel: LeftoverKernel;
  readonly log: Logger;
  readonly families: readonly IpFamily[];
  /** Canonical CIDRs of `ipvs.excludeCIDRs`. */
  readonly excludeCIDRs?: readonly string[];
  /** Directory that contains /proc and /sys. Default "/". */
  readonly root?: string;
}

/**
 * Removes at once the leftovers of kube-proxy's other modes in the tables of iptables-nft and in IPVS. Open connections of IPVS
 * are cut. Logs the remaining leftovers, also those in the older iptables. Returns true if nothing of kube-proxy is left. Never
 * throws.
 */
export async function removeLeftovers(options: LeftoverOptions): Promise<boolean> {
  const { families } = options;
  const clean = await removeFromNft(options);
  // Done after the rules, because an ipset stays while a rule matches with it.
  const idle = await removeIpvsNow(ipvsOptions(options), families);
  return (await reportElsewhere(options)) && clean && idle;
}

function ipvsOptions({ kernel, log, root, excludeCIDRs = [] }: LeftoverOptions) {
  return { kernel: ipvsKernel(kernel.connection, root), log, excludeCIDRs };
}

/**
 * Does the same while the proxier runs, without cutting connections; open connections of IPVS continue until they end.
 * Each family is cleaned when its rules become active for the first time, so a family whose table the kernel rejects
 * keeps its former rules. For some minutes after that it cleans again if a kube-proxy that is still running has
 * rewritten its rules.
 */
export class LeftoverRemoval implements ProxierObserver {
  readonly #seen = new Set<IpFamily>();
  readonly #ipvs: IpvsRemoval;
  readonly #returned: ReturnedRules;
  #work: Promise<void> = Promise.resolve();

  constructor(private readonly options: LeftoverOptions) {
    this.#ipvs = new IpvsRemoval(ipvsOptions(options));
    this.#returned = new ReturnedRules({ ...options, remove: (family) => this.#cleanAll(family) });
  }

  /** Tables that contain kube-proxy's rules again because it runs beside us, for `status`. */
  get returned(): readonly string[] {
    return this.#returned.tables;
  }

  /** Describes the objects that the removal waits for, for `status`. */
  get notes(): readonly string[] {
    const { note } = this.#ipvs;
    return note === undefined ? [] : [note];
  }

  synced({ family, ok }: Pick<SyncReport, "family" | "ok">): void {
    if (!ok || this.#seen.has(family)) return;
    const first = this.#seen.size === 0;
    this.#seen.add(family);
    void this.#cleanAll(family, first).then(() => this.#returned.start(family));
  }

  /** Resolves when the current work is complete, without waiting for connections. */
  async done(): Promise<void> {
    await this.#work;
  }

  /** Resolves when nothing is running and nothing will follow. Call it before closing the kernel. */
  async close(): Promise<void> {
    await this.#returned.close();
    await this.done();
    await this.#ipvs.close();
  }

  async #cleanAll(family: IpFamily, first = false): Promise<void> {
    this.#work = this.#clean(family, first, this.#work);
    await this.done();
  }

  async #clean(family: IpFamily, first: boolean, before: Promise<void>): Promise<void> {
    await before;
    await removeFromNft({ ...this.options, families: [family] });
    this.#ipvs.start(family);
    if (first) await reportElsewhere(this.options);
  }
}

/** Reports leftovers that this program does not remove. Returns true if there are none. */
async function reportElsewhere({ root = "/", kernel, log }: LeftoverOptions): Promise<boolean> {
  const tables = await Promise.all(IP_FAMILIES.map((family) => findLegacy(family, root, kernel.legacy)));
  const found = tables.filter((leftover) => leftover !== undefined);
  for (const { kind, seen, command } of found) {
    const hint = "its rules may still handle packets; run the command on this node if no other program uses them";
    log.warn({ leftover: kind, seen, command, hint }, "leftover of kube-proxy found");
  }
  return found.length === 0;
}

async function removeFromNft({ kernel, log, families }: LeftoverOptions): Promise<boolean> {
  try {
    const cleanups = await removeIptablesChains(kernel, families);
    for (const cleanup of cleanups) reportRemoval(log, cleanup);
    return cleanups.every(({ kept }) => kept.length === 0);
  } catch (error) {
    log.warn({ err: error, hint: "run cleanup" }, "removing leftovers of kube-proxy's other modes failed");
    return false;
  }
}

function reportRemoval(log: Logger, { family, table, chains, jumps, kept }: TableCleanup): void {
  if (chains + jumps > 0) log.info({ family, table, chains, jumps }, "leftovers of kube-proxy's other modes removed");
  for (const { chain, user } of kept) {
    const hint = "remove the other program's rule, then run cleanup";
    log.warn({ family, table, chain, user, hint }, "leftover chain kept; used by another program's rule");
  }
}
