/** The balance of one list of endpoints: how many slots it has, and what each endpoint weighs. Pure. */
import type { Balance, SLOT_COUNTS } from "../../objects/balance.js";
import type { CandidateList } from "../categorize.js";
import type { EndpointList } from "../../objects/endpoint-list.js";

/** A service's `Balance`, applied to the endpoints that exist. */
export interface EndpointBalance extends Omit<Balance, "weights"> {
  /** By EndpointList.id, where the weight is not 1; 0: no connections while another has more. Undefined: all alike. */
  readonly weights: ReadonlyMap<number | string, number> | undefined;
}

/** Up to so many endpoints, a list has so many slots. */
export const SLOT_STEPS: readonly (readonly [endpoints: number, slots: number])[] = [
  [32, 1024],
  [126, 4096],
];

/** A longer list has no slot for each of its endpoints. */
export const MAX_WEIGHTED = 16_384 satisfies (typeof SLOT_COUNTS)[number];

/** A longer list would get less than 16 slots for each of its endpoints, and take the main thread too long (rendezvous.ts). */
export const MAX_CONSISTENT = 1024;

/**
 * Elements that the slots of one service may take in a family: every list of each port has its slots, once for each address that draws from it. A service with
 * many ports would otherwise take millions of elements for an annotation of a few bytes.
 */
export const MAX_SLOT_ELEMENTS = 65_536;

/** The balance of lists of so many endpoints. Weights outlast consistency; undefined: connections are drawn at random, all endpoints alike. */
export function balanceFor(balance: Balance, endpoints: number): Balance | undefined {
  const { by, weights } = balance;
  if (endpoints <= (by === "chance" ? MAX_WEIGHTED : MAX_CONSISTENT)) return balance;
  return by === "chance" || weights === undefined ? undefined : balanceFor({ ...balance, by: "chance" }, endpoints);
}

/** Why lists of so many endpoints are not spread as the service asks: the same for any number. Returns undefined if they are. */
export function tooManyFor(balance: Balance, endpoints: number): string | undefined {
  const served = balanceFor(balance, endpoints);
  if (served === balance) return undefined;
  const [most, what] = balance.by === "chance" ? [MAX_WEIGHTED, "weights"] : [MAX_CONSISTENT, "consistent hashing"];
  return (
    `has more than the ${most.toLocaleString("en")} endpoints that ${what} can spread; ` +
    `connections are drawn at random, ${served === undefined ? "all endpoints alike" : "by weight"}`
  );
}

/** Why so many elements are not written for the slots of one service. */
export function overBudget(elements: number): string {
  return (
    `its ports and addresses would take ${elements.toLocaleString("en")} elements, more than the ` +
    `${MAX_SLOT_ELEMENTS.toLocaleString("en")} that one service may have; connections are drawn at random, all endpoints alike`
  );
}

export function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** How many endpoints of the least weight there would be: any number. */
export function inLeast(weights: readonly number[]): number {
  return sum(weights) / Math.min(...weights.filter((weight) => weight > 0));
}

/** @param endpoints at most MAX_WEIGHTED; of lists with weights, how many of the least weight there would be: any number. */
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

/** Slots of a list with endpoints, where the service asks for a balance. */
export function slotsIn(list: EndpointList, balance: EndpointBalance): number {
  return list.length === 0 ? 0 : slotsFor(allWeights(list, balance), balance);
}

export function endpointBalance({ by, slots, weights }: Balance, { endpoints, zones }: CandidateList): EndpointBalance {
  if (weights === undefined) return { by, slots, weights };
  const ofEndpoints = new Map<number | string, number>();
  for (let i = 0; i < endpoints.length; i++) {
    const weight = weights.addresses.get(endpoints.address(i)) ?? weights.zones.get(zones?.zone(i) ?? "") ?? 1;
    if (weight !== 1) ofEndpoints.set(endpoints.id(i), weight);
  }
  return { by, slots, weights: ofEndpoints.size === 0 ? undefined : ofEndpoints };
}

/** Whether lists of the same endpoints are spread the same. */
export function isSameBalance(a: EndpointBalance, b: EndpointBalance): boolean {
  if (a.by !== b.by || a.slots !== b.slots || a.weights?.size !== b.weights?.size) return false;
  for (const [id, weight] of a.weights ?? []) if (b.weights?.get(id) !== weight) return false;
  return true;
}

/** Of the list's endpoints; undefined: all alike, as also where all have 0. */
export function weightsOf(list: EndpointList, { weights }: EndpointBalance): readonly number[] | undefined {
  if (weights === undefined) return undefined;
  const ofList = Array.from({ length: list.length }, (_, i) => weights.get(list.id(i)) ?? 1);
  return ofList.every((weight) => weight === ofList[0]) ? undefined : ofList;
}
