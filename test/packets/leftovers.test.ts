/**
 * A node that ran kube-proxy's iptables mode: its rules serve until ours are active, then they are removed without
 * losing a connection. Other programs' rules in the same tables do not change at all.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import { loadConntrack } from "../../src/node/system-settings.js";
import { removeLeftovers } from "../../src/migration/leftovers/leftover-removal.js";
import { FAMILIES } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { iptablesTables } from "./support/iptables-mode.ts";
import { underLoad } from "./support/load.ts";
import { clusterIP, configuration, everyWay, nodePort, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { checkRow, type Row, rowTests } from "./support/rows.ts";
import { keptIn, type LogLine, SILENT } from "../support/log.ts";

let cluster: Cluster;
const testRows = rowTests(() => cluster);
let kernel: NftKernel;
beforeAll(async () => {
  cluster = await Cluster.create();
  kernel = await NftKernel.open({ netns: `/run/netns/${cluster.lab.node.name}` });
});
afterAll(async () => {
  await kernel.close();
  await cluster.destroy();
});

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const here: ServiceSpec = { name: "here", n: 2, endpoints: ["b"] };
const empty: ServiceSpec = { name: "empty", n: 3, endpoints: [] };
const many = Array.from({ length: 6 }, (_, i): ServiceSpec => ({
  name: `many-${i}`,
  n: 10 + i,
  endpoints: ["a", "b", "c", "r1", "r2"],
}));
const SERVICES: readonly ServiceSpec[] = [web, here, empty, ...many];

const leftovers = (): Promise<boolean> =>
  removeLeftovers({ kernel, log: SILENT, families: FAMILIES, root: "/nowhere" });

/** Without root, a batch must fit the default send buffer. */
const LINES_AT_ONCE = 200;

async function nft(input: string): Promise<void> {
  const lines = input.split("\n");
  for (let at = 0; at < lines.length; at += LINES_AT_ONCE) {
    const some = lines.slice(at, at + LINES_AT_ONCE).join("\n");
    await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: `${some}\n` });
  }
}

/** Everything but our own tables, without counters. */
async function tables(): Promise<string> {
  const names = (await cluster.lab.node.mustRun(["nft", "list", "tables"])).trim().split("\n");
  const texts = await Promise.all(
    names
      .filter((name) => name !== "" && !name.endsWith(" kube-proxy"))
      .map((name) => cluster.lab.node.mustRun(["nft", "-s", "list", ...name.split(" ")])),
  );
  return texts.join("");
}
const kubeProxy = (): string => FAMILIES.map((family) => iptablesTables(cluster.lab, family, SERVICES)).join("");

function rows(rule: string): readonly Row[] {
  return [
    { rule, from: "b", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: false } },
    { rule, from: "client", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: true } },
    { rule, from: "client", to: nodePort(web), expect: { pods: ["a", "r1"], masq: true } },
    { rule, from: "node", to: clusterIP(here), expect: { pods: ["b"], masq: true } },
    { rule, from: "b", to: clusterIP(empty), expect: "reject" },
  ];
}

let others: string;
beforeAll(async () => {
  await nft(FAMILIES.map((family) => iptablesTables(cluster.lab, family)).join(""));
  others = await tables();
});

describe("kube-proxy's iptables mode alone", () => {
  beforeAll(() => nft(`flush ruleset\n${kubeProxy()}`));
  testRows(rows("kube-proxy's"));
});

describe("taking over", () => {
  const streams = [
    { from: "client", to: clusterIP(web), protocol: "tcp" },
    { from: "b", to: clusterIP(web), protocol: "udp" },
    { from: "client", to: nodePort(web), protocol: "udp" },
    { from: "node", to: clusterIP(here), protocol: "tcp" },
    { from: "c", to: clusterIP(many[0]), protocol: "sctp" },
    { from: "client", to: nodePort(many[1]), protocol: "tcp" },
  ] as const;

  async function takeOver(): Promise<void> {
    await cluster.apply(SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)));
    expect(await leftovers()).toBe(true);
  }
  beforeAll(async () => {
    await nft(`flush ruleset\n${kubeProxy()}`);
    await takeOver();
  });

  test("under load: no connection is lost, either when our rules are written or when kube-proxy's are removed", async () => {
    await nft(`flush ruleset\n${kubeProxy()}`);
    const { connections, failures } = await underLoad(cluster, streams, takeOver);
    expect(failures).toEqual([]);
    expect(connections).toBeGreaterThan(50);
  });

  test("other programs' rules are unchanged, and nothing else is left", async () => {
    expect(await tables()).toBe(others);
  });

  testRows(rows("ours"));

  test("a second run has nothing to do", async () => {
    const before = await kernel.generation();
    expect(await leftovers()).toBe(true);
    expect((await kernel.generation()).id).toBe(before.id);
  });
});

