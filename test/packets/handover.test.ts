/**
 * `handover`: a copy of the active rules serves new connections while no other rules do. It is needed because kube-proxy's iptables mode
 * removes our table a second before its own rules are loaded. The copy ignores packets that are already translated. The kernel alone ends
 * it after its time limit.
 */
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { eventually } from "../lab/eventually.ts";
import type { Finished } from "../lab/namespace.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES, PLAN } from "../lab/topology.ts";
import { answers } from "./support/clients.ts";
import { Cluster, PODS } from "./support/cluster.ts";
import { Conversation, startEchoServer } from "./support/conversation.ts";
import { iptablesTables } from "./support/iptables-mode.ts";
import {
  clusterIP,
  configuration,
  everyWay,
  externals,
  loadBalancer,
  nodePort,
  POD_PORT,
  serviceObjects,
  type ServiceSpec,
  target,
} from "./support/objects.ts";
import { checkRow, type Row, rowTests } from "./support/rows.ts";
import { atLength } from "../lab/length.ts";
import { longTest } from "../support/long.ts";

const STARTS = atLength({ short: 2, usual: 8, nightly: 100 });

let cluster: Cluster;
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create([...PODS, { name: "e", on: "node" }], ["e"]);
});
afterAll(() => cluster.destroy());

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a", "b", "r1"], external: "Local" };
const empty: ServiceSpec = { name: "empty", n: 3, endpoints: [] };
const sticky: ServiceSpec = { name: "sticky", n: 4, endpoints: ["a", "b"], affinitySeconds: patience(600) };
const guarded: ServiceSpec = {
  name: "guarded",
  n: 6,
  endpoints: ["r1"],
  // Several ranges, so that the rule has a set of its own.
  ranges: [
    ...["198.51.100.0/25", "0.0.0.0/8", "10.0.0.0/9", "192.0.2.128/25", "203.0.113.0/24", "240.0.0.0/4"],
    ...["2001:db8:2::/65", "2001:db8:1:0:8000::/65", "2001:db8:ffff::/48"],
  ],
};
const inside: ServiceSpec = { name: "inside", n: 7, endpoints: ["c", "r2"], internal: "Local" };
/** Its pod echoes what it receives. */
const lasting: ServiceSpec = { name: "lasting", n: 8, endpoints: ["e"] };
const SERVICES = [lasting, web, edge, empty, sticky, guarded, inside];

const ours = (): Promise<Finished> =>
  cluster.apply(SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)));

/** The same, but quicker: nft loads the rendered rules. */
let rendered: string | undefined;
async function oursAgain(): Promise<void> {
  if (rendered === undefined) {
    const files = await cluster.write(SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)));
    rendered = (await cluster.command(["render", ...files])).stdout;
  }
  await cluster.node.mustRun(["nft", "flush", "ruleset"]);
  await cluster.node.mustRun(["nft", "-f", "-"], { input: rendered });
}

const handover = (...args: readonly string[]): Promise<Finished> => cluster.command(["handover", ...args]);
const tables = async (): Promise<string> => cluster.node.mustRun(["nft", "list", "tables"]);

/** Removes tables as kube-proxy's iptables mode does when it starts. */
async function removeTables(): Promise<void> {
  const input = FAMILIES.map((family) => `delete table ${family} kube-proxy\n`).join("");
  await cluster.node.mustRun(["nft", "-f", "-"], { input });
}

async function iptablesMode(services: readonly ServiceSpec[]): Promise<void> {
  const input = FAMILIES.map((family) => iptablesTables(cluster.lab, family, services)).join("");
  await cluster.node.mustRun(["nft", "-f", "-"], { input });
}

/** Rows that hold whichever rules serve. */
function served(rule: string): readonly Row[] {
  return [
    { rule, from: "b", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: false } },
    { rule, from: "node", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: true } },
    { rule, from: "client", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: true } },
    { rule, from: "client", to: nodePort(web), expect: { pods: ["a", "r1"], masq: true } },
    { rule, from: "a", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: ["a"] } },
    { rule, from: "client", to: externals(edge), expect: { pods: ["a", "b"], masq: false } },
    { rule, from: "c", to: externals(edge), expect: { pods: ["a", "b", "r1"], masq: false } },
    { rule, from: "client", to: loadBalancer(guarded), expect: { pods: ["r1"], masq: true } },
    { rule, from: "clientSecond", to: loadBalancer(guarded), expect: "drop" },
    { rule, from: "clientSecond", to: nodePort(guarded), expect: { pods: ["r1"], masq: true } },
    { rule, from: "a", to: clusterIP(inside), expect: { pods: ["c"], masq: false } },
  ];
}

