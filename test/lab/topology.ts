/**
 * A small cluster made of namespaces, inside the private set that enter.mjs makes:
 *
 *     pod a, b, …  10.244.0.x ── podN ─┐
 *                                      ├─ node 192.0.2.10 ── out0 ── beyond (the default route: answers for every
 *     pod c, …     10.244.0.x ─ cbr0 ──┘   │           │              service address that leaves the node untouched)
 *                                         eth0        eth1
 *                                          │           │
 *     remote node 192.0.2.11,              │           client 198.51.100.x
 *     its pods 10.244.1.x (one namespace) ─┘           (outside the cluster; reaches everything through the node)
 *
 * Every path goes through the node in both directions, so no reply can bypass the node that tracks the connection. There is no route out.
 * Pods do not masquerade. Addresses come in pairs, IPv4 and IPv6, with the same plan.
 */
import { existsSync } from "node:fs";

import { Namespace } from "./namespace.ts";
import { patience } from "./patience.ts";

export type Family = "ip" | "ip6";
export const FAMILIES: readonly Family[] = ["ip", "ip6"];

/** One address per family. */
export type AddressPair = Readonly<Record<Family, string>>;

export interface PodOptions {
  readonly name: string;
  /** Whether the pod runs on the node or on the remote one. */
  readonly on: "node" | "remote";
  /** How a pod is connected to the node: a veth of its own (`pod0`, `pod1`, …), or a port of the bridge `cbr0`. */
  readonly link?: "veth" | "bridge";
}

export interface LabOptions {
  readonly pods: readonly PodOptions[];
}

export interface Pod {
  readonly name: string;
  readonly on: "node" | "remote";
  readonly address: AddressPair;
  /** Pods of the remote node share one namespace: bind to `address`. */
  readonly namespace: Namespace;
}

/** The fixed plan of addresses. Documentation ranges stand for everything outside the pod and service networks. */
export const PLAN = {
  /** The node's own addresses, on eth0. */
  node: { ip: "192.0.2.10", ip6: "2001:db8:1::10" },
  /** Also on eth0. */
  nodeSecond: { ip: "192.0.2.20", ip6: "2001:db8:1::20" },
  /** On eth1, towards the client. */
  nodeOutside: { ip: "198.51.100.1", ip6: "2001:db8:2::1" },
  /** On the loopback interface, but not a loopback address. */
  nodeOnLoopback: { ip: "192.0.2.77", ip6: "2001:db8:77::1" },
  /** On every pod link and on cbr0. */
  podGateway: { ip: "10.244.0.1", ip6: "fd00:10:244::1" },
  remoteNode: { ip: "192.0.2.11", ip6: "2001:db8:1::11" },
  client: { ip: "198.51.100.10", ip6: "2001:db8:2::10" },
  /** The client's second address, in the other half of its network. */
  clientSecond: { ip: "198.51.100.210", ip6: "2001:db8:2:0:8000::10" },
  clusterCIDR: { ip: "10.244.0.0/16", ip6: "fd00:10:244::/56" },
  /** The node's own part of clusterCIDR. */
  podCIDR: { ip: "10.244.0.0/24", ip6: "fd00:10:244::/64" },
  serviceCIDR: { ip: "10.96.0.0/16", ip6: "fd00:10:96::/112" },
  /** Range of load-balancer and external addresses. */
  outsideVIPs: { ip: "203.0.113.0/24", ip6: "2001:db8:cb::/64" },
} as const;

const OUT = {
  node: { ip: "172.31.255.1", ip6: "2001:db8:ff::1" },
  beyond: { ip: "172.31.255.2", ip6: "2001:db8:ff::2" },
};
const LINK_LOCAL_GATEWAY = "fe80::1";

const COMMON_SYSCTL = {
  "net.ipv4.conf.all.rp_filter": 0,
  "net.ipv4.conf.default.rp_filter": 0,
  "net.ipv4.conf.all.send_redirects": 0,
  "net.ipv4.conf.default.send_redirects": 0,
  "net.ipv4.conf.all.accept_redirects": 0,
  "net.ipv4.conf.default.accept_redirects": 0,
  "net.ipv6.conf.all.accept_redirects": 0,
  "net.ipv6.conf.default.accept_redirects": 0,
  // Addresses work at once; the links have no other users.
  "net.ipv6.conf.all.accept_dad": 0,
  "net.ipv6.conf.default.accept_dad": 0,
  "net.ipv6.conf.default.accept_ra": 0,
  // Keep bursts queued until the neighbour's address is resolved, however slow this machine is.
  "net.ipv4.neigh.default.unres_qlen_bytes": 16 << 20,
  "net.ipv6.neigh.default.unres_qlen_bytes": 16 << 20,
  // Seconds until a neighbour that does not answer counts as unreachable (the kernel's default is 3).
  ...Object.fromEntries(
    ["ipv4", "ipv6"].flatMap((version) =>
      ["mcast_solicit", "ucast_solicit"].map((name) => [`net.${version}.neigh.default.${name}`, patience(3)]),
    ),
  ),
  // Send every reject: exempt all ICMP types from the limit of one error per second and destination, and from the namespace's total limit.
  // However high it is, the total limit loses one of its first two errors if two CPUs send them at once (icmp_global_allow).
  "net.ipv4.icmp_ratemask": 0,
  "net.ipv6.icmp.ratemask": "",
  "net.ipv6.icmp.ratelimit": 0,
};

