/**
 * The tables of iptables-nft in the state that kube-proxy's iptables mode and its neighbours leave, as text for nft.
 * Chains, hooks and verdicts are the same; matches are nft's own instead of iptables extensions.
 */
import type { Transport } from "../../lab/agent.ts";
import { type Family, type Lab, PLAN } from "../../lab/topology.ts";
import { clusterAddress, nodePortOf, POD_PORT, SERVICE_PORT, type ServiceSpec, TRANSPORTS } from "./objects.ts";

const MARK = "0x4000";

/** Networks that the node's firewall blocks. */
const BLOCKED = { ip: "198.18.0.0/15", ip6: "2001:db8:bad::/48" } as const;

export type TableName = "nat" | "filter" | "mangle";
export type Chains = Record<string, string[]>;

/** Other programs' chains in these tables: kubelet, kube-router, a CNI plugin, the node's firewall. */
function others(family: Family): Readonly<Record<TableName, Chains>> {
  return {
    nat: {
      PREROUTING: ["counter jump cali-PREROUTING"],
      POSTROUTING: ["counter jump CNI-HOSTPORT-MASQ"],
      "KUBE-MARK-DROP": ["counter meta mark set meta mark or 0x8000"],
      "KUBE-KUBELET-CANARY": [],
      "KUBE-ROUTER-SERVICES": ["counter return"],
      "cali-PREROUTING": ["counter return"],
      "CNI-HOSTPORT-MASQ": ["counter return"],
    },
    filter: {
      INPUT: ["counter jump KUBE-FIREWALL", `${family} saddr ${BLOCKED[family]} counter drop`],
      OUTPUT: ["counter jump KUBE-FIREWALL"],
      "KUBE-FIREWALL": ["meta mark and 0x8000 == 0x8000 counter drop"],
      "KUBE-KUBELET-CANARY": [],
      "KUBE-ROUTER-INPUT": ["counter return"],
    },
    mangle: { "KUBE-KUBELET-CANARY": [], "KUBE-IPTABLES-HINT": [] },
  };
}

const BASE: Readonly<Record<TableName, Readonly<Record<string, string>>>> = {
  nat: {
    PREROUTING: "type nat hook prerouting priority -100",
    INPUT: "type nat hook input priority 100",
    OUTPUT: "type nat hook output priority -100",
    POSTROUTING: "type nat hook postrouting priority 100",
  },
  filter: {
    INPUT: "type filter hook input priority 0",
    FORWARD: "type filter hook forward priority 0",
    OUTPUT: "type filter hook output priority 0",
  },
  mangle: {},
};

/** A name like kube-proxy's: a hash of 16 characters. */
const id = (...parts: readonly (string | number)[]): string =>
  parts
    .join("")
    .toUpperCase()
    .replaceAll(/[^A-Z0-9]/g, "")
    .padEnd(16, "X")
    .slice(-16);

