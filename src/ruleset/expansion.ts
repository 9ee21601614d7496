import type { EndpointList } from "../objects/endpoint-list.js";
import type { Limits } from "../objects/limits.js";
import type { ElementSet } from "../table/table-exports.js";
import type { ServiceKey } from "./keys.js";

/** Where an expansion goes: the same calls, whether elements come, go or are looked for. Bytes are valid during the call only. */
export interface Expansion {
  /** One element, perhaps shared with other service ports; `data` is absent for sets. */
  element(set: ElementSet, key: Uint8Array, data?: Uint8Array): void;
  /** The elements of a list of endpoints: `key`, followed by `base` and the numbers behind it. */
  endpoints(set: ElementSet, key: ServiceKey, base: number, endpoints: EndpointList): void;
  /** One element leads to the chain that draws from such a list (packList). */
  list(value: number): void;
  /** One element leads to the chain of such limits. */
  limits(limits: Limits): void;
}
