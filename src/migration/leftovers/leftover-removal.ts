/** What kube-proxy's other modes left on the node: removed where the kernel's own interfaces reach, else named. */
import { IP_FAMILIES } from "../../base/ip-families.js";
import type { NetlinkExchange } from "../../netlink/exchange.js";
import type { Kernel } from "../../netlink/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import type { Logger } from "../../base/logger.js";
import type { ProxierObserver, SyncReport } from "../../proxier/observer.js";
import type { ForeignOptions } from "./foreign.js";
import { removeIptablesChains } from "./iptables.js";
import { IpvsRemoval, ipvsKernelOf, removeIpvsNow } from "./ipvs.js";
import { findIpvs } from "./ipvs-look.js";
import { findLegacy, type ReadLegacyLayout } from "./legacy.js";
import { removeLegacy, type RemoveLegacyChains } from "./legacy-removal.js";
import { reportForeign, reportRemoval } from "./removal-report.js";
import { ReturnedRules } from "./returned.js";

export { type ForeignOptions, type ReadLegacyChains } from "./foreign.js";
export { type RemoveLegacyChains } from "./legacy-removal.js";

export interface LeftoverOptions extends ForeignOptions {
  readonly kernel: Kernel;
  readonly log: Logger;
  readonly families: readonly IpFamily[];
  /** Without it, each look reads such a table whole. */
  readonly legacyLayout?: ReadLegacyLayout;
  /** Without it, what is in the tables of the older iptables is named and stays. */
  readonly removeLegacyChains?: RemoveLegacyChains;
  /** Without it, what the IPVS mode left is named and stays. */
  readonly netlink?: NetlinkExchange;
  /** Canonical CIDRs of `ipvs.excludeCIDRs`. */
  readonly excludeCIDRs?: readonly string[];
  /** Calls back once in so many ms; returns what cancels it. Default setTimeout. */
  readonly later?: (work: () => void, ms: number) => () => void;
}

/** How long other processes may keep the older iptables locked, ms: for a command that is waited for, and for the daemon. */
const COMMAND_PATIENCE_MS = 10_000;
const DAEMON_PATIENCE_MS = 15 * 60_000;

/**
 * Removes what kube-proxy's other modes left in the tables of iptables-nft, in those of the older iptables and in IPVS, at once:
 * connections that IPVS has open are cut. Logs what is left there and elsewhere. True when nothing of kube-proxy's is left. Never throws.
 */
export async function removeLeftovers(options: LeftoverOptions): Promise<boolean> {
  const { families } = options;
  let clean = await removeFromNft(options);
  for (const family of families) {
    clean = (await removeLegacy(family, { ...options, patienceMs: COMMAND_PATIENCE_MS })) && clean;
  }
  // Behind the rules: while one matches with an ipset, that stays.
  const ipvs = ipvsOptions(options);
  const idle = ipvs === undefined || (await removeIpvsNow(ipvs, families));
  return (await reportElsewhere(options)) && clean && idle;
}

function ipvsOptions({ netlink, log, root, excludeCIDRs = [] }: LeftoverOptions) {
  return netlink && { kernel: ipvsKernelOf(netlink, root), log, excludeCIDRs };
}

/**
 * Does the same while the proxier runs, without a connection cut: for each family when its rules are in force for the first
 * time, so that a family whose table the kernel refuses keeps what serves it; and for some minutes once more, when a kube-proxy that
 * has not ended yet writes its rules again. What IPVS has open goes on until it ends.
 */
export class LeftoverRemoval implements ProxierObserver {
  readonly #options: LeftoverOptions;
  readonly #seen = new Set<IpFamily>();
  readonly #ipvs: IpvsRemoval | undefined;
  readonly #returned: ReturnedRules;
  readonly #end = new AbortController();
  #work: Promise<void> = Promise.resolve();
  /** Beside the rest: another process may hold it up. */
  #legacy: Promise<unknown> = Promise.resolve();

  constructor(options: LeftoverOptions) {
    this.#options = options;
    const ipvs = ipvsOptions(options);
    this.#ipvs = ipvs && new IpvsRemoval(ipvs);
    this.#returned = new ReturnedRules({ ...options, remove: (family) => this.#cleanAll(family) });
  }

  /** Tables in which kube-proxy's rules are again, as it runs beside us, for `status`. */
  get returned(): readonly string[] {
    return this.#returned.tables;
  }

  /** What is waited for, in words, for `status`. */
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

  /** Resolves when what is under way is done; what waits for connections goes on waiting. */
  async done(): Promise<void> {
    await Promise.all([this.#work, this.#legacy]);
  }

  /** Resolves when nothing is under way, and nothing follows; before the kernel is closed. */
  async close(): Promise<void> {
    this.#end.abort();
    await this.#returned.close();
    await this.done();
    await this.#ipvs?.close();
  }

  async #cleanAll(family: IpFamily, first = false): Promise<void> {
    this.#legacy = this.#cleanLegacy(family, this.#legacy);
    this.#work = this.#clean(family, first, this.#work);
    await this.done();
  }

  async #clean(family: IpFamily, first: boolean, before: Promise<void>): Promise<void> {
    await before;
    await removeFromNft({ ...this.#options, families: [family] });
    await this.#ipvs?.start(family);
    if (first) await reportElsewhere(this.#options);
  }

  async #cleanLegacy(family: IpFamily, before: Promise<unknown>): Promise<void> {
    await before;
    await removeLegacy(family, { ...this.#options, patienceMs: DAEMON_PATIENCE_MS, signal: this.#end.signal });
  }
}

/** Names what nothing here removes. True when there is no such thing. */
async function reportElsewhere({
  families,
  root = "/",
  legacyChains,
  netlink,
  log,
}: LeftoverOptions): Promise<boolean> {
  const notServed = IP_FAMILIES.filter((family) => !families.includes(family));
  const found = [
    ...(await Promise.all(notServed.map(async (family) => findLegacy(family, root, legacyChains)))),
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
