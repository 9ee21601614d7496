/** A conntrack table for one test, fake or real. */
import { setTimeout as sleep } from "node:timers/promises";
import { NetlinkConntrack } from "../../src/nft/conntrack/netlink-conntrack.js";
import type { ConntrackTable } from "../../src/nft/conntrack/conntrack-table.js";
import { FakeConntrack } from "../fakes/fake-conntrack.ts";
import type { Namespace } from "./real-kernel.ts";

export interface ConntrackWorld {
  readonly table: ConntrackTable;
  /** Lets time pass for the table. */
  wait(ms: number): Promise<void>;
  close(): Promise<void>;
}

/** Opens an empty table for one test. */
export type OpenConntrackWorld = () => Promise<ConntrackWorld>;
export type CurrentConntrackWorld = () => ConntrackWorld;

export const openFakeConntrack: OpenConntrackWorld = () => {
  let now = 1_000;
  const table = new FakeConntrack({ now: () => now });
  const wait = async (ms: number): Promise<void> => {
    now += ms;
    await sleep(1);
  };
  return Promise.resolve({ table, wait, close: () => table.close() });
};

export function openNetlinkConntrack(namespace: () => Namespace): OpenConntrackWorld {
  return async () => {
    const table = await NetlinkConntrack.open({ netns: namespace().path });
    await table.deleteMatching({});
    return { table, wait: (ms) => sleep(ms), close: () => table.close() };
  };
}
