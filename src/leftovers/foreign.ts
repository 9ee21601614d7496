/**
 * What kube-proxy left where nf_tables does not reach: in the tables of the older iptables, and in IPVS. It is found and
 * named; removing it is for the tools that made it.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { reasonOf } from "../base/unknown.js";
import type { IpFamily } from "../model/types.js";
import { IPTABLES_TABLES, type IptablesTable, isOwnChain, savePattern } from "./names.js";

export interface ForeignLeftover {
  readonly kind: "iptables-legacy" | "ipvs";
  /** What was seen: "ip nat: KUBE-SERVICES and 12 more chains". */
  readonly seen: string;
  /** The command to run on the node. */
  readonly command: string;
}

/** Chains that are made by rules' users in one table of the older iptables. Asked only for tables that are there. */
export type ReadLegacyChains = (family: IpFamily, table: string) => Promise<readonly string[]>;

export interface ForeignOptions {
  /** Where /proc is; default "/". */
  readonly root?: string;
  /** Without it, every table that could hold kube-proxy's chains is named. */
  readonly legacyChains?: ReadLegacyChains;
}

/** Of kube-proxy's IPVS mode: carries the addresses of all services. */
const IPVS_INTERFACE = "kube-ipvs0";

/** Never throws: what cannot be read is not there. */
export async function findForeignLeftovers(options: ForeignOptions = {}): Promise<ForeignLeftover[]> {
  const { root = "/" } = options;
  const found = [
    await findLegacy("ip", "iptables", root, options.legacyChains),
    await findLegacy("ip6", "ip6tables", root, options.legacyChains),
    await findIpvs(root),
  ];
  return found.flatMap((leftover) => leftover ?? []);
}

async function readText(root: string, file: string): Promise<string> {
  try {
    return await readFile(join(root, file), "utf8");
  } catch {
    return "";
  }
}

async function findLegacy(
  family: IpFamily,
  program: string,
  root: string,
  legacyChains: ReadLegacyChains | undefined,
): Promise<ForeignLeftover | undefined> {
  const names = await readText(root, `proc/net/${family}_tables_names`);
  const tables = names.split("\n").filter((name): name is IptablesTable => IPTABLES_TABLES.includes(name as never));
  const seen: string[] = [];
  const commands: string[] = [];
  for (const table of tables) {
    const words = await describeTable(family, table, legacyChains);
    if (words === undefined) continue;
    seen.push(`${family} ${table}: ${words}`);
    commands.push(`${program}-legacy-save -t ${table} | grep -vE '${savePattern(table)}' | ${program}-legacy-restore`);
  }
  if (seen.length === 0) return undefined;
  return { kind: "iptables-legacy", seen: seen.join("; "), command: commands.join(" && ") };
}

/** What of kube-proxy's is in the table; undefined: nothing. */
async function describeTable(
  family: IpFamily,
  table: IptablesTable,
  legacyChains: ReadLegacyChains | undefined,
): Promise<string | undefined> {
  try {
    if (legacyChains === undefined) return "the table is there, and its chains were not looked at";
    const own = (await legacyChains(family, table)).filter((chain) => isOwnChain(table, chain));
    if (own.length === 0) return undefined;
    return own.length === 1 ? own[0] : `${own[0]} and ${own.length - 1} more chains`;
  } catch (error) {
    return `the table is there, and its chains cannot be read (${reasonOf(error)})`;
  }
}

async function findIpvs(root: string): Promise<ForeignLeftover | undefined> {
  const seen: string[] = [];
  const interfaces = await readText(root, "proc/net/dev");
  const hasInterface = interfaces.split("\n").some((line) => line.trim().startsWith(`${IPVS_INTERFACE}:`));
  if (hasInterface) seen.push(`interface ${IPVS_INTERFACE}`);
  // "TCP  0A600001:01BB rr"; addresses of IPv6 are in brackets.
  const services = (await readText(root, "proc/net/ip_vs")).match(/^(?:TCP|UDP|SCTP) +\S+ /gm)?.length ?? 0;
  if (services > 0) seen.push(`${services} virtual service${services === 1 ? "" : "s"}`);
  if (seen.length === 0) return undefined;
  const commands = [
    ...(services > 0 ? ["ipvsadm --clear"] : []),
    ...(hasInterface ? [`ip link delete ${IPVS_INTERFACE}`] : []),
  ];
  return { kind: "ipvs", seen: seen.join(", "), command: commands.join(" && ") };
}
