import type { EndpointList } from "../objects/endpoint-list.js";
import type { Limits } from "../objects/connection-limits.js";
import type { ElementSet } from "../nft/engine-exports.js";
import type { ServiceKey } from "./key-packer.js";

/**
 * Receives the result of an expansion. The calls are the same whether elements are added, removed or searched. Bytes are only
 * valid during the call.
 */
export interface Expansion {
  /** One element, which other service ports may share. `data` is absent for sets. */
  element(set: ElementSet, key: Uint8Array, data?: Uint8Array): void;
  /** The elements of a list of endpoints: `key` followed by consecutive numbers, starting with `base`. */
  endpoints(set: ElementSet, key: ServiceKey, base: number, endpoints: EndpointList): void;
  /** One element leads to the chain that draws from such a list (packList). */
  list(value: number): void;
  /** One element leads to the chain of these limits. */
  limits(limits: Limits): void;
}

export const NOTHING_EXPANDED: Omit<Expansion, "endpoints"> = {
  element: () => undefined,
  list: () => undefined,
  limits: () => undefined,
};
