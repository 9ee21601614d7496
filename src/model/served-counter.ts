/** Counts services and endpoints of each family incrementally. */
import type { IpFamily } from "../base/ip.js";
import type { ServiceRecord, SliceRecord } from "../objects/records.js";
import { readyEndpoints } from "./slices.js";
import type { ServedCounts } from "./service-port-view.js";

export class ServedCounter {
  readonly #counts = { ip: { services: 0, endpoints: 0 }, ip6: { services: 0, endpoints: 0 } };

  constructor(private readonly families: readonly IpFamily[]) {}

  of(family: IpFamily): ServedCounts {
    return { ...this.#counts[family] };
  }

  /** Counts a change of the service with these slices from `before` to `after`. */
  service(before: ServiceRecord | undefined, after: ServiceRecord | undefined, slices: readonly SliceRecord[]): void {
    for (const family of this.families) {
      const by = Number(after?.[family] !== undefined) - Number(before?.[family] !== undefined);
      if (by === 0) continue;
      this.#counts[family].services += by;
      for (const slice of slices) {
        if (slice.family === family) this.#counts[family].endpoints += by * readyEndpoints(slice);
      }
    }
  }

  /** Counts an added or removed slice of the service. */
  slice(service: ServiceRecord | undefined, slice: SliceRecord, by: 1 | -1): void {
    if (service?.[slice.family] !== undefined) this.#counts[slice.family].endpoints += by * readyEndpoints(slice);
  }
}
