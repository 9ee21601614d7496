/** Answers about this node from the kernel, if no daemon runs. */
import { IP_FAMILIES } from "../../base/ip-families.js";
import { batchLayout } from "../../nft/kernel/element-batch.js";
import type { DaemonAway } from "../../daemon/control/client.js";
import type { Kernel, SetDump, Verdict } from "../../nft/kernel/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import type { ServiceAddress } from "../../model/service-address.js";
import { handoverProblems } from "../../migration/handover/handover-problems.js";
import { API_VERSION, type StatusProblem } from "../../observe/status-report.js";
import { type ConntrackFill, conntrackFill, conntrackFull, forwardingOff } from "../../node/packet-settings.js";
import { unpackNumber, unpackServiceKey } from "../../ruleset/key-packer.js";
import { isBySource, hasAffinity, unpackList } from "../../ruleset/list-values.js";
import { ChainName, FORMER_SERVICE_MAPS, SetName, TABLE_NAME } from "../../ruleset/names.js";

/** A VIP and port, or a node port, from the kernel's maps. */
export interface KernelService extends ServiceAddress {
  /** The list of endpoints for new connections, or their fate if there is none. */
  readonly list:
    | "cluster"
    | "cluster, masqueraded"
    | "local"
    | "by source"
    | "by client"
    | "rejected"
    | "dropped"
    | "another layout";
  /** Undefined if the maps do not contain it (affinity, slots, tables of another layout). */
  readonly endpoints?: number;
}

export interface KernelServiceList {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "KernelServiceList";
  readonly items: readonly KernelService[];
}

/** The status of a node whose daemon does not answer. */
export interface KernelStatus {
  readonly apiVersion: typeof API_VERSION;
  readonly kind: "KernelStatus";
  readonly families: readonly {
    readonly family: IpFamily;
    readonly inForce: boolean;
    /** Number of VIPs and node ports, each with its port and protocol. */
    readonly entries: number;
  }[];
  readonly conntrack?: ConntrackFill;
  readonly problems: readonly StatusProblem[];
}

const LISTS = { cluster: "cluster", masq: "cluster, masqueraded", local: "local", affinity: "by client" } as const;

/** Resolves to undefined if neither family has a table. Rejects with KernelError. */
export async function kernelServices(kernel: Kernel): Promise<KernelServiceList | undefined> {
  const tables = await Promise.all(IP_FAMILIES.map((family) => kernel.tables(family)));
  const present = IP_FAMILIES.filter((_, i) => tables[i]?.some(({ table }) => table === TABLE_NAME));
  if (present.length === 0) return undefined;
  const items = await Promise.all(present.map((family) => servicesOf(kernel, family)));
  return { apiVersion: API_VERSION, kind: "KernelServiceList", items: items.flat() };
}

async function servicesOf(kernel: Kernel, family: IpFamily): Promise<KernelService[]> {
  const sets = new Map((await kernel.sets({ family, table: TABLE_NAME })).map((set) => [set.set, set]));
  const read = (name: string): Promise<readonly MapEntry[]> => entriesOf(kernel, family, sets.get(name));
  const found: KernelService[] = [];
  for (const [of, cluster] of [
    [SetName.services, SetName.servicesCluster],
    [SetName.nodePorts, SetName.nodePortsCluster],
  ] as const) {
    const byKey = new Map((await read(cluster)).map(({ key, value }) => [hex(key), value]));
    for (const { key, value } of await read(of)) {
      const address = unpackServiceKey(key, family);
      if (address !== undefined) found.push({ ...address, ...listOf(value, byKey.get(hex(key))) });
    }
  }
  for (const name of [SetName.noEndpointServices, SetName.noEndpointNodePorts, ...FORMER_SERVICE_MAPS]) {
    const other = FORMER_SERVICE_MAPS.includes(name);
    for (const { key, verdict } of await read(name)) {
      const isDropped = verdict?.verdict === "goto" && verdict.chain === ChainName.drop;
      const list = other ? "another layout" : isDropped ? "dropped" : "rejected";
      const address = unpackServiceKey(key, family);
      if (address !== undefined) found.push({ ...address, list, ...(!other && { endpoints: 0 }) });
    }
  }
  return found;
}

/** @param ofCluster the list for packets from inside the cluster, if the source decides. */
function listOf(value: number, ofCluster: number | undefined): Pick<KernelService, "list" | "endpoints"> {
  if (hasAffinity(value)) return { list: "by client" };
  if (!isBySource(value)) {
    const list = unpackList(value);
    return { list: LISTS[list.kind], ...(list.slots === undefined && { endpoints: list.count }) };
  }
  if (ofCluster === undefined || hasAffinity(ofCluster)) return { list: "by source" };
  const { slots, count } = unpackList(ofCluster);
  return { list: "by source", ...(slots === undefined && { endpoints: count }) };
}

interface MapEntry {
  readonly key: Uint8Array;
  /** The value in a data map. */
  readonly value: number;
  readonly verdict?: Verdict;
}

async function entriesOf(kernel: Kernel, family: IpFamily, set: SetDump | undefined): Promise<readonly MapEntry[]> {
  if (set === undefined) return [];
  const batch = await kernel.elements({ family, table: TABLE_NAME }, set);
  const { stride, data } = batchLayout(batch);
  return Array.from({ length: batch.count }, (_, i) => {
    const at = i * stride;
    const value = data < 0 ? 0 : unpackNumber(batch.bytes.subarray(at + data, at + data + 4));
    const verdict = batch.verdicts?.[value];
    return { key: batch.bytes.subarray(at, at + batch.keyLen), value, verdict };
  });
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

/** The report always has the problem that no daemon answers. Rejects with KernelError. */
export async function kernelStatus(
  kernel: Kernel,
  { message, remedy = "" }: Pick<DaemonAway, "message" | "remedy">,
): Promise<KernelStatus> {
  const services = await kernelServices(kernel);
  const tables = await Promise.all(IP_FAMILIES.map((family) => kernel.tables(family)));
  const families = IP_FAMILIES.map((family, i) => ({
    family,
    inForce: tables[i]?.some(({ table }) => table === TABLE_NAME) ?? false,
    entries: services?.items.filter((item) => item.family === family).length ?? 0,
  }));
  const stay = "until then the active rules stay, but do not follow changes of services";
  const problems: StatusProblem[] = [{ what: message, remedy: services === undefined ? remedy : `${remedy}; ${stay}` }];
  if (services === undefined) {
    problems.push({ what: `there is no table ${TABLE_NAME}, so no rules of nft-proxier are active`, remedy });
  }
  for (const { family, entries } of families) {
    const off = entries === 0 ? undefined : await forwardingOff(family);
    if (off !== undefined) problems.push(off);
  }
  problems.push(...(await handoverProblems(kernel)));
  const conntrack = await conntrackFill();
  const full = conntrackFull(conntrack);
  if (full !== undefined) problems.push(full);
  return { apiVersion: API_VERSION, kind: "KernelStatus", families, conntrack, problems };
}
