import { freemem } from "node:os";
import type { NetlinkConnection } from "./netlink-connection.js";
import type { NativeLegacyTable } from "./nft-addon.js";

type Family = "ip" | "ip6";

/**
 * The tables of the older iptables (ip_tables, ip6_tables), which are not part of nf_tables. Ask only for tables named in
 * /proc/net/ip_tables_names or ip6_tables_names, because the kernel creates a missing table. All methods reject with KernelError. All but
 * `layout` read the whole table, as the kernel has no other way, and fail with "too-large" if there is not enough memory for it.
 */
export class LegacyTables {
  readonly #connection: NetlinkConnection;

  constructor(connection: NetlinkConnection) {
    this.#connection = connection;
  }

  /** Returns the names of the user-defined chains. */
  async chains(family: Family, table: string): Promise<readonly string[]> {
    return (await this.#read(family, table)).chains;
  }

  /** Returns the number of rules of a user-defined chain, or 0 if there is no such chain. */
  async rules(family: Family, table: string, chain: string): Promise<number> {
    const { chains, rules } = await this.#read(family, table);
    return rules[chains.indexOf(chain)] ?? 0;
  }

  /** Whether the chain FORWARD drops by policy. */
  async forwardDrops(family: Family, table: string): Promise<boolean> {
    return (await this.#read(family, table)).forwardDrops;
  }

  #read(family: Family, table: string): Promise<NativeLegacyTable> {
    return this.#connection.run("read iptables table", (addon, handle) =>
      addon.legacyTable(handle, { family, table }, memoryForTables()),
    );
  }

  /**
   * Returns a table's length, number of entries and valid hooks, then the offsets of each hook's chain and policy (IPT_SO_GET_INFO), as one
   * string. It stays equal as long as the table does not change. The cost does not depend on the table's length.
   */
  async layout(family: Family, table: string): Promise<string> {
    const words = await this.#connection.run("read iptables table", (addon, handle) =>
      addon.legacyLayout(handle, { family, table }),
    );
    return words.join(" ");
  }
}

/**
 * Returns the maximum length of a table, bytes. A table is read whole. The maximum is a share of the memory that this process may still use, also within its control group's limit. A process killed for its size would be killed again and again.
 */
function memoryForTables(): number {
  const available = process.availableMemory();
  // Node returns 0 for an exhausted limit, and also without control groups (libuv 1.51 reads /proc/self/cgroup first).
  const unlimited = available === 0 && process.constrainedMemory() === 0;
  return Math.floor((unlimited ? freemem() : available) / 3);
}
