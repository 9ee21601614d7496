/** Operations that write the flowtable's own table. Pure. docs/flowtable.md shows the table as `nft` prints it. */
import { FlowtableFlag, Hook } from "../nft/kernel/constants.js";
import type { Op, TableRef } from "../nft/kernel/kernel.js";
import { lowerRule, type Statement } from "../nft/engine-exports.js";

/** Separate from the services' tables, so that no interface problem can make writes of theirs fail. */
export const FLOWTABLE_REF: TableRef = { family: "inet", table: "nft-proxier-flowtable" };
const FLOWTABLE = "services";
export const OFFLOAD_CHAIN = "offload";

/** After other programs' chains at the forward hook: packets that these drop are not offloaded. */
const AFTER_FILTERS = 1000;
/** Device names in one message. The kernel rejects NFT_NETDEVICE_MAX (256). */
const MOST_DEVICES = 255;
/** Both directions together. A short request and its answer, with handshake and end, take fewer. */
const PACKETS_BEFORE = 20;

const TABLE = { kind: "table", ...FLOWTABLE_REF } as const;
/** Each change repeats the flags, because a change without them clears them (nft_flowtable_update). */
const OF_FLOWTABLE = { kind: "flowtable", ...FLOWTABLE_REF, flowtable: FLOWTABLE, priority: 0 } as const;

/**
 * Replaces the existing table, with any content, by one without devices. Offloaded connections go through the hooks again.
 * Both interfaces of a connection must be named: a connection over other interfaces would be marked as offloaded without being
 * so.
 */
export function createTable(interfaces: readonly string[]): Op[] {
  const base = { type: "filter", hook: Hook.forward, priority: AFTER_FILTERS, policy: "accept" } as const;
  return [
    { op: "add", ...TABLE },
    { op: "delete", ...TABLE },
    { op: "add", ...TABLE },
    { op: "add", ...OF_FLOWTABLE, flags: FlowtableFlag.counter, devices: [] },
    { op: "add", kind: "chain", ...FLOWTABLE_REF, chain: OFFLOAD_CHAIN },
    // The counter counts connections.
    rule(
      OFFLOAD_CHAIN,
      { field: "ct packets", op: ">", value: PACKETS_BEFORE },
      { action: "flow", flowtable: FLOWTABLE },
      { action: "counter" },
    ),
    { op: "add", kind: "chain", ...FLOWTABLE_REF, chain: "outgoing" },
    ...interfaces.map((name) => rule("outgoing", { field: "oifname", value: name }, goto(OFFLOAD_CHAIN))),
    { op: "add", kind: "chain", ...FLOWTABLE_REF, chain: "incoming" },
    ...interfaces.map((name) => rule("incoming", { field: "iifname", value: name }, goto("outgoing"))),
    { op: "add", kind: "chain", ...FLOWTABLE_REF, chain: "forward", base },
    rule(
      "forward",
      { field: "ct state", value: "established" },
      { field: "ct status", value: "dnat" },
      { field: "meta l4proto", value: "tcp" },
      goto("incoming"),
    ),
  ];
}

const goto = (chain: string): Statement => ({ action: "verdict", verdict: `goto ${chain}` });

function rule(chain: string, ...statements: readonly Statement[]): Op {
  return { op: "add", kind: "rule", ...FLOWTABLE_REF, chain, exprs: lowerRule({ statements }, FLOWTABLE_REF).exprs };
}

export function deleteTable(): Op[] {
  return [{ op: "delete", ...TABLE }];
}

export function addDevices(devices: readonly string[]): Op[] {
  return chunks(devices).map((some) => ({ op: "add", ...OF_FLOWTABLE, flags: FlowtableFlag.counter, devices: some }));
}

function chunks(devices: readonly string[]): string[][] {
  const count = Math.ceil(devices.length / MOST_DEVICES);
  return Array.from({ length: count }, (_, i) => devices.slice(i * MOST_DEVICES, (i + 1) * MOST_DEVICES));
}
