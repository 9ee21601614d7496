/** A small service table, with short helpers, for the Table's tests. */
import type { Kernel } from "../../../src/nft/kernel/kernel.js";
import { Table } from "../../../src/nft/engine-exports.js";
import type { ElementSet } from "../../../src/nft/elements/element-set.js";
import type { Rule, Statement } from "../../../src/nft/statements/rule.js";
import type { SetSpec } from "../../../src/nft/language/set-spec.js";
import type { ApplyResult, Clock, TableOptions } from "../../../src/nft/sync/apply-result.js";
import { ip } from "../../support/operations.ts";

export const NAME = "own";
export const OWN = { family: "ip", table: NAME } as const;

export const VIPS: SetSpec = {
  set: "vips",
  key: ["ipv4_addr", "inet_proto", "inet_service"],
  data: "verdict",
  size: "auto",
};
export const ENDPOINTS: SetSpec = {
  set: "endpoints",
  key: ["ipv4_addr", "inet_proto", "inet_service", "index"],
  data: ["ipv4_addr", "inet_service"],
  size: "auto",
  comment: "where packets go",
};

/** Packed VIP . tcp . 80. */
export function vip(last: number): Uint8Array {
  return Uint8Array.of(10, 96, last >> 8, last & 255, 6, 0, 0, 0, 0, 80, 0, 0);
}

export function indexed(last: number, index: number): Uint8Array {
  return Uint8Array.from([...vip(last), ...new Uint8Array(Uint32Array.of(index).buffer)]);
}

/** At port 8080. */
export function endpoint(address: string): Uint8Array {
  return Uint8Array.from([...ip(address), 8080 >> 8, 8080 & 255, 0, 0]);
}

export const rule = (...statements: Statement[]): Rule => ({ statements });
export const counter: Statement = { action: "counter" };
export const drop: Statement = { action: "verdict", verdict: "drop" };
export const accept: Statement = { action: "verdict", verdict: "accept" };
export const jump = (chain: string): Statement => ({ action: "verdict", verdict: `jump ${chain}` });

export function draw(count: number, map = "endpoints"): Rule {
  return rule({
    action: "dnat",
    address: {
      key: ["daddr", "meta l4proto", "th dport", { field: "numgen", mode: "random", modulus: count }],
      map,
      data: "address-port",
    },
  });
}

export interface ServiceTable {
  readonly table: Table;
  readonly vips: ElementSet;
  readonly endpoints: ElementSet;
  /** Declares the service with endpoints 10.0.<last>.<first…>. */
  service(last: number, count: number, first?: number): void;
}

/** A table with the constant rules and no services. */
export function serviceTable(kernel: Kernel, options: Partial<TableOptions> = {}): ServiceTable {
  const table = new Table(kernel, {
    family: "ip",
    name: NAME,
    comment: "made for a test",
    ...options,
  });
  const vips = table.packedSet(VIPS);
  const endpoints = table.packedSet(ENDPOINTS);
  table.chain({
    chain: "services",
    rules: [
      { statements: [{ action: "vmap", key: ["daddr", "meta l4proto", "th dport"], map: "vips" }], comment: "by VIP" },
    ],
  });
  table.chain({
    chain: "nat-prerouting",
    base: { type: "nat", hook: 0, priority: -100 },
    rules: [rule(counter, jump("services"))],
  });
  const counts = new Map<number, number>();
  return {
    table,
    vips,
    endpoints,
    service: (last, count, first = 1) => {
      const before = counts.get(last) ?? 0;
      counts.set(last, count);
      // Declaring an unchanged chain again changes nothing.
      if (count > 0) table.chain({ chain: `draw-${count}`, rules: [draw(count)] });
      for (let i = 0; i < count; i++) endpoints.put(indexed(last, i), endpoint(`10.0.${last & 255}.${first + i}`));
      for (let i = count; i < before; i++) endpoints.delete(indexed(last, i), true);
      if (count === 0) vips.delete(vip(last));
      else
        vips.put(
          vip(last),
          new Uint8Array(Uint32Array.of(table.verdictId({ verdict: "goto", chain: `draw-${count}` })).buffer),
        );
    },
  };
}

/** Returns "chain +1 element +3 -1": the operations of an apply that are not zero. */
export function operations(result: ApplyResult): string {
  return Object.entries(result.operations)
    .filter(([, { add, delete: deleted }]) => add + deleted > 0)
    .map(([kind, { add, delete: deleted }]) =>
      [kind, add > 0 ? `+${add}` : "", deleted > 0 ? `-${deleted}` : ""].filter((part) => part !== "").join(" "),
    )
    .join(" ");
}

/** A clock that stands still until it is moved. */
export class TestClock implements Clock {
  #now = 1_000_000;
  now(): number {
    return this.#now;
  }
  advance(ms: number): void {
    this.#now += ms;
  }
}

/** A rule that only counts, identified by its comment. */
export const named = (comment: string): { statements: [typeof counter]; comment: string } => ({
  statements: [counter],
  comment,
});
