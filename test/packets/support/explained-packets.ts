/** Compares what `explain` says about packets with what happens to them. */
import { explainArriving, type Explanation } from "../../../src/tools/explain/explain-packet.ts";
import { AF } from "../../../src/base/ip-families.ts";
import { addressBytes } from "../../../src/base/ip.ts";
import { IpsetAttribute, IpsetCommand, IpsetTable } from "../../../src/netlink/ipset-table.ts";
import {
  attribute,
  nest,
  networkAttribute,
  number,
  RequestFlag,
  text,
} from "../../../src/nft/kernel/netlink-message.ts";
import { NftKernel } from "../../../src/nft/kernel/nft-kernel.ts";
import { expect } from "vitest";
import { type Fate, Fates } from "../../lab/fate.ts";
import { eventually } from "../../lab/eventually.ts";
import { patience } from "../../lab/patience.ts";
import { type AddressPair, FAMILIES, type Family, PLAN } from "../../lab/topology.ts";
import { Cluster } from "./cluster.ts";
import {
  clusterAddress,
  loadBalancerAddress,
  nodePortOf,
  POD_PORT,
  SERVICE_PORT,
  serviceObjects,
  type ServiceSpec,
} from "./objects.ts";
import type { NetworkSet } from "./program-rules.ts";

/** linux/netfilter/ipset/ip_set.h */
const [IPSET_ATTR_IP, IPSET_ATTR_CIDR] = [1, 3];
/** How long to wait for a packet that should arrive, and for one that should not. A veth delivers within the send. */
const ARRIVAL_MS = patience(3000);
const SILENCE_MS = 5;

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"], protocols: ["tcp", "udp"] };
const two: ServiceSpec = { name: "two", n: 2, endpoints: ["a", "r1"], protocols: ["tcp", "udp"] };
const PODS = ["a", "b", "c", "r1"] as const;
/** No service has it. */
export const OTHER_PORT = 9100;
export const PORTS = [SERVICE_PORT, POD_PORT, OTHER_PORT, nodePortOf(web.n), nodePortOf(two.n)];

export interface Asked {
  readonly from: string;
  readonly family: Family;
  readonly protocol: "tcp" | "udp";
  readonly source: string;
  readonly sourcePort?: number;
  readonly destination: string;
  readonly port: number;
}

/** Whether a packet or its reply has the fate that the explanation states. */
interface Comparison {
  readonly agrees: boolean;
  /** "a:8080, answered", "dropped", "rejected". */
  readonly seen: string;
  /** All that may happen to the packet according to the explanation. */
  readonly said: readonly string[];
}

export interface Compared {
  readonly result: "agreed" | "unknown" | "contradicted";
  /** The rule on which the result depends, or the contradiction. */
  readonly text: string;
}

export class ExplainedPackets {
  readonly cluster: Cluster;
  readonly kernel: NftKernel;
  readonly fates: Fates;

  private constructor(cluster: Cluster, kernel: NftKernel, fates: Fates) {
    this.cluster = cluster;
    this.kernel = kernel;
    this.fates = fates;
  }

