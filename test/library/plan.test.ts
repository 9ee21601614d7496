/** `Table.plan()`: what an apply would write, on the real kernel. nft runs the text. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Kernel, openKernel, Table } from "@nft-proxier/nft";
import { Namespace } from "../lab/namespace.ts";

let namespace: Namespace;
let kernel: Kernel;

beforeAll(async () => {
  namespace = await Namespace.create("plan");
  kernel = await openKernel({ netns: `/run/netns/${namespace.name}` });
});
afterAll(async () => {
  await kernel.close();
  await namespace.destroy();
});

const nft = (input: string, ...args: readonly string[]): Promise<string> =>
  namespace.mustRun(["nft", ...args, "-f", "-"], { input });
const ruleset = (): Promise<string> => namespace.mustRun(["nft", "-a", "list", "ruleset"]);

const HOOK = { type: "filter", hook: "input", priority: "filter" } as const;
const COUNT = { action: "counter" } as const;
const DROP = { action: "verdict", verdict: "drop" } as const;

function declared(): Table {
  const table = new Table(kernel, { family: "inet", name: "planned", comment: "a plan", ownerMark: "planner" });
  table.set({ set: "friends", key: ["ipv4_addr"], comment: "friends" }).put("192.0.2.1");
  table.set({ set: "bans", key: ["ipv6_addr"], timeoutMs: 600_000, size: "auto" }).put("2001:db8::1");
  const networks = table.set({ set: "networks", key: ["ipv4_addr"], interval: true });
  for (const network of ["198.51.100.0/24", "203.0.113.7"]) networks.put(network);
  table.set({ set: "seen", key: ["ipv4_addr"], dynamic: true, timeoutMs: 60_000, size: 100 });
  table.set({ set: "marks", key: ["inet_service"], data: ["mark"] }).put(80, 7);
  const ports = table.set({ set: "ports", key: ["inet_proto", "inet_service"], data: "verdict" });
  ports.put(["tcp", 22], "goto ssh");
  ports.put(["udp", 53], "accept");
  table.chain({
    chain: "input",
    base: HOOK,
    rules: [
      { statements: [{ field: "saddr", value: "@friends" }, COUNT] },
      { statements: [{ field: "th dport", value: [80, 443] }, COUNT], comment: "web" },
      { statements: [{ action: "vmap", key: ["meta l4proto", "th dport"], map: "ports" }] },
    ],
  });
  table.chain({ chain: "ssh", rules: [{ statements: [DROP] }] });
  return table;
}

test("a plan writes nothing, and nft writes the same from its text", async () => {
  const table = declared();
  const plan = await table.plan();
  expect(await ruleset()).toBe("");
  expect(plan.counts).toMatchObject({ table: { add: 1 }, chain: { add: 2 }, element: { add: 11 } });
  expect(plan.text).toContain('add rule inet planned input th dport { 80, 443 } counter comment "web"\n');
  await nft(plan.text, "-c");
  expect(await ruleset()).toBe("");
  await nft(plan.text);
  // Another run finds nothing to do.
  const next = declared();
  expect(await next.apply()).toMatchObject({ transactions: 0 });
  expect(await next.plan()).toMatchObject({ operations: [], text: "" });
  await next.destroy();
});

test("later plans are as exact, and the apply after them writes all that they say", async () => {
  await nft("add table ip others; add chain ip others c");
  const table = declared();
  table.insertions({
    family: "ip",
    table: "others",
    chain: "c",
    mode: "append",
    rules: [{ statements: [COUNT, DROP] }, { statements: [{ field: "meta l4proto", value: "tcp" }, COUNT] }],
  });
  await table.apply();
  const ports = table.set({ set: "ports", key: ["inet_proto", "inet_service"], data: "verdict" });
  const networks = table.set({ set: "networks", key: ["ipv4_addr"], interval: true });
  const changes: (() => unknown)[] = [
    () => ports.delete(["tcp", 22]),
    () => ports.put(["udp", 53], "drop"),
    () => networks.replace(["198.51.100.0/25", "192.0.2.9-192.0.2.11"]),
    () => table.set({ set: "bans", key: ["ipv6_addr"], timeoutMs: 600_000, size: "auto" }).put("2001:db8::2"),
    () => table.removeChain("ssh"),
    () => table.removeSet("marks"),
    () =>
      table.chain({
        chain: "input",
        base: { ...HOOK, policy: "drop" },
        rules: [
          { statements: [DROP], comment: "first" },
          { statements: [{ field: "saddr", value: "@friends" }, COUNT] },
          { statements: [{ field: "saddr", value: "@networks" }, COUNT] },
          { statements: [{ action: "vmap", key: ["meta l4proto", "th dport"], map: "ports" }] },
        ],
      }),
    () =>
      table.insertions({ family: "ip", table: "others", chain: "c", mode: "append", rules: [{ statements: [DROP] }] }),
  ];
  for (const change of changes) await change();
  const { id } = await kernel.generation();
  const plan = await table.plan();
  expect((await table.plan()).counts).toEqual(plan.counts);
  expect((await kernel.generation()).id).toBe(id);
  await nft(plan.text, "-c");
  await nft(plan.text);
  table.invalidate("test");
  expect(await table.apply()).toMatchObject({ transactions: 0 });
  // The desired state is kept, so an apply after a plan writes everything.
  table.chain({ chain: "late", rules: [{ statements: [COUNT] }] });
  ports.put(["tcp", 23], "jump late");
  await networks.replace(["192.0.2.0/28"]);
  const { counts } = await table.plan();
  expect((await table.apply()).operations).toEqual(counts);
  expect(await table.check()).toBe("same");
  expect(await table.plan()).toMatchObject({ operations: [], text: "" });
  await table.destroy();
  expect(await namespace.mustRun(["nft", "list", "chain", "ip", "others", "c"])).not.toContain("drop");
});

test("the text of changes in a set with timeouts is loaded by each nft", async () => {
  const table = declared();
  const networks = table.set({ set: "timed", key: ["ipv6_addr"], interval: true, timeoutMs: 600_000 });
  const marks = table.set({ set: "timed-marks", key: ["ipv4_addr"], data: ["mark"], timeoutMs: 600_000 });
  await networks.replace(["2001:db8::/64", "2001:db8:1::/64"]);
  marks.put("192.0.2.1", 1);
  await table.apply();
  await networks.replace(["2001:db8:2::/64", "2001:db8:1::/64"]);
  marks.put("192.0.2.1", 2);
  const { text } = await table.plan();
  expect(text).toContain("delete element inet planned timed { 2001:db8::/64 }");
  await nft(text);
  table.invalidate("test");
  expect(await table.apply()).toMatchObject({ transactions: 0 });
  await table.destroy();
});

test("a plan names what other processes changed, and objects of an earlier owner", async () => {
  await nft(
    'add table inet planned { comment "a plan"; }; add counter inet planned old; add chain inet planned gone; add rule inet planned gone counter name old',
  );
  const table = declared();
  const { text, counts } = await table.plan();
  expect(text).toContain("delete counter inet planned old\n");
  expect(text).toContain("delete chain inet planned gone\n");
  expect([counts.object.delete, counts.chain.delete]).toEqual([1, 1]);
  await nft(text, "-c");
  await table.apply();
  await nft("flush chain inet planned input\ndelete element inet planned friends { 192.0.2.1 }");
  table.invalidate("test");
  const repair = await table.plan();
  expect(repair.counts).toMatchObject({ rule: { add: 3, delete: 0 }, element: { add: 3 } });
  await nft(repair.text);
  // The damage, and its repair by nft, are changes of others.
  expect(await table.apply()).toMatchObject({ transactions: 0, drift: { total: 4 } });
  await table.destroy();
});
