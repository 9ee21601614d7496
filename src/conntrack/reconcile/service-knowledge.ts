/**
 * Answers the decision's questions from the model. Copies only the parts of the model that the pass has asked
 * about: for 50,000 services a full copy would be as large as the model.
 */
import { type IpFamily, parseCIDR, type Prefix, prefixContains } from "../../base/ip.js";
import { NODE_PORT, type ServiceAddress } from "../../model/service-address.js";
import type { ServiceModel } from "../../model/service-model.js";
import type { ServiceTarget } from "../../model/service-port-view.js";
import type { LocalAddress } from "../../node/node-facts.js";
import { EndpointStates, type FormerTarget, type Knowledge } from "./stale-entries.js";
import type { FormerTargets } from "./former-targets.js";

/** The part of the model that is used here. */
export type TargetSource = Pick<
  ServiceModel,
  "targets" | "target" | "ownerOf" | "services" | "takeRemovals" | "endpointsAmong"
>;

/**
 * Returns the addresses where node ports are served: the addresses given, or "all" of this node's. "all" excludes
 * loopback: a connection to such a port there belongs to a local program. If node ports are served on loopback, the
 * caller adds those addresses.
 */
export function nodePortAddressesOf(
  family: IpFamily,
  told: "all" | readonly string[],
  local: readonly LocalAddress[],
): readonly string[] {
  if (told !== "all") return told;
  const own = local.filter((one) => one.family === family).map(({ address }) => address);
  return own.filter((address) => address !== "::1" && !address.startsWith("127."));
}

/** Maximum number of service ports cached during a pass. Each further one costs a lookup in the model. */
const MAX_CACHED = 16_384;

/**
 * Valid for one pass over one family. It repeats its earlier answers even if the model has changed meanwhile. A change
 * during a pass is reconciled after its own rules are committed.
 */
export class ServiceKnowledge implements Knowledge {
  readonly family: IpFamily;
  /** Addresses and CIDRs where node ports are served. */
  readonly nodePortAddresses: readonly string[];
  /** The same for a prefilter. If any is a CIDR, which a prefilter cannot express, it is the unspecified address. */
  readonly prefilterAddresses: readonly string[];
  readonly #addresses: ReadonlySet<string>;
  readonly #networks: readonly Prefix[];
  readonly #model: TargetSource;
  readonly #former: FormerTargets;
  readonly #targets = new Map<string, ServiceTarget | undefined>();
  readonly #endpointStates = new WeakMap<ServiceTarget, EndpointStates>();

  constructor(model: TargetSource, former: FormerTargets, family: IpFamily, nodePortAddresses: Iterable<string>) {
    this.#model = model;
    this.#former = former;
    this.family = family;
    const whole = family === "ip" ? "/32" : "/128";
    this.nodePortAddresses = [...nodePortAddresses];
    const places = this.nodePortAddresses.map((place) =>
      place.endsWith(whole) ? place.slice(0, -whole.length) : place,
    );
    this.#addresses = new Set(places.filter((place) => !place.includes("/")));
    this.#networks = places.flatMap((place) => (place.includes("/") ? (parseCIDR(place) ?? []) : []));
    const anywhere = family === "ip" ? "0.0.0.0" : "::";
    this.prefilterAddresses = this.#networks.length > 0 ? [anywhere] : [...this.#addresses];
  }

  target(address: ServiceAddress): ServiceTarget | undefined {
    const service = this.#model.ownerOf(address);
    if (service === undefined) return undefined;
    const { protocol, port } = address;
    const by = address.address === NODE_PORT ? "nodePort" : "port";
    const key = `${service} ${by} ${port} ${protocol}`;
    let target = this.#targets.get(key);
    if (target !== undefined || this.#targets.has(key)) return target;
    target = this.#model.target(this.family, service, by, protocol, port);
    if (this.#targets.size >= MAX_CACHED) this.#targets.clear();
    this.#targets.set(key, target);
    return target;
  }

  endpointStates(target: ServiceTarget): EndpointStates {
    let states = this.#endpointStates.get(target);
    if (states === undefined) this.#endpointStates.set(target, (states = new EndpointStates(target)));
    return states;
  }

  former(address: ServiceAddress): FormerTarget | undefined {
    return this.#former.size === 0 ? undefined : this.#former.get(address);
  }

  isNodePortAddress(address: string): boolean {
    return this.#addresses.has(address) || this.#networks.some((network) => prefixContains(network, address));
  }

  /** The service ports as connections see them, each computed on demand. */
  targetsOf(service: string): Iterable<ServiceTarget> {
    return this.#model.targets(this.family, service);
  }
}
