/** Logs the outcome for leftovers. */
import type { Logger } from "../../base/logger.js";
import type { IpFamily } from "../../base/ip.js";
import type { ForeignLeftover } from "./foreign-leftover.js";

/** Changes to the chains of one table. */
interface Removal {
  /** Number of removed chains, and of removed rules in other chains that jumped to them. */
  readonly chains: number;
  readonly jumps: number;
  readonly kept: readonly { readonly chain: string; readonly user: string }[];
}

interface Where {
  readonly family: IpFamily;
  readonly table: string;
}

export function reportRemoval(log: Logger, where: Where, { chains, jumps, kept }: Removal): void {
  if (chains + jumps > 0) log.info({ ...where, chains, jumps }, "leftovers of kube-proxy's other modes removed");
  for (const { chain, user } of kept) {
    log.warn(
      { ...where, chain, user, hint: "remove the other program's rule, then run cleanup" },
      "leftover chain kept; used by another program's rule",
    );
  }
}

export function reportForeign(log: Logger, { kind, seen, command }: ForeignLeftover): void {
  const hint = "its rules may still handle packets; run the command on this node if no other program uses them";
  log.warn({ leftover: kind, seen, command, hint }, "leftover of kube-proxy found");
}
