/**
 * Removes leftovers of kube-proxy's other modes on the node, if the kernel's own interfaces allow it; otherwise reports
 * it.
 */
import type { Later } from "./call-later.js";
import { IP_FAMILIES } from "../../base/ip-families.js";
import type { NetlinkExchange } from "../../nft/kernel/netlink-message.js";
import type { Kernel } from "../../nft/kernel/kernel.js";
import type { LegacyTables } from "../../nft/kernel/legacy-tables.js";
import type { IpFamily } from "../../base/ip.js";
import type { Logger } from "../../base/logger.js";
import type { ProxierObserver, SyncReport } from "../../proxier/observer.js";
import type { ForeignOptions } from "./find-foreign.js";
import { removeIptablesChains } from "./iptables.js";
import { ipvsKernel } from "./ipvs-kernel.js";
import { IpvsRemoval, removeIpvsNow } from "./ipvs-removal.js";
import { findIpvs } from "./find-ipvs.js";
import { findLegacy } from "./find-legacy.js";
import { reportForeign, reportRemoval } from "./removal-report.js";
import { ReturnedRules } from "./returned-rules.js";

export interface LeftoverOptions extends Pick<ForeignOptions, "root"> {
  readonly kernel: Kernel;
  readonly log: Logger;
  readonly families: readonly IpFamily[];
  /**
   * The tables of the older iptables. Leftovers in them are reported and stay. Without `layout`, each check reads such a
   * table completely.
   */
  readonly legacy?: Partial<Pick<LegacyTables, "chains" | "layout">>;
  /** Without it, leftovers of the IPVS mode are reported and stay. */
  readonly netlink?: NetlinkExchange;
  /** Canonical CIDRs of `ipvs.excludeCIDRs`. */
  readonly excludeCIDRs?: readonly string[];
  /** Calls back once after that many ms, and returns a function that cancels it. Default: callLater. */
  readonly later?: Later;
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
  const ipvs = ipvsOptions(options);
  const idle = ipvs === undefined || (await removeIpvsNow(ipvs, families));
  return (await reportElsewhere(options)) && clean && idle;
}

function ipvsOptions({ netlink, log, root, excludeCIDRs = [] }: LeftoverOptions) {
  return netlink && { kernel: ipvsKernel(netlink, root), log, excludeCIDRs };
}

/**
 * Does the same while the proxier runs, without cutting connections; open connections of IPVS continue until they end.
 * Each family is cleaned when its rules become active for the first time, so a family whose table the kernel rejects
 * keeps its former rules. For some minutes after that it cleans again if a kube-proxy that is still running has
 * rewritten its rules.
 */
export class LeftoverRemoval implements ProxierObserver {
  readonly #options: LeftoverOptions;
  readonly #seen = new Set<IpFamily>();
  readonly #ipvs: IpvsRemoval | undefined;
  readonly #returned: ReturnedRules;
  #work: Promise<void> = Promise.resolve();

  constructor(options: LeftoverOptions) {
    this.#options = options;
    const ipvs = ipvsOptions(options);
    this.#ipvs = ipvs && new IpvsRemoval(ipvs);
    this.#returned = new ReturnedRules({ ...options, remove: (family) => this.#cleanAll(family) });
  }

  /** Tables that contain kube-proxy's rules again because it runs beside us, for `status`. */
  get returned(): readonly string[] {
    return this.#returned.tables;
  }

  /** Describes the objects that the removal waits for, for `status`. */
  get notes(): readonly string[] {
    const note = this.#ipvs?.note;
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
    await this.#ipvs?.close();
  }

  async #cleanAll(family: IpFamily, first = false): Promise<void> {
    this.#work = this.#clean(family, first, this.#work);
    await this.done();
  }

  async #clean(family: IpFamily, first: boolean, before: Promise<void>): Promise<void> {
    await before;
    await removeFromNft({ ...this.#options, families: [family] });
    await this.#ipvs?.start(family);
    if (first) await reportElsewhere(this.#options);
  }
}

/** Reports leftovers that this program does not remove. Returns true if there are none. */
async function reportElsewhere({ root = "/", legacy, netlink, log }: LeftoverOptions): Promise<boolean> {
  const found = [
    ...(await Promise.all(IP_FAMILIES.map(async (family) => findLegacy(family, root, legacy)))),
    ...(netlink === undefined ? [await findIpvs(root)] : []),
  ].flatMap((leftover) => leftover ?? []);
  for (const leftover of found) reportForeign(log, leftover);
  return found.length === 0;
}

async function removeFromNft({ kernel, log, families }: LeftoverOptions): Promise<boolean> {
  try {
    const cleanups = await removeIptablesChains(kernel, families);
    for (const { family, table, ...removal } of cleanups) reportRemoval(log, { family, table }, removal);
    return cleanups.every(({ kept }) => kept.length === 0);
  } catch (error) {
    log.warn({ err: error, hint: "run cleanup" }, "removing leftovers of kube-proxy's other modes failed");
    return false;
  }
}
