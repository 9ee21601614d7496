import type { IpFamily } from "../../base/ip.js";
import { type AddressKey, addressesOf, keyOf, NODE_PORT } from "../../model/service-address.js";
import type { ServiceModel } from "../../model/service-model.js";
import type { ServicePortView } from "../../model/service-port-view.js";
import type { Refusal } from "../../proxier/refusal-readings.js";
import type { RefusalReason } from "../../ruleset/refusals.js";
import type { PortRefusals } from "./listed-services.js";

type Counts = Partial<Record<RefusalReason, number>>;

/** The counts of one reading, by address and by endpoint. */
interface Index {
  readonly of: readonly Refusal[];
  readonly addresses: ReadonlyMap<AddressKey, Counts>;
  readonly endpoints: ReadonlyMap<string, number>;
}

/** Assigns the kernel's counts of refused connections to service ports. */
export class ServiceRefusals {
  readonly #readings: { refusals(family: IpFamily): readonly Refusal[] };
  readonly #model: Pick<ServiceModel, "ownerOf">;
  readonly #indices = new Map<IpFamily, Index>();

  constructor(readings: { refusals(family: IpFamily): readonly Refusal[] }, model: Pick<ServiceModel, "ownerOf">) {
    this.#readings = readings;
    this.#model = model;
  }

  /** Returns undefined if no connection to the port was refused. */
  of(family: IpFamily, view: ServicePortView): PortRefusals | undefined {
    const { of, addresses, endpoints } = this.#index(family);
    if (of.length === 0) return undefined;
    const byReason: Counts = {};
    const add = (reason: RefusalReason, count: number): void => {
      byReason[reason] = (byReason[reason] ?? 0) + count;
    };
    for (const address of addressesOf(family, view)) {
      for (const [reason, count] of Object.entries(addresses.get(keyOf(address)) ?? {})) {
        add(reason as RefusalReason, count);
      }
    }
    const byEndpoint = new Map<string, number>();
    if (view.protocol === "TCP" && endpoints.size > 0) {
      for (const list of [view.clusterEndpoints, view.localEndpoints]) {
        for (const { address, port } of list) {
          const key = `${address} ${port}`;
          const count = endpoints.get(key);
          if (count === undefined || byEndpoint.has(key)) continue;
          byEndpoint.set(key, count);
          add("endpoint", count);
        }
      }
    }
    return Object.keys(byReason).length === 0 ? undefined : { byReason, byEndpoint };
  }

  #index(family: IpFamily): Index {
    const of = this.#readings.refusals(family);
    const known = this.#indices.get(family);
    if (known?.of === of) return known;
    const addresses = new Map<AddressKey, Counts>();
    const endpoints = new Map<string, number>();
    for (const { reason, count, ...address } of of) {
      if (reason === "endpoint") {
        endpoints.set(`${address.address} ${address.port}`, count);
        continue;
      }
      // Any address of this node may have been the destination of a node port.
      const isVIP = this.#model.ownerOf(address) !== undefined;
      const key = keyOf(isVIP ? address : { ...address, address: NODE_PORT });
      const counts = addresses.get(key) ?? {};
      counts[reason] = (counts[reason] ?? 0) + count;
      addresses.set(key, counts);
    }
    const index = { of, addresses, endpoints };
    this.#indices.set(family, index);
    return index;
  }
}