describe("without a table of ours", () => {
  test("handover says so, and exits with 1", async () => {
    const { code, stderr } = await handover();
    expect({ code, stderr }).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("nothing to hand over") as string,
    });
    expect(stderr).not.toContain("    at ");
  });

  test("handover does not use another program's table", async () => {
    const input = `table ip kube-proxy { chain services { }; chain nat-prerouting { type nat hook prerouting priority -100; }; }\n`;
    await cluster.node.mustRun(["nft", "-f", "-"], { input });
    expect((await handover()).code).toBe(1);
    expect(await tables()).not.toContain("handover");
    await cluster.node.mustRun(["nft", "delete", "table", "ip", "kube-proxy"]);
  });
});

describe("the copy alone", () => {
  beforeAll(async () => {
    await oursAgain();
    const before = await remembered();
    const done = await handover();
    expect(done).toMatchObject({ code: 0 });
    expect(done.stderr.match(/"copy active/g)).toHaveLength(2);
    await removeTables();
    expect(await remembered()).toEqual(before);
  });
  testRows([
    ...served("copied"),
    // Rules that reject are not copied.
    { rule: "copied", from: "b", to: everyWay(empty), expect: "untouched" },
  ]);

  test("a second handover finds nothing to copy, and keeps the first copy", async () => {
    expect((await handover()).code).toBe(1);
    expect(await tables()).toContain("nft-proxier-handover");
  });

  test("--remove removes it", async () => {
    expect((await handover("--remove")).code).toBe(0);
    expect(await tables()).not.toContain("nft-proxier");
  });
});

/** The endpoints of a client of the service with affinity. */
async function remembered(): Promise<readonly string[]> {
  const found = FAMILIES.map(async (family) => {
    const seen = await answers(cluster, {
      to: clusterIP(sticky),
      family,
      protocol: "tcp",
      source: PLAN.client,
      count: 6,
    });
    return [...seen.keys()].join("|");
  });
  return Promise.all(found);
}

describe("together with rules that translate", () => {
  const elsewhere = { ...web, endpoints: ["b"] };
  const row = (expect: Row["expect"]): Row => ({ rule: "", from: "client", to: clusterIP(web), expect });

  test("kube-proxy's rules decide, whichever were written first, and masquerade with the same mark", async () => {
    await oursAgain();
    await handover();
    await removeTables();
    await iptablesMode([elsewhere, sticky]);
    expect(await checkRow(cluster, row({ pods: ["b"], masq: true }))).toEqual([]);
    // The copy still serves services that kube-proxy's rules do not have.
    expect(await checkRow(cluster, { ...row({ pods: ["r1"], masq: true }), to: nodePort(guarded) })).toEqual([]);
    await oursAgain();
    await iptablesMode([elsewhere]);
    await handover();
    await removeTables();
    expect(await checkRow(cluster, row({ pods: ["b"], masq: true }))).toEqual([]);
    expect(await checkRow(cluster, { ...row({ pods: ["a", "b"], masq: false }), to: externals(edge) })).toEqual([]);
  });
});

describe("the end of the copy", () => {
  test("the next start removes it after its own rules are active", async () => {
    await oursAgain();
    await handover();
    expect(await tables()).toContain("nft-proxier-handover");
    const { stderr } = await ours();
    expect(stderr.match(/handover copy removed/g)).toHaveLength(2);
    expect(stderr.indexOf("handover copy removed")).toBeGreaterThan(stderr.indexOf('"synced"'));
    expect(await tables()).not.toContain("handover");
  });

  test(
    `${STARTS} starts keep every copy that is made while they run`,
    { timeout: patience(Math.max(180_000, STARTS * 30_000)) },
    async () => {
      await oursAgain();
      const args = await cluster.write(SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)));
      for (let i = 0; i < STARTS; i++) {
        const daemon = cluster.start(["run", ...args]);
        let log = "";
        daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
        const exited = once(daemon, "exit");
        try {
          await sleep((i * 1000) / STARTS);
          const { code, stderr } = await handover();
          expect(code, `start ${i}: ${stderr}`).toBe(0);
          await eventually(() => expect(log).toContain("rules active"));
        } finally {
          // Ends after it has removed everything that it is about to remove.
          daemon.kill("SIGTERM");
          await exited;
        }
        const names = await tables();
        for (const family of FAMILIES) expect(names, `start ${i}: ${log}`).toContain(`${family} nft-proxier-handover`);
        // In every other try, the next start finds no older copy.
        if (i % 2 === 0) expect((await handover("--remove")).code).toBe(0);
      }
    },
  );

  test("cleanup removes it", async () => {
    await oursAgain();
    expect((await handover()).code).toBe(0);
    expect((await cluster.command(["cleanup"])).code).toBe(0);
    expect((await tables()).trim()).toBe("");
  });

  test("another handover replaces it", async () => {
    await oursAgain();
    await handover();
    await cluster.node.mustRun(["nft", "flush", "map", "ip", "kube-proxy", "nodeports"]);
    await handover();
    await removeTables();
    const row: Row = { rule: "", from: "client", to: nodePort(web), expect: "untouched", families: ["ip"] };
    expect(await checkRow(cluster, row)).toEqual([]);
    const other: Row = { ...row, families: ["ip6"], expect: { pods: ["a", "r1"], masq: true } };
    expect(await checkRow(cluster, other)).toEqual([]);
  });

  longTest("after its time limit it translates nothing, and status says so", async () => {
    const row: Row = { rule: "", from: "b", to: everyWay(web), expect: "untouched" };
    const activeRow: Row = { ...row, to: clusterIP(web), expect: { pods: ["a", "r1"], masq: false } };
    /** Checks a copy with this limit. Returns for how long it must still be active, ms: 0 if it may have expired during the checks. */
    const activeMs = async (seconds: number): Promise<number> => {
      await oursAgain();
      const began = performance.now();
      await handover("--for", `${seconds}s`);
      const ended = performance.now();
      await removeTables();
      const wrong = await checkRow(cluster, activeRow);
      const { stdout } = await cluster.command(["status"]);
      if (performance.now() > began + seconds * 1000) return 0;
      expect(wrong).toEqual([]);
      expect(stdout).toMatch(/handover copy of the IPv4 rules/);
      // That message would contradict it.
      expect(stdout).not.toContain("services are not served");
      expect(stdout).toContain("there is no table kube-proxy, so no rules of nft-proxier are active");
      return ended + seconds * 1000 - performance.now();
    };
    // Longer on a machine that needs longer for the checks.
    let leftMs = 0;
    for (let seconds = 4; leftMs === 0; seconds *= 2) leftMs = await activeMs(seconds);
    await sleep(leftMs);
    expect(await checkRow(cluster, row)).toEqual([]);
    expect((await cluster.command(["status"])).stdout).toMatch(/expired handover copy of the IPv6 rules/);
  });
});

