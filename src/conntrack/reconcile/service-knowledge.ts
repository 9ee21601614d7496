/**
 * What the decision asks, answered from the model. Nothing of the model is copied but what one pass has asked about: at
 * 50,000 services that would be the size of the model again.
 */
import { parseCIDR, type Prefix, prefixContains } from "../../base/ip.js";
import { NODE_PORT } from "../../model/claim-keys.js";
import type { ServiceModel } from "../../model/index.js";
import type { IpFamily, Protocol, ServiceTarget } from "../../model/types.js";
import type { LocalAddress } from "../../node/facts.js";
import { EndpointStates, type FormerTarget, type KnownTarget, type Knowledge } from "./decide.js";
import type { FormerTargets } from "./former-targets.js";

/** The part of the model that is asked. */
export type TargetSource = Pick<ServiceModel, "targets" | "ownerOf" | "services" | "takeReleased" | "endpointsAmong">;

/**
 * Where node ports answer: the addresses given, or "all" of this node's. Not on loopback, which is given separately
 * where they are served there: what has such a number there else is a local program's.
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

/** A target with its service's name. */
export interface FoundTarget extends KnownTarget {
  readonly target: ServiceTarget;
}

/** Services whose targets are kept ready during a pass; as many again cost a look into the model each. */
const MAX_CACHED = 4096;

/**
 * Valid for one pass over one family: what it has answered once it answers again, whatever the model has learnt
 * meanwhile. A change that comes during a pass is reconciled after its own rules are in.
 */
export class ServiceKnowledge implements Knowledge {
  readonly family: IpFamily;
  /** Where node ports answer: addresses, and CIDRs. */
  readonly nodePortAddresses: readonly string[];
  /** The same as a prefilter has it: the unspecified address where one is a network, which no prefilter tells. */
  readonly prefilterAddresses: readonly string[];
  readonly #addresses: ReadonlySet<string>;
  readonly #networks: readonly Prefix[];
  readonly #model: TargetSource;
  readonly #former: FormerTargets;
  readonly #services = new Map<string, readonly FoundTarget[]>();

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

  vip(address: string, protocol: Protocol, port: number): FoundTarget | undefined {
    const service = this.#model.ownerOf(this.family, address, protocol, port);
    if (service === undefined) return undefined;
    return this.targetsOf(service).find(
      ({ target }) => target.protocol === protocol && target.port === port && target.addresses.includes(address),
    );
  }

  nodePort(protocol: Protocol, port: number): FoundTarget | undefined {
    const service = this.#model.ownerOf(this.family, NODE_PORT, protocol, port);
    if (service === undefined) return undefined;
    return this.targetsOf(service).find(({ target }) => target.protocol === protocol && target.nodePort === port);
  }

  formerVip(address: string, protocol: Protocol, port: number): FormerTarget | undefined {
    if (this.#former.size === 0) return undefined;
    return this.#former.get({ family: this.family, address, protocol, port });
  }

  formerNodePort(protocol: Protocol, port: number): FormerTarget | undefined {
    return this.formerVip(NODE_PORT, protocol, port);
  }

  isNodePortAddress(address: string): boolean {
    return this.#addresses.has(address) || this.#networks.some((network) => prefixContains(network, address));
  }

  targetsOf(service: string): readonly FoundTarget[] {
    let found = this.#services.get(service);
    if (found === undefined) {
      found = this.#model.targets(this.family, service).map((target) => ({
        target,
        resetRemovedEndpoints: target.resetRemovedEndpoints,
        endpoints: new EndpointStates(target.endpoints, target.serving),
      }));
      if (this.#services.size >= MAX_CACHED) this.#services.clear();
      this.#services.set(service, found);
    }
    return found;
  }
}
