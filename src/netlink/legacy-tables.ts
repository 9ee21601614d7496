import { freemem } from "node:os";
import type { NetlinkConnection } from "./netlink-connection.js";
import type { LegacyChainNames, LegacyRemoval } from "./nft-addon.js";

export type { LegacyChainNames, LegacyRemoval };

type Family = "ip" | "ip6";

/**
 * The tables of the older iptables (ip_tables, ip6_tables), which nf_tables knows nothing of. Ask only for tables named in
 * /proc/net/ip_tables_names or ip6_tables_names: the kernel makes a table that is not there. All methods reject with KernelError. All but
 * `layout` read the whole table, as the kernel has no other way, and fail with "too-large" if there is not enough memory for it.
 */
export class LegacyTables {
  readonly #connection: NetlinkConnection;

  constructor(connection: NetlinkConnection) {
    this.#connection = connection;
  }

  /** Names of the chains that users made. */
  chains(family: Family, table: string): Promise<string[]> {
    return this.#connection.run("read iptables table", (addon, handle) =>
      addon.legacyChains(handle, { family, table }, memoryForTables()),
    );
  }

  /** Number of rules of one of these chains; 0 if there is no such chain. */
  rules(family: Family, table: string, chain: string): Promise<number> {
    return this.#connection.run("read iptables table", (addon, handle) =>
      addon.legacyRules(handle, { family, table }, chain, memoryForTables()),
    );
  }

  /** Whether the chain FORWARD drops by policy. */
  forwardDrops(family: Family, table: string): Promise<boolean> {
    return this.#connection.run("read iptables table", (addon, handle) =>
      addon.legacyForwardDrops(handle, { family, table }, memoryForTables()),
    );
  }

  /**
   * Removes a program's chains, with the rules of built-in chains that jump to them, in one step for packets (IPT_SO_SET_REPLACE). Other
   * programs' rules stay as they are, with their counters. Own chains that those rules use stay, too, with all that they lead to.
   * `lockFile` is the file that iptables locks (flock) while it writes; it is not created. Fails, and leaves the table as it is, with `errno`
   * "EAGAIN" if another process holds the lock or keeps changing the table, and with "system" if iptables could not have written the table.
   */
  remove(family: Family, table: string, own: LegacyChainNames, lockFile: string): Promise<LegacyRemoval> {
    return this.#connection.run("replace iptables table", (addon, handle) =>
      addon.removeLegacyChains(handle, { family, table }, own, { lockFile, mostBytes: memoryForTables() }),
    );
  }

  /**
   * Length, number of entries and valid hooks of a table, then where the chain of each hook begins, and where its policy is
   * (IPT_SO_GET_INFO), in one word. Equal as long as the table does not change. Costs the same for a table of any length.
   */
  async layout(family: Family, table: string): Promise<string> {
    const words = await this.#connection.run("read iptables table", (addon, handle) =>
      addon.legacyLayout(handle, { family, table }),
    );
    return words.join(" ");
  }
}

/**
 * Maximum length of a table, bytes: it is read whole, and in the worst case written whole. A share of the memory that this
 * process may still use, by its control group's limit as well; a process that is ended for its size would be ended again and again.
 */
function memoryForTables(): number {
  const available = process.availableMemory();
  // If the kernel has no control groups, Node says 0 (libuv 1.51 asks /proc/self/cgroup first), as it does for a limit that is used up.
  const unlimited = available === 0 && process.constrainedMemory() === 0;
  return Math.floor((unlimited ? freemem() : available) / 3);
}
