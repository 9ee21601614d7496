/** A small cluster of random objects that change at random: few names and addresses, so that services conflict. */
import type { V1EndpointSlice, V1Node, V1Service, V1ServiceCIDR } from "@kubernetes/client-node";

import type { IpFamily } from "../../../../src/base/ip.js";
import type { ObjectSink } from "../../../../src/objects/object-sink.js";
import { type ApiObject, decoded } from "../../../support/decoded.js";
import type { Dice } from "../../../support/dice.ts";

export const NODE = "here";
export const FAMILIES: readonly IpFamily[] = ["ip", "ip6"];
/** The node's own addresses; the first of each family is its node IP. */
export const NODE_ADDRESSES: Readonly<Record<IpFamily, readonly string[]>> = {
  ip: ["192.0.2.1", "192.0.2.2"],
  ip6: ["2001:db8:1::1", "2001:db8:1::2"],
};
export const POD_CIDRS: Readonly<Record<IpFamily, string>> = { ip: "10.244.0.0/24", ip6: "fd00:10:244::/64" };
/** Sources of connections: no endpoint, so that no connection comes back to its origin. */
export const SOURCES = {
  pod: { ip: "10.244.0.200", ip6: "fd00:10:244::c8" },
  node: { ip: "192.0.2.1", ip6: "2001:db8:1::1" },
  outside: { ip: "198.51.100.7", ip6: "2001:db8:2::7" },
} as const;
export type SourceName = keyof typeof SOURCES;

const range = (count: number): readonly number[] => Array.from({ length: count }, (_, i) => i + 1);
const NAMES = range(7).map((n) => `s${n}`);
const clusterIP = (family: IpFamily, n: number): string => (family === "ip" ? `10.96.0.${n}` : `fd00:10:96::${n}`);
const outer = (family: IpFamily, n: number): string => (family === "ip" ? `203.0.113.${n}` : `2001:db8:cb::${n}`);
const RANGES = ["10.244.0.0/24", "fd00:10:244::/64", "198.51.100.0/24", "192.0.2.0/24", "2001:db8::/32", "9.9.9.9/32"];
const ZONES = ["a", "b"];

/** 10.244.0.x on this node, 10.244.1.x elsewhere. */
function endpointAddress(family: IpFamily, n: number, local: boolean): string {
  if (family === "ip") return `10.244.${local ? 0 : 1}.${n}`;
  return `fd00:10:244:${local ? 0 : 1}::${n}`;
}

export class World {
  readonly #dice: Dice;
  readonly objects = new Map<string, ApiObject>();

  constructor(dice: Dice) {
    this.#dice = dice;
    this.#put({ kind: "Node", object: this.#node() }, NODE);
    this.#put({ kind: "ServiceCIDR", object: this.#serviceCIDR("main") }, "main");
  }

  /** "namespace/name" of every service. */
  get services(): string[] {
    return [...this.objects.values()].flatMap(({ kind, object }) =>
      kind === "Service" ? [`${object.metadata?.namespace}/${object.metadata?.name}`] : [],
    );
  }

  get node(): V1Node | undefined {
    const node = this.objects.get(`Node ${NODE}`);
    return node?.kind === "Node" ? node.object : undefined;
  }

  /** Passes all objects to `sink`, in random order. */
  tell(sink: ObjectSink): void {
    for (const object of this.#dice.shuffled([...this.objects.values()])) sink.upsert(decoded(object, NODE));
  }

  /** Changes one object, passes it to `sink`, and says what changed. */
  change(sink: ObjectSink): string {
    const dice = this.#dice;
    const roll = dice.below(100);
    const name = dice.pick(NAMES);
    if (roll < 4) return this.#toggle(sink, 80, { kind: "Node", object: this.#node() }, NODE);
    if (roll < 8) {
      const cidr = dice.pick(["main", "more"]);
      return this.#toggle(sink, 60, { kind: "ServiceCIDR", object: this.#serviceCIDR(cidr) }, cidr);
    }
    if (roll < 40) {
      return this.#toggle(sink, 80, { kind: "Service", object: this.#service(name) }, `default/${name}`);
    }
    const slice = `${name}-${dice.pick(["x", "y", "z"])}`;
    return this.#toggle(sink, 85, { kind: "EndpointSlice", object: this.#slice(slice, name) }, `default/${slice}`);
  }

  #toggle(sink: ObjectSink, keepPercent: number, object: ApiObject, name: string): string {
    const id = `${object.kind} ${name}`;
    if (this.#dice.chance(keepPercent)) {
      this.#put(object, name);
      sink.upsert(decoded(object, NODE));
      return `put ${id}: ${JSON.stringify(object.object)}`;
    }
    this.objects.delete(id);
    sink.remove(object.kind, name);
    return `remove ${id}`;
  }

