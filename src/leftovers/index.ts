/** What kube-proxy's other modes left on the node: removed where nf_tables reaches, else named. */
import type { Kernel } from "../kernel/types.js";
import type { IpFamily } from "../model/types.js";
import type { Logger } from "../base/logger.js";
import type { ProxierObserver, SyncReport } from "../proxier/observer.js";
import { findForeignLeftovers, type ForeignLeftover, type ForeignOptions } from "./foreign.js";
import { removeIptablesChains } from "./iptables.js";
import { IpvsRemoval, ipvsKernelOf, removeIpvsNow } from "./ipvs.js";
import type { NetlinkExchange } from "../kernel/netlink/exchange.js";

export { type ForeignOptions, type ReadLegacyChains } from "./foreign.js";

export interface LeftoverOptions extends ForeignOptions {
  readonly kernel: Kernel;
  readonly log: Logger;
  readonly families: readonly IpFamily[];
  /** Without it, what the IPVS mode left is named and stays. */
  readonly netlink?: NetlinkExchange;
  /** Canonical CIDRs of `ipvs.excludeCIDRs`. */
  readonly excludeCIDRs?: readonly string[];
}

/**
 * Removes what kube-proxy's other modes left in the tables of iptables-nft and in IPVS, at once: connections that IPVS has open
 * are cut. Logs what is left there and elsewhere. True when nothing of kube-proxy's is left. Never throws.
 */
export async function removeLeftovers(options: LeftoverOptions): Promise<boolean> {
  const { families } = options;
  const removed = await removeFromNft(options);
  const ipvs = ipvsOptions(options);
  const idle = ipvs === undefined || (await removeIpvsNow(ipvs, families));
  return (await reportForeign(options)) && removed && idle;
}

function ipvsOptions({ netlink, log, root, excludeCIDRs = [] }: LeftoverOptions) {
  return netlink && { kernel: ipvsKernelOf(netlink, root), log, excludeCIDRs };
}

/**
 * Does the same while the proxier runs, without a connection cut: for each family once, when its rules are in force for the first
 * time, so that a family whose table the kernel refuses keeps what serves it. What IPVS has open goes on until it ends.
 */
export class LeftoverRemoval implements ProxierObserver {
  readonly #options: LeftoverOptions;
  readonly #seen = new Set<IpFamily>();
  readonly #ipvs: IpvsRemoval | undefined;
  #work: Promise<void> = Promise.resolve();

  constructor(options: LeftoverOptions) {
    this.#options = options;
    const ipvs = ipvsOptions(options);
    this.#ipvs = ipvs && new IpvsRemoval(ipvs);
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
    this.#work = this.#clean(family, first, this.#work);
  }

  /** Resolves when what is under way is done; what waits for connections goes on waiting. */
  async done(): Promise<void> {
    await this.#work;
  }

  /** Resolves when nothing is under way, and nothing follows; before the kernel is closed. */
  async close(): Promise<void> {
    await this.#work;
    await this.#ipvs?.close();
  }

  async #clean(family: IpFamily, first: boolean, before: Promise<void>): Promise<void> {
    await before;
    await removeFromNft({ ...this.#options, families: [family] });
    await this.#ipvs?.start(family);
    if (first) await reportForeign(this.#options);
  }
}

async function reportForeign(options: LeftoverOptions): Promise<boolean> {
  const found = await findForeignLeftovers(options);
  // With netlink, IPVS is not only named.
  const foreign = found.filter(({ kind }) => kind !== "ipvs" || options.netlink === undefined);
  for (const leftover of foreign) report(options.log, leftover);
  return foreign.length === 0;
}

async function removeFromNft({ kernel, log, families }: LeftoverOptions): Promise<boolean> {
  try {
    const cleanups = await removeIptablesChains(kernel, families);
    for (const { family, table, chains, jumps, kept } of cleanups) {
      if (chains + jumps > 0)
        log.info({ family, table, chains, jumps }, "leftovers of kube-proxy's other modes removed");
      for (const { chain, user } of kept) {
        log.warn(
          { family, table, chain, user, hint: "remove the user's rule, then run cleanup" },
          "leftover chain kept; used by another program's rule",
        );
      }
    }
    return cleanups.every(({ kept }) => kept.length === 0);
  } catch (error) {
    log.warn({ err: error, hint: "run cleanup" }, "removing leftovers of kube-proxy's other modes failed");
    return false;
  }
}

function report(log: Logger, { kind, seen, command }: ForeignLeftover): void {
  const hint = "its rules may still take packets: run the command on this node, if no other program uses them";
  log.warn({ leftover: kind, seen, command, hint }, "leftover of kube-proxy found");
}
