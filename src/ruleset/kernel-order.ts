/**
 * The order of endpoints in the kernel's lists, which an earlier run may have written. A restart keeps it, so that no list is
 * written again.
 */
import { inPieces, type Pieces } from "../base/time-slice.js";
import { arrange } from "../model/balance/indices.js";
import { endpointsOf, type ListKind, type Stood } from "../model/slots.js";
import type { ServicePortView } from "../model/service-port-view.js";
import type { EndpointList } from "../objects/endpoint-list.js";
import type { ElementSets } from "./element-sets.js";
import type { KeyPacker } from "./key-packer.js";
import { shardOf } from "./list-values.js";
import { LOCAL_INDEX_BASE } from "./names.js";

export class KernelOrder {
  constructor(
    private readonly sets: ElementSets,
    private readonly keys: KeyPacker,
  ) {}

  /** The endpoints of a list, in the kernel's order if it has the list. */
  *order(view: ServicePortView, kind: ListKind): Pieces<EndpointList> {
    const desired = endpointsOf(view, kind);
    if (desired.length === 0) return desired;
    const { set, key, base } = this.#listOf(view, kind);
    // Most lists are there in the desired order, which this detects without building anything.
    if (set.kernelValue(key.at(base)) === undefined) return desired;
    if (set.kernelHoldsList(key.service, base, this.keys.endpoints(desired), desired.length)) return desired;
    const stood = this.stood(view)(kind);
    const indices = new Int32Array(desired.length);
    yield* inPieces(desired.length, (from, to) => {
      for (let i = from; i < to; i++) indices[i] = stood(i);
    });
    return yield* arrange(indices, desired);
  }

  /** Positions of the view's endpoints in the kernel's table. */
  stood(view: ServicePortView): Stood {
    return (kind) => {
      const { set, key, base } = this.#listOf(view, kind);
      const indexOf = this.keys.finder(endpointsOf(view, kind));
      return (index) => indexOf(set.kernelValue(key.at(base + index)));
    };
  }

  /**
   * Place of a list of the view in the kernel's table, found by the first address that draws from it. Valid until the next key
   * is packed.
   */
  #listOf(view: ServicePortView, kind: ListKind) {
    const external = view.externalIPs[0] ?? view.loadBalancerIPs[0];
    const internal = (kind === "local") === view.internalPolicyLocal ? view.clusterIP : undefined;
    const vip = internal ?? external;
    const base = kind === "local" ? LOCAL_INDEX_BASE : 0;
    const key =
      vip === undefined
        ? this.keys.nodePort(view.protocol, view.nodePort)
        : this.keys.vip(vip, view.protocol, view.port);
    const set = vip === undefined ? this.sets.nodePortEndpoints : this.sets.endpoints[shardOf(key.service)];
    return { set, key, base };
  }
}
