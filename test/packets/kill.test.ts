/** `kill -9` at random moments while the table is changed: each family's table is then in one of the requested states. */
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

import { makeService, makeSlice } from "../bench/cluster.ts";
import { patience } from "../lab/patience.ts";
import { type Family, FAMILIES } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import type { LoadInPieces } from "./support/load-in-pieces.ts";
import type { Manifest } from "./support/objects.ts";
import { atLength } from "../lab/length.ts";

const KILLS = atLength({ short: 2, usual: 20, nightly: 200 });
const SERVICES = 500;
const ENDPOINTS = 3;
/** Number of services that have a chain of their own, which changes too. */
const GUARDED = 20;

/** The states differ in every endpoint and in rules, but not in their keys: a deferred deletion would be a state of its own. */
function objects(state: number): Manifest[] {
  return Array.from({ length: SERVICES }, (_, index) => {
    const service = makeService(index);
    const guard = {
      spec: { ...service.spec, type: "LoadBalancer", loadBalancerSourceRanges: [`198.51.${100 + state}.0/24`] },
      status: { loadBalancer: { ingress: [{ ip: `203.0.113.${1 + index}`, ipMode: "VIP" }] } },
    };
    const pods = Array.from({ length: ENDPOINTS }, (_pod, i) => (state * SERVICES + index) * ENDPOINTS + i);
    const slice = makeSlice(index, pods);
    // No endpoint is on this node: an endpoint that may call itself has an element for its own address.
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

/** The table's contents, unordered; "" if there is no table. */
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

const LIMIT = { timeout: patience(Math.max(180_000, KILLS * 10_000)) };

test(`${KILLS} kills leave either the old or the new table`, LIMIT, async () => {
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
    // Every fifth try starts without a table.
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
});

const LOAD = fileURLToPath(new URL("support/load-in-pieces.ts", import.meta.url));
/** Services, endpoints, and elements per transaction. */
const LOADED = ["300", "3", "50"];

/** When to kill a load: so long after its first transaction was sent, unless it has ended by then; or after that many transactions. */
type Kill = { readonly afterMs: number } | { readonly afterTransactions: number };

/** Loads the table. Returns undefined if it was killed. */
async function load(kill?: Kill): Promise<LoadInPieces | undefined> {
  const transactions = kill !== undefined && "afterTransactions" in kill ? [String(kill.afterTransactions)] : [];
  const command = [process.execPath, "--no-warnings", LOAD, ...LOADED, ...transactions];
  const child = cluster.lab.node.spawn(command, { stdio: ["ignore", "pipe", "inherit"] });
  if (child.stdout === null) throw new Error("no pipe");
  const exited = once(child, "exit");
  let result: LoadInPieces | undefined;
  for await (const line of createInterface(child.stdout)) {
    if (line !== "writing") result = JSON.parse(line) as LoadInPieces;
    else if (kill !== undefined && "afterMs" in kill) void sleep(kill.afterMs).then(() => child.kill("SIGKILL"));
  }
  await exited;
  return result;
}

/** Number of elements in the table's named sets. */
async function elementsLeft(): Promise<number> {
  const text = await cluster.lab.node.mustRun(["nft", "-j", "list", "table", "ip", "kube-proxy"]);
  const { nftables } = JSON.parse(text) as { nftables: Record<"set" | "map", { elem?: unknown[] } | undefined>[] };
  return nftables.reduce((sum, { set, map }) => sum + ((set ?? map)?.elem?.length ?? 0), 0);
}

test(
  `kills during a load in pieces, one of them in its middle and ${KILLS} at random: packets see all of it or nothing, and the next start completes it`,
  LIMIT,
  async () => {
    await cluster.lab.node.mustRun(["nft", "flush", "ruleset"]);
    const whole = await load();
    const complete = await listing("ip");
    if (whole === undefined) throw new Error("the load was killed");
    expect(whole.transactions).toBeGreaterThan(10);
    expect(complete).toContain("hook");
    let { lastedMs } = whole;
    const outcomes = { nothing: 0, part: 0, completed: 0, whole: 0 };
    const completed = async (): Promise<void> => {
      // None, if the kill came after the transaction that creates the table and its sets.
      const present = await elementsLeft();
      expect(await load()).toMatchObject({ added: whole.added - present });
      expect(await listing("ip")).toBe(complete);
      outcomes.completed++;
    };
    await cluster.lab.node.mustRun(["nft", "flush", "ruleset"]);
    expect(await load({ afterTransactions: Math.floor(whole.transactions / 2) })).toBeUndefined();
    expect(await listing("ip")).not.toContain("hook");
    expect(await elementsLeft()).toBeGreaterThan(0);
    await completed();
    for (let kill = 0; kill < KILLS; kill++) {
      // Every other try continues from a partly written table, and may be killed again.
      const left = await listing("ip");
      if (left === complete || kill % 2 === 0) await cluster.lab.node.mustRun(["nft", "flush", "ruleset"]);
      const afterMs = lastedMs * 1.2 * Math.random();
      // The first load may have been slow because of other work on the machine; then every kill would come too late.
      lastedMs = Math.min(lastedMs, (await load({ afterMs }))?.lastedMs ?? lastedMs);
      const after = await listing("ip");
      if (after.includes("hook")) {
        expect(after, `after a kill at ${afterMs.toFixed(1)} ms`).toBe(complete);
        outcomes.whole++;
        continue;
      }
      outcomes[after === "" ? "nothing" : "part"]++;
      if (after === "" || kill % 4 < 2) continue;
      await completed();
    }
    console.log("kill -9 within a load in pieces:", outcomes);
  },
);
