/**
 * Limits of connections. The maps `limited-services` and `limited-nodeports` give a service port a number, `limits` leads from that to a chain: one for each
 * set of limits in use, shared by all that have the same. What is counted stands in sets that packets fill, by number, and by number and client. All of
 * it comes with the first service that asks for limits.
 *
 * A number stands for one service port with one set of limits: elements keep the limit that they began with, so that other limits count
 * anew. All this is in the NAT hooks, which see the first packet of a connection alone.
 */
import { createHash } from "node:crypto";
import type { Limits } from "../model/limits.js";
import type { ServicePortView } from "../model/types.js";
import { packNumber } from "./keys.js";
import type { ServicePortState } from "./service.js";
import type { LimitMaps } from "./sets.js";

/** A service port's limits, and the number that they are counted by. */
export interface PortLimits {
  readonly limits: Limits;
  readonly number: number;
}

/** The number that the service port had, or one that no other has: the same after a restart, but where two hashes are alike. */
export function numberLimits(
  view: ServicePortView,
  limits: Limits,
  before: ServicePortState | undefined,
  taken: (number: number) => boolean,
): PortLimits {
  const chain = limitChain(limits);
  const former = before?.limits;
  if (former !== undefined && limitChain(former.limits) === chain) return { limits, number: former.number };
  const parts = [view.service, view.portName, view.protocol, chain];
  let number = createHash("sha256").update(JSON.stringify(parts)).digest().readUInt32LE();
  // 0 and all ones have names of their own in nft.
  while (number === 0 || number === 0xffffffff || taken(number)) number = (number + 1) >>> 0;
  return { limits, number };
}

/** "limit-1000-c10-r5s20-reject": 1,000 connections, 10 and 5 a second (20 at once) of each client. */
export function limitChain({ connections, clientConnections, rate, action }: Limits): string {
  const parts = [
    ...(connections > 0 ? [String(connections)] : []),
    ...(clientConnections > 0 ? [`c${clientConnections}`] : []),
    ...(rate === undefined ? [] : [`r${rate.count}${rate.per[0]}${rate.burst}`]),
  ];
  return `limit-${parts.join("-")}-${action}`;
}

/** Bytes of the number as key or data. Valid until the next call but one. */
export function limitKey({ number }: PortLimits): Uint8Array {
  return packNumber(number);
}

/** Whether a service port has the number. */
export function isLimited(maps: LimitMaps | undefined, number: number): boolean {
  return maps?.limits.has(packNumber(number)) === true;
}