  static async create(): Promise<ExplainedPackets> {
    const pods = [
      { name: "a", on: "node" },
      { name: "b", on: "node" },
      { name: "c", on: "node", link: "bridge" },
      { name: "r1", on: "remote" },
    ] as const;
    const cluster = await Cluster.create(pods, PODS);
    await cluster.apply([web, two].flatMap((service) => serviceObjects(cluster.lab, service)));
    const kernel = await NftKernel.open({ netns: `/run/netns/${cluster.lab.node.name}` });
    const fates = new Fates();
    const { node, client, remote, beyond } = cluster.lab;
    const own = ["a", "b", "c"].map((name) => [name, cluster.lab.pod(name).namespace] as const);
    const servers = new Map([...Object.entries({ node, client, r1: remote, beyond }), ...own]);
    for (const [name, namespace] of servers) for (const port of PORTS) await fates.serve(namespace, name, port);
    const packets = new ExplainedPackets(cluster, kernel, fates);
    // Every neighbour is known before rules may drop packets that ask for it.
    for (const asked of FAMILIES.flatMap((family) => packets.of(family)).filter(({ from }) => from !== "a"))
      await eventually(async () => expect(await packets.#send(asked, ARRIVAL_MS)).toMatchObject({ reply: true }));
    return packets;
  }

  async destroy(): Promise<void> {
    await this.fates.stop();
    await this.kernel.close();
    await this.cluster.destroy();
  }

  /** Creates sets of ipset (hash:net). */
  async addSets(sets: readonly NetworkSet[]): Promise<void> {
    const ipset = new IpsetTable(this.kernel.connection);
    for (const { name, networks } of sets) {
      const named = attribute(IpsetAttribute.name, text(name));
      await ipset.request(IpsetCommand.create, RequestFlag.ack | RequestFlag.create | RequestFlag.exclusive, [
        named,
        attribute(IpsetAttribute.type, text("hash:net")),
        attribute(IpsetAttribute.revision, number(6, 1)),
        attribute(IpsetAttribute.family, number(AF.ip, 1)),
        nest(IpsetAttribute.data, []),
      ]);
      for (const network of networks) {
        const [address = "", length = "32"] = network.split("/");
        const bytes = networkAttribute(1, addressBytes(address) ?? new Uint8Array());
        const element = [nest(IPSET_ATTR_IP, [bytes]), attribute(IPSET_ATTR_CIDR, number(Number(length), 1))];
        await ipset.request(IpsetCommand.add, RequestFlag.ack | RequestFlag.exclusive, [
          named,
          nest(IpsetAttribute.data, element),
        ]);
      }
    }
  }

  async removeSets(sets: readonly NetworkSet[]): Promise<void> {
    const ipset = new IpsetTable(this.kernel.connection);
    // The kernel frees a rule's set later than the rule.
    for (const { name } of sets) await eventually(async () => expect(await ipset.destroy(name)).toBe("destroyed"));
  }

  /** Two pods, a client outside the cluster, the node, and an endpoint, each to four addresses. */
  of(family: Family): Asked[] {
    return ["b", "c", "client", "node", "a"].flatMap((from) => {
      const source = this.cluster.source(from).address![family];
      return [
        { protocol: "tcp", destination: clusterAddress(web.n)[family], port: SERVICE_PORT },
        { protocol: "udp", destination: clusterAddress(two.n)[family], port: SERVICE_PORT },
        { protocol: "tcp", destination: PLAN.node[family], port: nodePortOf(web.n) },
        { protocol: "tcp", destination: loadBalancerAddress(two.n)[family], port: SERVICE_PORT },
      ].map((to) => ({ ...to, from, family, source }) as Asked);
    });
  }

  async compare(asked: Asked): Promise<Compared> {
    const { from, family, protocol, source, destination, port } = asked;
    const packet = { family, protocol, source, destination, destinationPort: port, inInterface: "" };
    const said = await explainArriving(this.kernel, packet);
    const about = `${protocol} ${from} → ${destination} port ${port}`;
    if (isUnknown(said)) {
      const rule = said.unknown[0] ?? [said.reply, ...said.endpoints.map(({ reply }) => reply)].find(Boolean)?.by;
      return { result: "unknown", text: `${about}: ${rule ?? ""}` };
    }
    const { agrees, seen, said: may } = await this.comparison(asked, said);
    if (agrees) return { result: "agreed", text: `${about}: ${seen}` };
    return { result: "contradicted", text: `${about}: said ${may.join(" or ")}, seen ${seen}` };
  }

  /** Sends the packet, and compares its fate with an explanation that is not unknown. */
  async comparison(asked: Asked, explanation: Explanation): Promise<Comparison> {
    const seen = this.#seenText(await this.#send(asked, isSilent(explanation) ? SILENCE_MS : ARRIVAL_MS), asked);
    const said = this.#saidTexts(explanation, asked);
    // The explanation of a packet to this node itself does not name the source that it sees.
    const isUnnamed = explanation.endpoints.length === 0 && said.includes(seen.replace(" masqueraded", ""));
    return { agrees: said.includes(seen) || isUnnamed, seen, said };
  }

  #send({ from, ...asked }: Asked, waitMs: number): Promise<Fate> {
    return this.fates.send({ ...asked, from: this.cluster.source(from).namespace, waitMs });
  }

  #seenText({ at, port, seen, reply, error }: Fate, { source }: Asked): string {
    if (at === "") return error > 1 ? "rejected" : "dropped";
    const from = seen === source || this.cluster.nodeAddresses.has(source) ? "" : " masqueraded";
    return `${at}:${port}${from}, ${reply ? "answered" : "not answered"}`;
  }

  #saidTexts({ verdict, endpoints, reply }: Explanation, { from, destination, port }: Asked): string[] {
    const said = (to: string, its: Explanation["reply"]): string[] =>
      (its === undefined
        ? ["answered"]
        : its.verdict === "unknown"
          ? ["answered", "not answered"]
          : ["not answered"]
      ).map((end) => `${to}, ${end}`);
    if (verdict === "dropped" || verdict === "rejected") return [verdict];
    if (verdict === "untouched") return said(`${this.#nameOf(destination)}:${port}`, reply);
    if (verdict === "redirected") return PORTS.flatMap((each) => said(`node:${each}`, reply));
    return endpoints.flatMap((each) => {
      if (each.verdict !== undefined) return [each.verdict];
      // An IPv4 host drops packets from its own address.
      const own = each.reply?.by.includes("endpoint itself") === true ? ["dropped"] : [];
      const masqueraded = each.masqueraded && from !== "node" ? " masqueraded" : "";
      return [...said(`${this.#nameOf(each.address)}:${each.port}${masqueraded}`, each.reply), ...own];
    });
  }

  #nameOf(address: string): string {
    const { lab, nodeAddresses } = this.cluster;
    const has = (addresses: AddressPair): boolean => FAMILIES.some((family) => addresses[family] === address);
    const pod = PODS.find((name) => has(lab.pod(name).address));
    if (pod !== undefined || nodeAddresses.has(address)) return pod ?? "node";
    return has(PLAN.client) ? "client" : has(PLAN.remoteNode) ? "r1" : "beyond";
  }
}

const isUnknown = ({ verdict, endpoints, reply }: Explanation): boolean =>
  verdict === "unknown" || [reply, ...endpoints.map((each) => each.reply)].some((each) => each?.verdict === "unknown");

const isSilent = ({ verdict, endpoints, reply }: Explanation): boolean =>
  ["dropped", "mixed"].includes(verdict) ||
  [reply, ...endpoints.map((each) => each.reply)].some((each) => each !== undefined);
