/** Endpoints with their pods, nodes and zones, for operators. */
import { type Hints, NO_HINTS } from "../objects/endpoint-state.js";
import { NOT_SAID, type PodAndNode } from "../objects/endpoint-details.js";
import type { CandidateList } from "./categorize.js";
import type { Endpoint } from "../objects/endpoint-list.js";

/** An endpoint with all details from its slice. */
export interface DescribedEndpoint extends Endpoint, PodAndNode {
  /** READY | SERVING | TERMINATING. */
  readonly state: number;
  readonly hints: Hints;
  /** "" if unknown. */
  readonly zone: string;
  /** It is terminating, and its connections are kept for the service's drain-seconds. */
  readonly draining: boolean;
}

/** The candidates in their order, with their details. `draining` has an item for each candidate; undefined if none is draining. */
export function describedEndpoints(
  { endpoints, states, hints, details }: CandidateList,
  draining: readonly boolean[] | undefined,
): DescribedEndpoint[] {
  const pods = details?.all(endpoints.length) ?? [];
  return Array.from({ length: endpoints.length }, (_, i) => ({
    ...{ address: endpoints.address(i), port: endpoints.port(i), local: endpoints.isLocal(i) },
    ...{ state: states[i] ?? 0, hints: hints?.[i] ?? NO_HINTS, draining: draining?.[i] ?? false },
    ...(pods[i] ?? NOT_SAID),
    zone: details?.zone(i) ?? "",
  }));
}
