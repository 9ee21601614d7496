/**
 * Finds kube-proxy's leftovers in the tables of the older iptables (ip_tables, ip6_tables), which are invisible to
 * nf_tables.
 */
import { counted } from "../../base/counted.js";
import { reasonOf } from "../../base/unknown.js";
import type { LegacyTables } from "../../nft/kernel/legacy-tables.js";
import type { IpFamily } from "../../base/ip.js";
import { IPTABLES_TABLES, type IptablesTable, isOwnChain } from "./iptables-names.js";
import { legacyTableNames } from "../../node/proc-file.js";

export type LegacyReader = Pick<LegacyTables, "chains">;

/** Rules of kube-proxy outside nf_tables. */
export interface ForeignLeftover {
  readonly kind: "iptables-legacy" | "ipvs";
  /** The finding: "ip nat: KUBE-SERVICES and 12 more chains". */
  readonly seen: string;
  /** Whether none of kube-proxy's objects was seen, because they cannot be read. */
  readonly isUncertain?: boolean;
  /** The command that removes it, for an operator. */
  readonly command: string;
}

/**
 * In kube-proxy's own image: in ours, a program of that name leaves these tables alone. It also deletes our tables, which a
 * running daemon writes again at once.
 */
export const CLEANUP_COMMAND = "kube-proxy --cleanup";

/** Returns the existing tables that may have kube-proxy's chains. Without the older iptables there are none. */
export async function presentTables(family: IpFamily, root: string): Promise<IptablesTable[]> {
  const names = await legacyTableNames(family, root);
  return names.filter((name): name is IptablesTable => IPTABLES_TABLES.includes(name as never));
}

/** Returns kube-proxy's chains in the family's existing tables. Returns undefined if there is nothing. Never throws. */
export async function findLegacy(
  family: IpFamily,
  root: string,
  legacy: LegacyReader | undefined,
): Promise<ForeignLeftover | undefined> {
  const seen: string[] = [];
  let isUncertain = true;
  for (const table of await presentTables(family, root)) {
    const own = await ownChains(family, table, legacy);
    if (typeof own === "string") seen.push(`${family} ${table}: the table exists; ${own}`);
    else if (own.length > 0) {
      isUncertain = false;
      const more = own.length === 1 ? "" : ` and ${counted(own.length - 1, "more chain")}`;
      seen.push(`${family} ${table}: ${own[0]}${more}`);
    }
  }
  if (seen.length === 0) return undefined;
  return { kind: "iptables-legacy", seen: seen.join("; "), isUncertain, command: CLEANUP_COMMAND };
}

/** Returns kube-proxy's chains in the table, or the reason why they are not known. */
async function ownChains(
  family: IpFamily,
  table: IptablesTable,
  legacy: LegacyReader | undefined,
): Promise<string[] | string> {
  if (legacy === undefined) return "its chains were not read";
  try {
    return (await legacy.chains(family, table)).filter((chain) => isOwnChain(table, chain));
  } catch (error) {
    return `its chains cannot be read (${reasonOf(error)})`;
  }
}