  #put(object: ApiObject, name: string): void {
    this.objects.set(`${object.kind} ${name}`, object);
  }

  #node(): V1Node {
    const dice = this.#dice;
    return {
      metadata: { name: NODE, labels: dice.chance(70) ? { "topology.kubernetes.io/zone": dice.pick(ZONES) } : {} },
      status: {
        addresses: FAMILIES.map((family) => ({
          type: "InternalIP",
          address: dice.chance(85) ? NODE_ADDRESSES[family][0] : NODE_ADDRESSES[family][1],
        })),
      },
    };
  }

  #serviceCIDR(name: string): V1ServiceCIDR {
    const all = ["10.96.0.0/24", "10.96.0.0/16", "10.97.0.0/16", "fd00:10:96::/112", "fd00:10:97::/112"];
    return { metadata: { name }, spec: { cidrs: this.#dice.some(all, 3) } };
  }

  #service(name: string): V1Service {
    const dice = this.#dice;
    const families = dice.chance(70) ? FAMILIES : [dice.pick(FAMILIES)];
    const number = dice.chance(85) ? Number(name.slice(1)) : 1 + dice.below(9);
    const own = families.map((family) => clusterIP(family, number));
    const vips = FAMILIES.flatMap((family) => range(5).map((n) => outer(family, n)))
      .concat(FAMILIES.flatMap((family) => range(7).map((n) => clusterIP(family, n))))
      .filter((address) => !own.includes(address));
    const nodePorts = dice.some([30001, 30002, 30003, 30004], 3);
    const kinds = dice.some(
      [
        ["http", 80, "TCP"],
        ["https", 443, "TCP"],
        ["dns", 80, "UDP"],
      ] as const,
      2,
    );
    const policy = (): string => (dice.chance(65) ? "Cluster" : "Local");
    return {
      metadata: {
        name,
        namespace: "default",
        // Always set: otherwise only a running proxier knows who had an address first, and a fresh start does not.
        creationTimestamp: new Date(1_700_000_000_000 + dice.below(3) * 1000),
      },
      spec: {
        type: "LoadBalancer",
        clusterIP: own[0],
        clusterIPs: own,
        ipFamilies: families.map((family) => (family === "ip" ? "IPv4" : "IPv6")),
        ports: (kinds.length === 0 ? ([["http", 80, "TCP"]] as const) : kinds).map(([portName, port, protocol], i) => ({
          name: portName,
          port,
          protocol,
          ...(nodePorts[i] === undefined ? {} : { nodePort: nodePorts[i] }),
        })),
        externalIPs: dice.chance(40) ? dice.some(vips, 3) : [],
        internalTrafficPolicy: policy(),
        externalTrafficPolicy: policy(),
        ...(dice.chance(25) ? { loadBalancerSourceRanges: dice.some(RANGES, 3) } : {}),
        ...(dice.chance(25)
          ? {
              sessionAffinity: "ClientIP",
              sessionAffinityConfig: { clientIP: { timeoutSeconds: dice.pick([10, 10800]) } },
            }
          : {}),
      },
      status: {
        loadBalancer: {
          ingress: (dice.chance(50) ? dice.some(vips, 2) : []).map((ip) => ({
            ip,
            ...(dice.chance(90) ? {} : { ipMode: "Proxy" }),
          })),
        },
      },
    };
  }

  #slice(name: string, service: string): V1EndpointSlice {
    const dice = this.#dice;
    const family = dice.pick(FAMILIES);
    const hinted = dice.chance(30);
    const ports = [
      { name: "http", port: 8080, protocol: "TCP" },
      { name: "https", port: dice.pick([8443, 9443]), protocol: "TCP" },
      { name: "dns", port: 53, protocol: "UDP" },
    ];
    return {
      metadata: { name, namespace: "default", labels: { "kubernetes.io/service-name": service } },
      addressType: family === "ip" ? "IPv4" : "IPv6",
      ports: dice.chance(80) ? ports : dice.some(ports, 2),
      endpoints: dice.some(range(8), 6).map((n) => this.#endpoint(family, n, hinted)),
    } as unknown as V1EndpointSlice;
  }

  #endpoint(family: IpFamily, n: number, hinted: boolean): unknown {
    const dice = this.#dice;
    const local = dice.chance(50);
    const ready = dice.chance(70);
    return {
      addresses: [endpointAddress(family, n, local)],
      nodeName: local ? NODE : "elsewhere",
      conditions: ready
        ? dice.pick([{}, { ready: true, serving: true, terminating: false }])
        : { ready: false, serving: dice.chance(60), terminating: dice.chance(60) },
      ...(hinted && dice.chance(90)
        ? {
            hints: {
              ...(dice.chance(70) ? { forZones: dice.some(ZONES, 2).map((zone) => ({ name: zone })) } : {}),
              ...(dice.chance(30) ? { forNodes: [{ name: dice.pick([NODE, "elsewhere"]) }] } : {}),
            },
          }
        : {}),
    };
  }
}
