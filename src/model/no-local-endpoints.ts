import type { ServicePortView } from "./service-port-view.js";

/** Numbers of service ports with policy Local that have endpoints, but none on this node. */
export interface NoLocalEndpoints {
  readonly internal: number;
  readonly external: number;
}

const NONE: NoLocalEndpoints = Object.freeze({ internal: 0, external: 0 });

/**
 * Counts service ports of one family that have usable endpoints, but none on this node, where policy Local requires them. Their
 * traffic is dropped. That is right if a load balancer checks the node's health first, and a mistake otherwise. Updated service
 * by service; only services with such ports are remembered.
 */
export class NoLocalEndpointsCounter {
  readonly #counted = new Map<string, NoLocalEndpoints>();
  #internal = 0;
  #external = 0;

  get counts(): NoLocalEndpoints {
    return { internal: this.#internal, external: this.#external };
  }

  /** @param views all of the service's ports; none if it is gone. */
  update(service: string, views: readonly ServicePortView[]): void {
    const now = count(views);
    const before = this.#counted.get(service);
    if (before === undefined && now === NONE) return;
    if (now === NONE) this.#counted.delete(service);
    else this.#counted.set(service, now);
    this.#internal += now.internal - (before?.internal ?? 0);
    this.#external += now.external - (before?.external ?? 0);
  }
}

function count(views: readonly ServicePortView[]): NoLocalEndpoints {
  let internal = 0;
  let external = 0;
  for (const view of views) {
    if (!view.hasAnyEndpoint || view.localEndpoints.length > 0) continue;
    if (view.internalPolicyLocal) internal++;
    if (view.externalPolicyLocal && isExternal(view)) external++;
  }
  return internal === 0 && external === 0 ? NONE : { internal, external };
}

/** Without an address for the policy, nothing is dropped, and the view has no local endpoints. */
function isExternal(view: ServicePortView): boolean {
  return view.nodePort !== 0 || view.externalIPs.length > 0 || view.loadBalancerIPs.length > 0;
}