/** kube-proxy's own rules, by table and chain, for ClusterIPs and node ports. */
function kubeProxyChains(lab: Lab, family: Family, services: readonly ServiceSpec[]): Record<TableName, Chains> {
  const nat: Chains = {
    PREROUTING: ["counter jump KUBE-SERVICES"],
    OUTPUT: ["counter jump KUBE-SERVICES"],
    POSTROUTING: ["counter jump KUBE-POSTROUTING"],
    "KUBE-SERVICES": [],
    "KUBE-NODEPORTS": [],
    "KUBE-MARK-MASQ": [`counter meta mark set meta mark or ${MARK}`],
    "KUBE-POSTROUTING": [
      `meta mark and ${MARK} != ${MARK} counter return`,
      `counter meta mark set meta mark xor ${MARK}`,
      "counter masquerade fully-random",
    ],
    "KUBE-PROXY-CANARY": [],
  };
  for (const service of services) {
    for (const protocol of service.protocols ?? TRANSPORTS) addService(nat, lab, family, service, protocol);
  }
  nat["KUBE-SERVICES"].push("fib daddr type local counter jump KUBE-NODEPORTS");
  const filter: Chains = {
    INPUT: ["KUBE-PROXY-FIREWALL", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES"].map((to) => `counter jump ${to}`),
    FORWARD: ["KUBE-PROXY-FIREWALL", "KUBE-FORWARD", "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"].map(
      (to) => `counter jump ${to}`,
    ),
    OUTPUT: ["KUBE-PROXY-FIREWALL", "KUBE-SERVICES"].map((to) => `ct state new counter jump ${to}`),
    "KUBE-SERVICES": [],
    "KUBE-EXTERNAL-SERVICES": [],
    "KUBE-NODEPORTS": [],
    "KUBE-FORWARD": [`meta mark and ${MARK} == ${MARK} counter accept`, "ct state related,established counter accept"],
    "KUBE-PROXY-FIREWALL": [],
    "KUBE-PROXY-CANARY": [],
  };
  for (const { n, endpoints } of services) {
    if (endpoints.length > 0) continue;
    filter["KUBE-SERVICES"].push(`${family} daddr ${clusterAddress(n)[family]} counter reject`);
  }
  return { nat, filter, mangle: { "KUBE-PROXY-CANARY": [] } };
}

function addService(nat: Chains, lab: Lab, family: Family, service: ServiceSpec, protocol: Transport): void {
  const pods = service.endpoints.map((endpoint) => lab.pod(typeof endpoint === "string" ? endpoint : endpoint.pod));
  if (pods.length === 0) return;
  const name = id(service.name, protocol);
  const [svc, ext] = [`KUBE-SVC-${name}`, `KUBE-EXT-${name}`];
  const clusterIP = `${family} daddr ${clusterAddress(service.n)[family]} ${protocol} dport ${SERVICE_PORT}`;
  nat["KUBE-SERVICES"].push(`${clusterIP} counter jump ${svc}`);
  nat["KUBE-NODEPORTS"].push(`${protocol} dport ${nodePortOf(service.n)} counter jump ${ext}`);
  nat[ext] = ["counter jump KUBE-MARK-MASQ", `counter jump ${svc}`];
  nat[svc] = [`${family} saddr != ${PLAN.clusterCIDR[family]} ${clusterIP} counter jump KUBE-MARK-MASQ`];
  pods.forEach((pod, index) => {
    const sep = `KUBE-SEP-${id(service.name, protocol, pod.name)}`;
    const left = pods.length - index;
    nat[svc].push(`${left > 1 ? `numgen random mod ${left} == 0 ` : ""}counter jump ${sep}`);
    const address = pod.address[family];
    const to = family === "ip" ? `${address}:${POD_PORT}` : `[${address}]:${POD_PORT}`;
    nat[sep] = [
      `${family} saddr ${address} counter jump KUBE-MARK-MASQ`,
      `meta l4proto ${protocol} counter dnat to ${to}`,
    ];
  });
}

/** The chains of one family's tables: only those of others, or also those of kube-proxy in iptables mode. */
export function iptablesChains(lab: Lab, family: Family, services?: readonly ServiceSpec[]): Record<TableName, Chains> {
  const kubeProxy = services === undefined ? undefined : kubeProxyChains(lab, family, services);
  const tables: Record<TableName, Chains> = { nat: {}, filter: {}, mangle: {} };
  for (const [table, chains] of Object.entries(others(family)) as [TableName, Chains][]) {
    const all = tables[table];
    for (const chain of Object.keys(BASE[table])) all[chain] = [];
    for (const part of [kubeProxy?.[table] ?? {}, chains]) {
      for (const [chain, rules] of Object.entries(part)) all[chain] = [...(all[chain] ?? []), ...rules];
    }
  }
  return tables;
}

/** The same as text. */
export function iptablesTables(lab: Lab, family: Family, services?: readonly ServiceSpec[]): string {
  return Object.entries(iptablesChains(lab, family, services))
    .map(([table, chains]) => tableText(family, table as TableName, chains))
    .join("");
}

function tableText(family: Family, table: TableName, chains: Chains): string {
  const lines = Object.keys(chains).map((chain) => {
    const base = BASE[table][chain];
    return `add chain ${family} ${table} ${chain}${base === undefined ? "" : ` { ${base} ; policy accept ; }`}`;
  });
  const rules = Object.entries(chains).flatMap(([chain, all]) =>
    all.map((rule) => `add rule ${family} ${table} ${chain} ${rule}`),
  );
  return [`add table ${family} ${table}`, ...lines, ...rules, ""].join("\n");
}
