/** Finds the modes of kube-proxy that have rules on this node, and the fate of these rules. */
import { counted } from "../../base/counted.js";
import { IP_FAMILIES } from "../../base/ip-families.js";
import { TableFlag } from "../../nft/kernel/constants.js";
import type { Kernel, TableInfo } from "../../nft/kernel/kernel.js";
import type { LegacyTables } from "../../nft/kernel/legacy-tables.js";
import { findForeignLeftovers, type ForeignOptions } from "../leftovers/find-foreign.js";
import { findIptablesChains, type TableCleanup } from "../leftovers/iptables.js";
import { type ForeignLeftover, presentTables } from "../leftovers/find-legacy.js";
import type { IpFamily } from "../../base/ip.js";
import { FORMER_SERVICE_MAPS, HANDOVER_TABLE, SetName, TABLE_NAME } from "../../ruleset/names.js";
import { named, note, ok, problem, type Said } from "./finding.js";

/** kube-proxy's chain with one rule per node port in nat, and one per health check node port in filter. */
const NODE_PORTS = "KUBE-NODEPORTS";

/** A table with the same name as kube-proxy's. */
interface ProxyTable {
  readonly family: IpFamily;
  /** Determined from the maps in it. */
  readonly whose: "ours" | "kube-proxy's" | "unknown";
  /** Netlink port of the program that prevents others from changing it. */
  readonly owner?: number;
}

export interface ModeFacts {
  readonly tables: readonly ProxyTable[];
  /** kube-proxy's chains in the tables of iptables-nft. */
  readonly iptables: readonly TableCleanup[];
  /** Number of rules in its chain KUBE-NODEPORTS in nat. 0 means that it serves no node port. */
  readonly iptablesNodePorts: number;
  /** The same in the older iptables. Undefined if it cannot be read. */
  readonly legacyNodePorts: number | undefined;
  /** Number of rules in KUBE-NODEPORTS in filter of iptables-nft, which accept health-check node ports. */
  readonly healthCheckRules: number;
  /** Families for which `handover` has left an active copy. */
  readonly handover: readonly IpFamily[];
  /** Leftovers in the older iptables and in IPVS. */
  readonly foreign: readonly ForeignLeftover[];
}

/** The modes that have rules here. There are several if an earlier one was not cleaned up. */
export type Mode = "nft-proxier" | "nftables" | "iptables" | "ipvs";

interface ModeOptions extends ForeignOptions {
  readonly legacy?: Pick<LegacyTables, "chains" | "rules">;
}

/** @param kernel undefined if nf_tables must not be asked; it has no rules then. Rejects with KernelError. */
export async function readMode(
  kernel: Kernel | undefined,
  families: readonly IpFamily[],
  options: ModeOptions,
): Promise<ModeFacts> {
  const foreign = await findForeignLeftovers(options);
  const legacyNodePorts = await legacyNodePortRules(options);
  const none = { tables: [], iptables: [], iptablesNodePorts: 0, healthCheckRules: 0, handover: [] };
  if (kernel === undefined) return { ...none, legacyNodePorts, foreign };
  const tables: ProxyTable[] = [];
  const handover: IpFamily[] = [];
  for (const family of families) {
    const present = await kernel.tables(family);
    const table = present.find((each) => each.table === TABLE_NAME);
    if (table !== undefined) tables.push(await readTable(kernel, family, table));
    if (present.some((each) => each.table === HANDOVER_TABLE)) handover.push(family);
  }
  const iptables = await findIptablesChains(kernel, families);
  return {
    tables,
    iptables,
    iptablesNodePorts: await rulesOf(kernel, iptables, "nat"),
    legacyNodePorts,
    healthCheckRules: await rulesOf(kernel, iptables, "filter"),
    handover,
    foreign,
  };
}

async function readTable(kernel: Kernel, family: IpFamily, { flags, owner }: TableInfo): Promise<ProxyTable> {
  const ref = { family, table: TABLE_NAME };
  const sets = await kernel.sets(ref);
  const has = (name: string): boolean => sets.some(({ set }) => set === name);
  const isFormer = FORMER_SERVICE_MAPS.some(has);
  const whose = has(SetName.dispatch) ? "ours" : isFormer ? "kube-proxy's" : "unknown";
  const owned = (flags & TableFlag.owner) !== 0 && owner !== undefined && owner !== kernel.portId;
  return { family, whose, owner: owned ? owner : undefined };
}

async function rulesOf(kernel: Kernel, found: readonly TableCleanup[], table: "nat" | "filter"): Promise<number> {
  let count = 0;
  for (const { family } of found.filter((each) => each.table === table)) {
    for (const { base: _, ...chain } of await kernel.chains({ family, table }, [NODE_PORTS])) {
      count += (await kernel.rules({ family, table }, chain.chain)).length;
    }
  }
  return count;
}

