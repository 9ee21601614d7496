/** A Service with 20,000 endpoints is changed in several transactions. What comes in between changes neither the end nor other Services. */
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

import { patience } from "../lab/patience.ts";
import { Cluster } from "./support/cluster.ts";

const CHANGE = fileURLToPath(new URL("support/change-in-pieces.ts", import.meta.url));
const LIMIT = { timeout: patience(180_000) };

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create([]);
});
afterAll(async () => {
  await cluster.destroy();
});

const change = (...args: readonly string[]) =>
  cluster.lab.node.run([process.execPath, "--no-warnings", CHANGE, ...args]);

interface Listed {
  readonly map?: { readonly name: string; readonly elem?: readonly unknown[] };
}

/** The addresses that are served, with the number of endpoints drawn from, and the number of endpoints there. */
async function served(): Promise<{ readonly addresses: readonly string[]; readonly endpoints: number }> {
  const text = await cluster.lab.node.mustRun(["nft", "-j", "list", "table", "ip", "kube-proxy"]);
  const { nftables } = JSON.parse(text) as { nftables: readonly Listed[] };
  const maps = nftables.flatMap(({ map }) => map ?? []);
  const elements = (name: RegExp): string[] =>
    maps.filter((map) => name.test(map.name)).flatMap(({ elem = [] }) => elem.map((one) => JSON.stringify(one)));
  const withoutCounts = (one: string): string => one.replace(/"counter":\{[^}]*\}/g, "");
  return {
    addresses: elements(/^services$/)
      .map(withoutCounts)
      .toSorted(),
    endpoints: elements(/^endpoints-/).length,
  };
}

/** Starts with an empty table. */
async function fresh(...args: readonly string[]): Promise<Awaited<ReturnType<typeof served>>> {
  await cluster.lab.node.mustRun(["nft", "flush", "ruleset"]);
  expect(await change(...args)).toMatchObject({ code: 0, stderr: "" });
  return served();
}

test.each([1, 2])("a kill -9 after write %d of its deletion: the next start completes it", LIMIT, async (writes) => {
  const expected = await fresh("deleted");
  expect(expected).toMatchObject({ endpoints: 3 });
  await cluster.lab.node.mustRun(["nft", "flush", "ruleset"]);
  expect((await change("delete", String(writes))).code).not.toBe(0);
  const left = await served();
  expect(left.endpoints).toBeGreaterThan(3);
  // Packets find all of it or nothing.
  if (left.endpoints < 20_003) expect(left.addresses).toEqual(expected.addresses);
  expect(await change("deleted")).toMatchObject({ code: 0, stderr: "" });
  expect(await served()).toEqual(expected);
});

test.each([1, 2, 3])(
  "its external IP passes to another Service after write %d of new endpoints: that one serves it",
  LIMIT,
  async (writes) => {
    const expected = await fresh("moved");
    expect(expected.addresses).toHaveLength(3);
    expect(await fresh("move", String(writes))).toEqual(expected);
  },
);
