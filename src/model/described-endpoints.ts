/** Endpoints with their pods, nodes and zones, for operators. */
import type { IpFamily } from "../base/ip.js";
import { type Hints, NO_HINTS, preferred } from "../objects/endpoint-state.js";
import type { SliceRecord } from "../objects/records.js";
import { placesOf } from "./slices.js";
import type { Endpoint } from "../objects/endpoint-list.js";
import type { Protocol } from "../base/protocols.js";

/** An endpoint with all details from its slice. */
export interface DescribedEndpoint extends Endpoint {
  /** READY | SERVING | TERMINATING. */
  readonly state: number;
  readonly hints: Hints;
  /** Name, preceded by its namespace and "/" if that is not the service's; "" if there is no pod, or it is unknown. */
  readonly pod: string;
  /** "" if unknown; the same for the zone. */
  readonly node: string;
  readonly zone: string;
}

const UNKNOWN = { pod: "", node: "" };

/** The endpoints of `candidatesOf`, in the same order, with their details. */
export function describedEndpoints(
  slices: readonly SliceRecord[],
  family: IpFamily,
  portName: string,
  protocol: Protocol,
): DescribedEndpoint[] {
  const found = new Map<number | string, DescribedEndpoint>();
  for (const { slice, port } of placesOf(slices, family, portName, protocol)) {
    const details = slice.details?.all(slice.endpoints.length) ?? [];
    const endpoints = slice.endpoints.onPort(port);
    for (let i = 0; i < endpoints.length; i++) {
      const state = slice.states[i] ?? 0;
      const id = endpoints.id(i);
      const before = found.get(id);
      if (before !== undefined && !preferred(state, before.state)) continue;
      const { pod, node } = details[i] ?? UNKNOWN;
      const of = { state, hints: slice.hints?.[i] ?? NO_HINTS, pod, node, zone: slice.details?.zone(i) ?? "" };
      found.set(id, { address: endpoints.address(i), port, local: endpoints.isLocal(i), ...of });
    }
  }
  return [...found.values()];
}