/** Sums over both families. A kernel without IPv6 has no such table for it. */
async function legacyNodePortRules({ root = "/", legacy }: ModeOptions): Promise<number | undefined> {
  let count = 0;
  for (const family of IP_FAMILIES) {
    if (!(await presentTables(family, root)).includes("nat")) continue;
    if (legacy === undefined) return undefined;
    try {
      count += await legacy.rules(family, "nat", NODE_PORTS);
    } catch {
      // The table is reported elsewhere as unreadable.
      return undefined;
    }
  }
  return count;
}

/** In the order in which packets meet their rules. */
export function modesOf({ tables, iptables, foreign }: ModeFacts): Mode[] {
  const ipvs = foreign.some(({ kind }) => kind === "ipvs");
  const legacy = foreign.some(({ kind }) => kind === "iptables-legacy");
  return [
    ...(tables.some(({ whose }) => whose === "ours") ? (["nft-proxier"] as const) : []),
    ...(tables.some(({ whose }) => whose === "kube-proxy's") ? (["nftables"] as const) : []),
    // IPVS mode also has chains in iptables.
    ...(!ipvs && (iptables.length > 0 || legacy) ? (["iptables"] as const) : []),
    ...(ipvs ? (["ipvs"] as const) : []),
  ];
}

/** Whether kube-proxy serves, or has served, with rules that nft-proxier does not continue. */
export function isOtherMode(modes: readonly Mode[]): boolean {
  return modes.includes("iptables") || modes.includes("ipvs");
}

export function checkMode(facts: ModeFacts): Said[] {
  const said = [
    ...facts.tables.flatMap(ofTable),
    ...facts.handover.map((family) =>
      ok(`table ${family} ${HANDOVER_TABLE} is a handover copy; nft-proxier removes it when its own rules are active`),
    ),
    ...facts.iptables.flatMap(ofIptables),
    ...facts.foreign.map(ofForeign),
  ];
  if (said.length === 0) said.push(ok("kube-proxy has no rules on this node, so nothing is taken over or removed"));
  return said;
}

function ofTable({ family, whose, owner }: ProxyTable): Said[] {
  const table = `table ${family} ${TABLE_NAME}`;
  if (owner !== undefined && whose === "ours") {
    return [note(`${table} is owned by a running nft-proxier (--own-table); another one waits until it exits`)];
  }
  if (owner !== undefined) {
    const who = `\`nft list table ${family} ${TABLE_NAME}\` shows its name`;
    return [
      problem(
        `${table} is owned by another program (netlink port ${owner}), so the kernel refuses nft-proxier's rules until it exits`,
        `end that program first; ${who}`,
      ),
    ];
  }
  switch (whose) {
    case "ours":
      return [ok(`${table} already belongs to nft-proxier, which continues with it`)];
    case "kube-proxy's":
      return [
        ok(
          `${table} belongs to kube-proxy's nftables mode; nft-proxier takes it over in one transaction, without losing a packet`,
        ),
      ];
    case "unknown":
      return [
        problem(
          `${table} exists but has none of kube-proxy's maps; the first write removes everything in it`,
          `check it with \`nft list table ${family} ${TABLE_NAME}\`; delete it, or let its program use another name`,
        ),
      ];
  }
}

function ofIptables({ family, table, chains, jumps, kept }: TableCleanup): Said[] {
  const where = `${family} ${table} of iptables-nft`;
  const said: Said[] = [];
  if (chains + jumps > 0) {
    said.push(
      ok(
        `kube-proxy has ${counted(chains, "chain")} in ${where}; nft-proxier removes ${chains === 1 ? "it" : "them"}, with ${counted(jumps, "jump")}, when its own rules are active`,
      ),
    );
  }
  if (kept.length > 0) {
    const uses = kept.map(({ chain, user }) => `${chain} (${user})`);
    const remedy = "remove the other program's rule; later, while nft-proxier is stopped, run `nft-proxier cleanup`";
    said.push(
      note(
        `rules of other programs jump to chains of kube-proxy in ${where}, so these chains are kept: ${named(uses)}`,
        remedy,
      ),
    );
  }
  return said;
}

function ofForeign({ kind, seen, isUncertain, command }: ForeignLeftover): Said {
  const remedy = `when nft-proxier serves, run \`${command}\` of kube-proxy's own image on this node`;
  switch (kind) {
    case "ipvs":
      return ok(
        `kube-proxy's IPVS mode has left rules (${seen}); nft-proxier removes them when its own rules are active, and open connections continue until they end`,
      );
    case "iptables-legacy":
      return isUncertain === true
        ? note(`kube-proxy may have rules in iptables-legacy (${seen}); nft-proxier does not remove them`, remedy)
        : problem(
            `kube-proxy has rules in iptables-legacy (${seen}); nft-proxier does not remove them, and they would continue to handle new connections`,
            remedy,
          );
  }
}
