/** `kill -9` at random moments while the table is being changed: each family's table is one of the states that were asked for. */
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";

import { makeService, makeSlice } from "../bench/cluster.ts";
import { patience } from "../lab/patience.ts";
import { type Family, FAMILIES } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import type { Manifest } from "./support/objects.ts";

const KILLS = process.env["NIGHTLY"] === "1" ? 200 : 20;
const SERVICES = 500;
const ENDPOINTS = 3;
/** Of the services, those with a chain of their own that changes too. */
const GUARDED = 20;

/** The states differ in every endpoint and in rules, not in which keys there are: what is left for later is no state of its own. */
function objects(state: number): Manifest[] {
  return Array.from({ length: SERVICES }, (_, index) => {
    const service = makeService(index);
    const guard = {
      spec: { ...service.spec, type: "LoadBalancer", loadBalancerSourceRanges: [`198.51.${100 + state}.0/24`] },
      status: { loadBalancer: { ingress: [{ ip: `203.0.113.${1 + index}`, ipMode: "VIP" }] } },
    };
    const pods = Array.from({ length: ENDPOINTS }, (_pod, i) => (state * SERVICES + index) * ENDPOINTS + i);
    const slice = makeSlice(index, pods);
    // None on this node: an endpoint that may call itself is an element by its own address.
    const endpoints = slice.endpoints?.map((endpoint) => ({ ...endpoint, nodeName: "elsewhere" }));
    return [
      { ...service, ...(index < GUARDED ? guard : {}) },
      { ...slice, endpoints },
    ];
  }).flat();
}

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create([]);
});
afterAll(async () => {
  await cluster.destroy();
});

/** What is in the table, in no order; "" when there is none. */
async function listing(family: Family): Promise<string> {
  const { code, stdout } = await cluster.lab.node.run(["nft", "-s", "list", "table", family, "kube-proxy"]);
  return code === 0
    ? stdout
        .split(/[\n,]/)
        .map((part) => part.trim())
        .sort()
        .join("\n")
    : "";
}

test(
  `${KILLS} kills leave the old or the new table, never between`,
  { timeout: patience(KILLS * 10_000) },
  async () => {
    const states: Record<Family, string>[] = [];
    let longestMs = 0;
    for (const state of [0, 1]) {
      const started = performance.now();
      await cluster.apply(objects(state));
      longestMs = Math.max(longestMs, performance.now() - started);
      states.push({ ip: await listing("ip"), ip6: await listing("ip6") });
    }
    expect(states[0].ip).not.toBe(states[1].ip);
    const outcomes = { old: 0, new: 0 };
    let before: Record<Family, string> = states[1];
    for (let kill = 0; kill < KILLS; kill++) {
      const wanted = kill % 2;
      // Every fifth begins with nothing.
      if (kill % 5 === 4) {
        await cluster.lab.node.mustRun(["nft", "flush", "ruleset"]);
        before = { ip: "", ip6: "" };
      }
      const args = await cluster.write(objects(wanted));
      const child = cluster.start(["run", ...args, "--once"]);
      child.stderr?.resume();
      const exited = once(child, "exit");
      const afterMs = longestMs * (0.3 + 0.8 * Math.random());
      await Promise.race([exited, sleep(afterMs)]);
      child.kill("SIGKILL");
      await exited;
      const after = { ip: await listing("ip"), ip6: await listing("ip6") };
      for (const family of FAMILIES) {
        const known = [before[family], states[wanted][family]];
        expect(known.includes(after[family]), `${family} after a kill at ${afterMs.toFixed(1)} ms`).toBe(true);
      }
      outcomes[after.ip === states[wanted].ip ? "new" : "old"]++;
      before = after;
    }
    console.log(`kill -9: ${outcomes.old} times the old table, ${outcomes.new} times the new one`);
  },
);