describe("leftovers of a kube-proxy before 1.24", () => {
  test("are removed as well: KUBE-XLB- chains do not prevent it", async () => {
    const svc = /jump (KUBE-SVC-\S+)/.exec(kubeProxy())?.[1] ?? "";
    await nft(`flush ruleset\n${kubeProxy()}
      add chain ip nat KUBE-XLB-AAAAAAAAAAAAAAAA
      add rule ip nat KUBE-XLB-AAAAAAAAAAAAAAAA counter jump KUBE-MARK-MASQ
      add rule ip nat KUBE-XLB-AAAAAAAAAAAAAAAA counter jump ${svc}
      add rule ip nat KUBE-NODEPORTS counter jump KUBE-XLB-AAAAAAAAAAAAAAAA
    `);
    expect(await leftovers()).toBe(true);
    expect(await tables()).toBe(others);
  });
});

describe("a chain that another process's rule jumps to", () => {
  beforeAll(async () => {
    await nft(`flush ruleset\n${kubeProxy()}
      add chain ip nat CNI-HOSTPORT-SETMARK
      add rule ip nat CNI-HOSTPORT-SETMARK counter jump KUBE-MARK-MASQ
    `);
  });

  test("stays, and is named; the rest is removed", async () => {
    const lines: LogLine[] = [];
    const log = keptIn(lines, "info");
    expect(await removeLeftovers({ kernel, log, families: FAMILIES, root: "/nowhere" })).toBe(false);
    expect(lines.filter(({ level }) => level === "warn")).toMatchObject([
      { family: "ip", table: "nat", chain: "KUBE-MARK-MASQ", user: "a rule of chain CNI-HOSTPORT-SETMARK" },
    ]);
    const text = await tables();
    expect(text.match(/KUBE-[A-Z-]*MASQ/g)).toEqual(["KUBE-MARK-MASQ", "KUBE-MARK-MASQ"]);
    expect(text).not.toMatch(/KUBE-(SERVICES|SVC|SEP|EXT|POSTROUTING|NODEPORTS|FORWARD|PROXY)/);
  });
});

describe("cleanup", () => {
  const cleanup = async (): Promise<{ code: number; log: string }> => {
    const { code, stdout, stderr } = await cluster.command(["cleanup"]);
    return { code, log: stdout + stderr };
  };

  test("deletes our tables and the leftovers of the iptables mode", async () => {
    await nft(`flush ruleset\n${kubeProxy()}`);
    await cluster.apply(SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)));
    expect(await cleanup()).toMatchObject({ code: 0 });
    expect(await tables()).toBe(others);
    expect(await cluster.lab.node.mustRun(["nft", "list", "tables"])).not.toContain("kube-proxy");
    const row = { rule: "", from: ["b", "client"], to: everyWay(web), expect: "untouched" } as const;
    expect(await checkRow(cluster, row)).toEqual([]);
  });
});

describe("a firewall that drops by default, if kube-proxy's iptables mode accepted its own packets", () => {
  const client = { rule: "", from: "client", to: nodePort(web), families: ["ip"] } as const;

  test("is reported when the program starts; the command in the message lets services through", async () => {
    await cluster.apply(SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)));
    await nft(`
      add table ip firewall
      add chain ip firewall forward { type filter hook forward priority 0; policy drop; }
    `);
    try {
      expect(await checkRow(cluster, { ...client, expect: "drop" })).toEqual([]);
      const daemon = cluster.start(["run", ...(await cluster.write([], configuration(), true))]);
      let log = "";
      daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
      try {
        await expect.poll(() => log).toContain("a firewall drops forwarded packets");
      } finally {
        const ended = new Promise((resolve) => daemon.once("exit", resolve));
        daemon.kill("SIGTERM");
        await ended;
      }
      const warning = log.split("\n").find((line) => line.includes("a firewall drops forwarded packets")) ?? "";
      const { family, table, chain, command } = JSON.parse(warning) as Record<string, string>;
      expect({ family, table, chain }).toEqual({ family: "ip", table: "firewall", chain: "forward" });
      await cluster.apply(SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)));
      await cluster.lab.node.mustRun(command.split(" "));
      expect(await checkRow(cluster, { ...client, expect: { pods: ["a", "r1"], masq: true } })).toEqual([]);
    } finally {
      await nft("delete table ip firewall");
    }
  });
});

test("the connection tracker is loaded by a rule that leaves nothing behind", async () => {
  const before = await kernel.generation();
  await loadConntrack(kernel);
  expect((await kernel.generation()).id).toBe(before.id);
});
