/**
 * Builds the prefilter for a pass over many destinations: the destinations, and the reply sources that are in order for
 * each.
 */
import { type IpFamily, packAddress } from "../../base/ip.js";
import { type Protocol, SERVICE_PROTOCOL } from "../../base/protocols.js";
import type { ServiceTarget } from "../../model/service-port-view.js";
import { NODE_PORT, type ServiceAddress } from "../../model/service-address.js";
import { TimeSlice } from "../../base/time-slice.js";
import type { ConntrackPrefilter } from "../../nft/conntrack/conntrack-table.js";
import type { FormerTargets } from "./former-targets.js";
import type { TargetSource } from "./service-knowledge.js";

/** Whether entries of a service port with these properties can be stale at all. */
export function isReconciled(protocol: Protocol, resetRemovedEndpoints: boolean): boolean {
  return protocol !== "TCP" || resetRemovedEndpoints;
}

/** Long lists are processed in slices of this length, ms. */
const SLICE_MS = 1;

/** A byte array that grows. */
class Bytes {
  #bytes = new Uint8Array(1024);
  length = 0;

  /** Adds `count` zero bytes and returns their offset. */
  grow(count: number): number {
    const at = this.length;
    this.length += count;
    if (this.length > this.#bytes.length) {
      const larger = new Uint8Array(2 * this.length);
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    return at;
  }

  get view(): Uint8Array {
    return this.#bytes;
  }

  written(): Uint8Array {
    return this.#bytes.subarray(0, this.length);
  }
}

export class PrefilterBuilder {
  readonly #all: boolean;
  readonly #nodePortAddresses: readonly string[];
  readonly #addressBytes: number;
  readonly #destinations = new Bytes();
  readonly #endpoints = new Bytes();
  readonly #lists: number[] = [0];
  readonly #protocols = new Set<number>();

  /**
   * @param nodePortAddresses where node ports are served; the unspecified address means everywhere.
   * @param purpose stale: pass on entries that the decision may delete. orphans: also pass on entries of any protocol
   * whose endpoint is not one of their service.
   */
  constructor(
    private readonly family: IpFamily,
    nodePortAddresses: Iterable<string>,
    purpose: "stale" | "orphans" = "stale",
  ) {
    this.#all = purpose === "orphans";
    this.#nodePortAddresses = [...nodePortAddresses];
    this.#addressBytes = family === "ip" ? 4 : 16;
  }

  /** Whether there are no destinations, and so nothing to find. */
  get empty(): boolean {
    return this.#destinations.length === 0;
  }

  /** The protocol of all destinations. Undefined if there are several. */
  get onlyProtocol(): number | undefined {
    const [first, ...others] = this.#protocols;
    return others.length === 0 ? first : undefined;
  }

  /**
   * Adds these services and claims. Yields to the event loop in between, so that a sync is not delayed. The model may change meanwhile: changes
   * are reconciled again after their own rules are committed.
   * @param onTarget called with each service port.
   */
  async addAll(
    { model, former }: { readonly model: TargetSource; readonly former: FormerTargets },
    services: Iterable<string>,
    claims: Iterable<ServiceAddress>,
    onTarget?: (target: ServiceTarget) => void,
  ): Promise<void> {
    const timeSlice = new TimeSlice(SLICE_MS);
    for (const service of services) {
      for (const target of model.targets(this.family, service)) {
        this.addTarget(target);
        onTarget?.(target);
        if (timeSlice.spent) await timeSlice.yield();
      }
    }
    for (const claim of claims) {
      // If a service has the address again, the service alone decides which entries are in order.
      if (former.get(claim) !== undefined && model.ownerOf(claim) === undefined) this.addFormer(claim);
      if (timeSlice.spent) await timeSlice.yield();
    }
  }

  addTarget(target: ServiceTarget): void {
    const { protocol, resetRemovedEndpoints, endpoints, serving } = target;
    if (!this.#all && !isReconciled(protocol, resetRemovedEndpoints)) return;
    const inOrder = protocol === "TCP" ? endpoints : endpoints.filter((_, i) => serving[i]);
    const list = this.#lists.length - 1;
    for (const { address, port } of inOrder) {
      const at = this.#endpoints.grow(this.#addressBytes + 4);
      packAddress(address, this.#endpoints.view, at);
      this.#putPort(this.#endpoints.view, at + this.#addressBytes, port);
    }
    this.#lists.push(this.#endpoints.length / (this.#addressBytes + 4));
    for (const address of target.addresses) this.#addDestination(address, protocol, target.port, list);
    if (target.nodePort !== 0) this.#addNodePort(protocol, target.nodePort, list);
  }

  /** Adds a destination for which no reply source is in order. */
  addFormer({ address, protocol, port }: ServiceAddress): void {
    if (!this.#all && !isReconciled(protocol, false)) return;
    const list = this.#lists.length - 1;
    this.#lists.push(this.#lists[list] ?? 0);
    if (address === NODE_PORT) this.#addNodePort(protocol, port, list);
    else this.#addDestination(address, protocol, port, list);
  }

  build(): ConntrackPrefilter {
    return {
      family: this.family,
      destinations: this.#destinations.written(),
      lists: Uint32Array.from(this.#lists),
      endpoints: this.#endpoints.written(),
    };
  }

  #addNodePort(protocol: Protocol, port: number, list: number): void {
    for (const address of this.#nodePortAddresses) this.#addDestination(address, protocol, port, list);
  }

  #addDestination(address: string, protocol: Protocol, port: number, list: number): void {
    const bytes = this.#addressBytes;
    const at = this.#destinations.grow(bytes + 8);
    const { view } = this.#destinations;
    packAddress(address, view, at);
    view[at + bytes] = SERVICE_PROTOCOL[protocol];
    this.#putPort(view, at + bytes + 2, port);
    new DataView(view.buffer, view.byteOffset).setUint32(at + bytes + 4, list, true);
    this.#protocols.add(SERVICE_PROTOCOL[protocol]);
  }

  #putPort(view: Uint8Array, at: number, port: number): void {
    view[at] = port >>> 8;
    view[at + 1] = port & 0xff;
  }
}
