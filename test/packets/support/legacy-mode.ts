/** The chains that kube-proxy's iptables mode and its neighbours leave in the tables of the older iptables. */
import { getLegacyTable, putLegacyTable } from "../../lab/legacy-kernel.ts";
import { legacyRule } from "../../lab/legacy-rules.ts";
import { type LegacyChain, TABLE_CHAINS } from "../../lab/legacy-table.ts";
import type { Family, Lab } from "../../lab/topology.ts";
import { type Chains, iptablesChains, type TableName } from "./iptables-mode.ts";
import type { ServiceSpec } from "./objects.ts";

export const LEGACY_TABLES: readonly TableName[] = ["nat", "filter", "mangle"];

function legacyChains(family: Family, table: TableName, chains: Chains): LegacyChain[] {
  const rulesOf = (chain: string): LegacyChain["rules"] =>
    (chains[chain] ?? []).map((words) => legacyRule(family, `# some comment of ${chain} \n${words}`));
  const base: readonly string[] = TABLE_CHAINS[table];
  return [
    ...base.map((name): LegacyChain => ({ name, policy: "ACCEPT", rules: rulesOf(name) })),
    ...Object.keys(chains)
      .filter((name) => !base.includes(name))
      .map((name) => ({ name, rules: rulesOf(name) })),
  ];
}

/** Fills the node's tables; if services are given, kube-proxy's chains are among them. Returns false if the kernel has no such iptables. */
export async function enterLegacyMode(lab: Lab, family: Family, services?: readonly ServiceSpec[]): Promise<boolean> {
  const all = iptablesChains(lab, family, services);
  for (const table of LEGACY_TABLES) {
    if (!(await putLegacyTable(lab.node.prefix, family, table, legacyChains(family, table, all[table])))) return false;
  }
  return true;
}

/** All chains of the node's tables, without counters. */
export async function legacyTables(lab: Lab, family: Family): Promise<Record<string, unknown>> {
  const tables: Record<string, unknown> = {};
  for (const table of LEGACY_TABLES) {
    const chains = (await getLegacyTable(lab.node.prefix, family, table)) ?? [];
    tables[`${family} ${table}`] = chains.map(({ name, policy, rules }) => ({
      name,
      policy,
      rules: rules.map(({ match, target }) => ({ match, target })),
    }));
  }
  return tables;
}