const NODE_SYSCTL = {
  "net.ipv4.ip_forward": 1,
  "net.ipv6.conf.all.forwarding": 1,
  "net.ipv6.conf.default.forwarding": 1,
};

let labs = 0;

function both(lines: (family: Family, bits: number) => readonly string[]): string[] {
  return [...lines("ip", 32), ...lines("ip6", 128)];
}

function addressLine(address: string, bits: number, device: string): string {
  return `address add ${address}/${bits} dev ${device}${address.includes(":") ? " nodad" : ""}`;
}

export class Lab {
  readonly node: Namespace;
  /** Outside the cluster. */
  readonly client: Namespace;
  /** The remote node and its pods. */
  readonly remote: Namespace;
  /** Behind the node's default route. Every service address and outside address is local here. */
  readonly beyond: Namespace;
  readonly pods: readonly Pod[];
  readonly #own: readonly Namespace[];

  private constructor(parts: Pick<Lab, "node" | "client" | "remote" | "beyond" | "pods">, own: readonly Namespace[]) {
    this.node = parts.node;
    this.client = parts.client;
    this.remote = parts.remote;
    this.beyond = parts.beyond;
    this.pods = parts.pods;
    this.#own = own;
  }

  /**
   * Builds the namespaces, links and routes. Several labs may coexist. Throws outside enter.mjs, so the machine's own network is never
   * touched.
   */
  static async create(options: LabOptions): Promise<Lab> {
    if (process.env["NFT_PROXIER_LAB"] !== "1" || !existsSync("/run/netns"))
      throw new Error("a lab needs its own namespaces. Run `node test/lab/enter.mjs -- <command>`.");
    const id = `${process.pid}-${++labs}`;
    const here = options.pods.filter(({ on }) => on === "node");
    const names = ["node", "client", "remote", "beyond", ...here.map(({ name }) => `pod-${name}`)];
    const own = await Namespace.createAll(names.map((name) => `${id}-${name}`));
    const [node, client, remote, beyond, ...podsHere] = own as readonly [Namespace, Namespace, Namespace, Namespace];
    const left = (podsHere as Namespace[]).values();
    const pods = options.pods.map((pod, index) => podOf(pod, index, pod.on === "node" ? left.next().value! : remote));
    await Promise.all(
      own.map((namespace) =>
        namespace.sysctl(namespace === node ? { ...COMMON_SYSCTL, ...NODE_SYSCTL } : COMMON_SYSCTL),
      ),
    );
    const lines = linesFor({ client, remote, beyond }, pods, options);
    // The node creates all links, so the other ends exist afterwards.
    await node.ipOnly(lines.node);
    await Promise.all([...lines.others].map(([namespace, its]) => namespace.ipOnly(its)));
    await Promise.all(own.map((namespace) => namespace.addressesReached()));
    return new Lab({ node, client, remote, beyond, pods }, own);
  }

  pod(name: string): Pod {
    const found = this.pods.find((pod) => pod.name === name);
    if (!found) throw new Error(`the lab has no pod ${name}`);
    return found;
  }

