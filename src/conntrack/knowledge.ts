/**
 * What the decision asks, answered from the model. Nothing of the model is copied but what one pass has asked about: at
 * 50,000 services that would be the size of the model again.
 */
import { NODE_PORT } from "../model/claims.js";
import type { ServiceModel } from "../model/index.js";
import type { IpFamily, Protocol, ServiceTarget } from "../model/types.js";
import type { FormerTarget, KnownTarget, Knowledge } from "./decide.js";
import { EndpointStates } from "./endpoints.js";
import type { FormerTargets } from "./former.js";

/** The part of the model that is asked. */
export type TargetSource = Pick<ServiceModel, "targets" | "ownerOf" | "services" | "takeReleased" | "endpointsAmong">;

/** A target with its service's name. */
export interface FoundTarget extends KnownTarget {
  readonly target: ServiceTarget;
}

/** Services whose targets are kept ready during a pass; as many again cost a look into the model each. */
const MAX_CACHED = 4096;

/**
 * Valid for one pass: what it has answered once it answers again, whatever the model has learnt meanwhile. A change that
 * comes during a pass is reconciled after its own rules are in.
 */
export class ServiceKnowledge implements Knowledge {
  readonly #model: TargetSource;
  readonly #former: FormerTargets;
  readonly #nodePortAddresses: (family: IpFamily) => Iterable<string>;
  readonly #services = new Map<string, readonly FoundTarget[]>();
  readonly #addresses = new Map<IpFamily, ReadonlySet<string>>();

  constructor(model: TargetSource, former: FormerTargets, nodePortAddresses: (family: IpFamily) => Iterable<string>) {
    this.#model = model;
    this.#former = former;
    this.#nodePortAddresses = nodePortAddresses;
  }

  vip(family: IpFamily, address: string, protocol: Protocol, port: number): FoundTarget | undefined {
    const service = this.#model.ownerOf(family, address, protocol, port);
    if (service === undefined) return undefined;
    return this.targetsOf(family, service).find(
      ({ target }) => target.protocol === protocol && target.port === port && target.addresses.includes(address),
    );
  }

  nodePort(family: IpFamily, protocol: Protocol, port: number): FoundTarget | undefined {
    const service = this.#model.ownerOf(family, NODE_PORT, protocol, port);
    if (service === undefined) return undefined;
    return this.targetsOf(family, service).find(
      ({ target }) => target.protocol === protocol && target.nodePort === port,
    );
  }

  formerVip(family: IpFamily, address: string, protocol: Protocol, port: number): FormerTarget | undefined {
    if (this.#former.size === 0 || address === NODE_PORT) return undefined;
    return this.#former.get({ family, address, protocol, port });
  }

  formerNodePort(family: IpFamily, protocol: Protocol, port: number): FormerTarget | undefined {
    if (this.#former.size === 0) return undefined;
    return this.#former.get({ family, address: NODE_PORT, protocol, port });
  }

  isNodePortAddress(family: IpFamily, address: string): boolean {
    return this.nodePortAddresses(family).has(address);
  }

  nodePortAddresses(family: IpFamily): ReadonlySet<string> {
    let addresses = this.#addresses.get(family);
    if (addresses === undefined) {
      addresses = new Set(this.#nodePortAddresses(family));
      this.#addresses.set(family, addresses);
    }
    return addresses;
  }

  targetsOf(family: IpFamily, service: string): readonly FoundTarget[] {
    const key = `${family} ${service}`;
    let found = this.#services.get(key);
    if (found === undefined) {
      found = this.#model.targets(family, service).map((target) => ({
        target,
        resetRemovedEndpoints: target.resetRemovedEndpoints,
        endpoints: new EndpointStates(target.endpoints, target.serving),
      }));
      if (this.#services.size >= MAX_CACHED) this.#services.clear();
      this.#services.set(key, found);
    }
    return found;
  }
}
