/** What kube-proxy's other modes left on the node: removed where nf_tables reaches, else named. */
import type { Kernel } from "../kernel/types.js";
import type { IpFamily } from "../model/types.js";
import type { Logger } from "../observe/log.js";
import { findForeignLeftovers, type ForeignLeftover, type ForeignOptions } from "./foreign.js";
import { removeIptablesChains } from "./iptables.js";

export { type ForeignOptions, type ReadLegacyChains } from "./foreign.js";

export interface LeftoverOptions extends ForeignOptions {
  readonly kernel: Kernel;
  readonly log: Logger;
  readonly families: readonly IpFamily[];
}

/**
 * Removes what kube-proxy's iptables mode left in the tables of iptables-nft, and logs what is left there and elsewhere.
 * To be called when our own rules are in force: until then the others' serve. True when nothing of kube-proxy's is
 * left. Never throws.
 */
export async function removeLeftovers(options: LeftoverOptions): Promise<boolean> {
  const removed = await removeFromNft(options);
  const foreign = await findForeignLeftovers(options);
  for (const leftover of foreign) report(options.log, leftover);
  return removed && foreign.length === 0;
}

async function removeFromNft({ kernel, log, families }: LeftoverOptions): Promise<boolean> {
  try {
    const cleanups = await removeIptablesChains(kernel, families);
    for (const { family, table, chains, jumps, kept } of cleanups) {
      if (chains + jumps > 0)
        log.info({ family, table, chains, jumps }, "removed what kube-proxy's iptables mode left");
      for (const { chain, user } of kept) {
        log.warn(
          { family, table, chain, user },
          "a chain of kube-proxy's iptables mode stays, because something of somebody else's uses it: remove that, then run cleanup",
        );
      }
    }
    return cleanups.every(({ kept }) => kept.length === 0);
  } catch (error) {
    log.warn({ err: error }, "what kube-proxy's iptables mode left could not be removed: run cleanup");
    return false;
  }
}

function report(log: Logger, { kind, seen, command }: ForeignLeftover): void {
  const mode = kind === "ipvs" ? "IPVS mode" : "iptables mode, with the older iptables,";
  log.warn(
    { leftover: kind, seen, command },
    `kube-proxy's ${mode} has left rules that may still take packets: run the command on this node, if nobody else uses them`,
  );
}