  async destroy(): Promise<void> {
    await Promise.all(this.#own.map((namespace) => namespace.destroy()));
  }
}

function podOf({ name, on }: PodOptions, index: number, namespace: Namespace): Pod {
  const host = index + 5;
  const address =
    on === "node"
      ? { ip: `10.244.0.${host}`, ip6: `fd00:10:244::${host.toString(16)}` }
      : { ip: `10.244.1.${host}`, ip6: `fd00:10:244:1::${host.toString(16)}` };
  return { name, on, address, namespace };
}

interface Lines {
  readonly node: readonly string[];
  /** Lines for the other ends of the node's links. */
  readonly others: ReadonlyMap<Namespace, readonly string[]>;
}

/** Returns the commands that create the links, addresses and routes. */
function linesFor(parts: Pick<Lab, "client" | "remote" | "beyond">, pods: readonly Pod[], options: LabOptions): Lines {
  const { client, remote, beyond } = parts;
  const onRemote = pods.filter(({ on }) => on === "remote");
  const remoteLines = [
    ...outsideLines({ address: PLAN.remoteNode, bits: [24, 64], gateway: PLAN.node }),
    ...onRemote.flatMap(({ address }) => both((family, bits) => [addressLine(address[family], bits, "lo")])),
  ];
  const clientLines = [
    ...outsideLines({ address: PLAN.client, bits: [24, 64], gateway: PLAN.nodeOutside }),
    ...both((family, bits) => [addressLine(PLAN.clientSecond[family], bits === 32 ? 24 : 64, "eth0")]),
  ];
  const beyondLines = [
    ...outsideLines({ address: OUT.beyond, bits: [30, 126], gateway: OUT.node }),
    ...both((family) => [
      `route add local ${PLAN.serviceCIDR[family]} dev lo`,
      `route add local ${PLAN.outsideVIPs[family]} dev lo`,
    ]),
  ];
  const others = new Map([
    [remote, remoteLines],
    [client, clientLines],
    [beyond, beyondLines],
  ]);
  const node = nodeLines(parts);
  for (const [index, pod] of pods.entries()) {
    if (pod.on === "remote") continue;
    node.push(...podLinkLines(pod, options.pods[index], index));
    others.set(pod.namespace, podLines(pod));
  }
  return { node, others };
}

/** Links to the remote node, the client and the rest of the world; the bridge; addresses and routes of the node. */
function nodeLines({ client, remote, beyond }: Pick<Lab, "client" | "remote" | "beyond">): string[] {
  return [
    "link set lo up",
    `link add eth0 type veth peer name eth0 netns ${remote.name}`,
    `link add eth1 type veth peer name eth0 netns ${client.name}`,
    `link add out0 type veth peer name eth0 netns ${beyond.name}`,
    ...["eth0", "eth1", "out0"].map((device) => `link set ${device} up`),
    ...both((family, bits) => [
      addressLine(PLAN.node[family], bits === 32 ? 24 : 64, "eth0"),
      addressLine(PLAN.nodeSecond[family], bits, "eth0"),
      addressLine(PLAN.nodeOutside[family], bits === 32 ? 24 : 64, "eth1"),
      addressLine(PLAN.nodeOnLoopback[family], bits, "lo"),
      addressLine(OUT.node[family], bits === 32 ? 30 : 126, "out0"),
    ]),
    // The node sends from its own address whenever a route does not decide.
    ...both((f) => [`route add default via ${OUT.beyond[f]} dev out0 src ${PLAN.node[f]}`]),
    `route add 10.244.1.0/24 via ${PLAN.remoteNode.ip} dev eth0`,
    `route add fd00:10:244:1::/64 via ${PLAN.remoteNode.ip6} dev eth0`,
    "link add cbr0 type bridge",
    ...gatewayLines("cbr0"),
  ];
}

/** The other end of one of the node's outside links. */
function outsideLines(end: {
  readonly address: AddressPair;
  readonly bits: readonly [ip: number, ip6: number];
  readonly gateway: AddressPair;
}): string[] {
  const { address, bits, gateway } = end;
  return [
    "link set lo up",
    "link set eth0 up",
    addressLine(address.ip, bits[0], "eth0"),
    addressLine(address.ip6, bits[1], "eth0"),
    ...both((family) => [`route add default via ${gateway[family]} dev eth0`]),
  ];
}

/** The node's end of a pod link or of the bridge. Masquerading towards the pods uses its addresses. */
function gatewayLines(device: string): string[] {
  return [
    `link set ${device} up`,
    ...both((family, bits) => [addressLine(PLAN.podGateway[family], bits, device)]),
    addressLine(LINK_LOCAL_GATEWAY, 64, device),
  ];
}

function podLinkLines({ address, namespace }: Pod, { link }: PodOptions, index: number): string[] {
  const device = `pod${index}`;
  const bridged = link === "bridge";
  return [
    `link add ${device} type veth peer name eth0 netns ${namespace.name}`,
    // With br_netfilter, a hairpin connection is bridged back to its origin.
    ...(bridged
      ? [`link set ${device} master cbr0 up`, `link set ${device} type bridge_slave hairpin on`]
      : gatewayLines(device)),
    ...both((family, bits) => [`route add ${address[family]}/${bits} dev ${bridged ? "cbr0" : device}`]),
  ];
}

/** Host routes only: pods of one bridge reach each other through the node, which tracks their connections. */
function podLines({ address }: Pod): string[] {
  return [
    "link set lo up",
    "link set eth0 up",
    ...both((family, bits) => [addressLine(address[family], bits, "eth0")]),
    `route add ${PLAN.podGateway.ip}/32 dev eth0`,
    `route add default via ${PLAN.podGateway.ip} dev eth0`,
    `route add default via ${LINK_LOCAL_GATEWAY} dev eth0`,
  ];
}