test("handover needs only CAP_NET_ADMIN", async () => {
  await oursAgain();
  const rights = ["setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all", "--no-new-privs"];
  const done = await cluster.commandThrough(rights, ["handover"]);
  expect({ code: done.code, stderr: done.stderr }).toMatchObject({ code: 0 });
});

test("node ports on loopback keep working, and their open connections continue", async () => {
  await cluster.node.mustRun(["nft", "flush", "ruleset"]);
  const objects = SERVICES.flatMap((service) => serviceObjects(cluster.lab, service));
  await cluster.apply(objects, configuration({ nodePortAddresses: ["primary", "localhost"] }));
  const loopback = { ip: "127.0.0.1", ip6: "::1" };
  const { address, namespace } = cluster.lab.pod("e");
  await startEchoServer(namespace, address.ip, POD_PORT);
  const open = await Conversation.open(cluster.node, loopback.ip, nodePort(lasting).port);
  try {
    expect(await open.say("before")).toBe("before");
    await handover();
    await removeTables();
    expect(await open.say("after")).toBe("after");
  } finally {
    open.close();
  }
  const to = target("loopback", loopback, nodePort(web).port);
  const row: Row = { rule: "", from: "nodeItself", to, expect: { pods: ["a", "r1"], masq: true } };
  expect(await checkRow(cluster, row)).toEqual([]);
});
