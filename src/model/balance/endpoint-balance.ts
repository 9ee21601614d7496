/** The balance of one list of endpoints: its number of slots, and the weight of each endpoint. Pure. */
import type { Balance, SLOT_COUNTS } from "../../objects/balance.js";
import type { EndpointList } from "../../objects/endpoint-list.js";
import type { EndpointColumns } from "../../objects/records.js";

/** A service's `Balance`, applied to its current endpoints. */
export interface EndpointBalance extends Omit<Balance, "weights"> {
  /**
   * Weights other than 1, by EndpointList.id. An endpoint with 0 gets no connections as long as another has more. Undefined if
   * all are alike.
   */
  readonly weights: ReadonlyMap<number | string, number> | undefined;
}

/** Number of slots for a list with up to this many endpoints. */
const SLOT_STEPS: readonly (readonly [endpoints: number, slots: number])[] = [
  [32, 1024],
  [126, 4096],
];

/** A longer list would have fewer slots than endpoints. */
const MAX_WEIGHTED = 16_384 satisfies (typeof SLOT_COUNTS)[number];

/** A longer list would have fewer than 16 slots per endpoint, and block the main thread too long (rendezvous.ts). */
const MAX_CONSISTENT = 1024;

/**
 * Maximum number of elements per family for the slots of one service. Each list of each port has its slots once per address
 * that draws from it. Without the limit, an annotation of a few bytes could take millions of elements on a service with
 * many ports.
 */
export const MAX_SLOT_ELEMENTS = 65_536;

/**
 * The balance for lists with this many endpoints. Beyond the limit of consistent hashing, weights still apply. Returns
 * undefined if connections are spread at random over all endpoints alike.
 */
export function balanceFor(balance: Balance, endpoints: number): Balance | undefined {
  const { by, weights } = balance;
  if (endpoints <= (by === "chance" ? MAX_WEIGHTED : MAX_CONSISTENT)) return balance;
  return by === "chance" || weights === undefined ? undefined : balanceFor({ ...balance, by: "chance" }, endpoints);
}

/**
 * Why lists with this many endpoints are not spread as requested. The text is the same for any number. Returns undefined if
 * they are.
 */
export function tooManyFor(balance: Balance, endpoints: number): string | undefined {
  const served = balanceFor(balance, endpoints);
  if (served === balance) return undefined;
  const [most, what] = balance.by === "chance" ? [MAX_WEIGHTED, "weights"] : [MAX_CONSISTENT, "consistent hashing"];
  return (
    `has more than the ${most.toLocaleString("en")} endpoints that ${what} can spread; ` +
    `each connection goes to a random endpoint, ${served === undefined ? "all with the same probability" : "by weight"}`
  );
}

/** Why a service does not get this many elements for slots. */
export function overBudget(elements: number): string {
  return (
    `its ports and addresses would take ${elements.toLocaleString("en")} elements, more than the ` +
    `${MAX_SLOT_ELEMENTS.toLocaleString("en")} that one service may have; each connection goes to a random endpoint, all with the same probability`
  );
}

export function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** The total weight in units of the smallest weight. */
export function inLeast(weights: readonly number[]): number {
  return sum(weights) / Math.min(...weights.filter((weight) => weight > 0));
}

/**
 * @param endpoints at most MAX_WEIGHTED. For lists with weights, it is the total weight in units of the smallest, without a
 * limit.
 */
export function slotCount(endpoints: number, { slots }: Pick<Balance, "slots">): number {
  if (slots >= endpoints && slots > 0) return slots;
  return SLOT_STEPS.find(([most]) => endpoints <= most)?.[1] ?? MAX_WEIGHTED;
}

export function allWeights(list: EndpointList, balance: EndpointBalance): readonly number[] {
  return weightsOf(list, balance) ?? new Array<number>(list.length).fill(1);
}

export function slotsFor(weights: readonly number[], balance: EndpointBalance): number {
  return slotCount(Math.ceil(inLeast(weights)), balance);
}

/** Number of slots of a list, 0 if it is empty. */
export function slotsIn(list: EndpointList, balance: EndpointBalance): number {
  return list.length === 0 ? 0 : slotsFor(allWeights(list, balance), balance);
}

export function endpointBalance(
  { by, slots, weights }: Balance,
  { endpoints, details }: Pick<EndpointColumns, "endpoints" | "details">,
): EndpointBalance {
  if (weights === undefined) return { by, slots, weights };
  const ofEndpoints = new Map<number | string, number>();
  for (let i = 0; i < endpoints.length; i++) {
    const weight = weights.addresses.get(endpoints.address(i)) ?? weights.zones.get(details?.zone(i) ?? "") ?? 1;
    if (weight !== 1) ofEndpoints.set(endpoints.id(i), weight);
  }
  return { by, slots, weights: ofEndpoints.size === 0 ? undefined : ofEndpoints };
}

/** Whether both spread a list of the same endpoints in the same way. */
export function isSameBalance(a: EndpointBalance, b: EndpointBalance): boolean {
  if (a.by !== b.by || a.slots !== b.slots || a.weights?.size !== b.weights?.size) return false;
  for (const [id, weight] of a.weights ?? []) if (b.weights?.get(id) !== weight) return false;
  return true;
}

/** Weights of the list's endpoints. Returns undefined if all are equal, which includes all being 0. */
export function weightsOf(list: EndpointList, { weights }: EndpointBalance): readonly number[] | undefined {
  if (weights === undefined) return undefined;
  const ofList = Array.from({ length: list.length }, (_, i) => weights.get(list.id(i)) ?? 1);
  return ofList.every((weight) => weight === ofList[0]) ? undefined : ofList;
}
