/** Finds ServiceCIDRs in manifests that overlap with pods and nodes of the same manifests, or the configuration's clusterCIDR. */
import { parseCIDR, type Prefix, prefixContains, prefixCovers } from "../../base/ip.js";
import { endpointsInside } from "../../objects/endpoint-list.js";
import type { Problem } from "../../model/service-port-view.js";
import type { NodeRecord, SliceRecord } from "../../objects/records.js";
import type { KubeObject } from "../../objects/object-sink.js";

/** Maximum number of a slice's endpoints to name. */
const MOST_NAMED = 3;
const EFFECT = "new connections to these addresses are dropped, unless a service has the address";

interface NamedCIDR {
  /** The ServiceCIDR's name. */
  readonly name: string;
  readonly index: number;
  readonly prefix: Prefix;
}

export class ManifestOverlaps {
  readonly #clusterCIDRs: readonly Prefix[];
  readonly #cidrs: NamedCIDR[] = [];
  readonly #nodes: { readonly name: string; readonly record: NodeRecord }[] = [];
  readonly #slices: SliceRecord[] = [];

  constructor(clusterCIDRs: readonly string[]) {
    this.#clusterCIDRs = clusterCIDRs.flatMap((text) => parseCIDR(text) ?? []);
  }

  add(object: KubeObject): void {
    const { kind, name } = object;
    if (kind === "Node") this.#nodes.push({ name, record: object.record });
    else if (kind === "EndpointSlice" && object.record !== undefined) this.#slices.push(object.record);
    else if (kind === "ServiceCIDR") {
      for (const [index, prefix] of (object.record ?? []).entries()) this.#cidrs.push({ name, index, prefix });
    }
  }

  /** Yields one problem per network or address of a pod or node that overlaps with a ServiceCIDR. */
  *problems(): Iterable<Problem> {
    if (this.#cidrs.length === 0) return;
    for (const { name, index, prefix } of this.#cidrs) {
      for (const pods of this.#clusterCIDRs) {
        if (!overlap(prefix, pods)) continue;
        const reason = `${prefix.text} overlaps clusterCIDR ${pods.text} of the configuration: ${EFFECT}`;
        yield { kind: "ServiceCIDR", object: name, field: `spec.cidrs[${index}]`, reason };
      }
    }
    for (const node of this.#nodes) yield* this.#ofNode(node);
    for (const { name, family, endpoints } of this.#slices) {
      const networks = this.#cidrs.map(({ prefix }) => prefix).filter((prefix) => prefix.family === family);
      const found = endpointsInside(endpoints, networks, MOST_NAMED + 1);
      if (found.length === 0) continue;
      const some = found.slice(0, MOST_NAMED).join(", ") + (found.length > MOST_NAMED ? " and others" : "");
      const cidrs = networks.filter((network) => found.some((address) => prefixContains(network, address)));
      const where = cidrs.map(({ text }) => text).join(", ");
      const reason = `${some} ${found.length === 1 ? "is" : "are"} in ServiceCIDR ${where}: ${EFFECT}`;
      yield { kind: "EndpointSlice", object: name, field: "endpoints", reason };
    }
  }

  *#ofNode({ name, record }: { readonly name: string; readonly record: NodeRecord }): Iterable<Problem> {
    for (const { field, prefix } of record.podCIDRs) yield* this.#inside(name, field, prefix);
    for (const { field, address } of record.addresses) {
      yield* this.#inside(name, field, parseCIDR(`${address}/${address.includes(":") ? 128 : 32}`));
    }
  }

  *#inside(object: string, field: string, network: Prefix | undefined): Iterable<Problem> {
    const cidr = network && this.#cidrs.find(({ prefix }) => overlap(prefix, network));
    if (network === undefined || cidr === undefined) return;
    const reason = `${network.text} overlaps ServiceCIDR ${cidr.prefix.text}: ${EFFECT}`;
    yield { kind: "Node", object, field, reason };
  }
}

function overlap(a: Prefix, b: Prefix): boolean {
  return prefixCovers(a, b) || prefixCovers(b, a);
}
