/** Other processes' changes to the tables of a running daemon: undone at once, as packets show, and logged. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { EVENTUALLY_MS } from "../lab/eventually.ts";
import { FAMILIES } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterIP, nodePort, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { checkRow, type Row } from "./support/rows.ts";
import { patience } from "../lab/patience.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const sticky: ServiceSpec = { name: "sticky", n: 2, endpoints: ["a", "b", "r1"], affinitySeconds: patience(60) };

let cluster: Cluster;
let daemon: ChildProcess;
let log = "";

const rows: readonly Row[] = [
  { rule: "", from: "c", to: clusterIP(web), expect: { pods: ["a"], masq: false } },
  { rule: "", from: "client", to: nodePort(web), expect: { pods: ["a"], masq: true } },
];

interface Repair {
  readonly ts: string;
  readonly family: string;
  readonly cause: string;
  readonly found: string[];
  readonly by: string[];
  readonly ms: number;
}

/** The repairs in the log, from `offset` on. */
function repairs(offset: number): Repair[] {
  const lines = log.slice(offset).split("\n").slice(0, -1);
  return lines
    .map((line) => JSON.parse(line) as Repair & { msg: string })
    .filter(({ msg }) => msg.startsWith("table changed by another process"));
}

const nft = (...args: string[]): Promise<string> => cluster.lab.node.mustRun(["nft", ...args]);
/** The ruleset without counters and handles; the remaining time of affinity entries changes. */
const listing = async (): Promise<string> =>
  (await nft("-s", "list", "ruleset")).replaceAll(/ expires \d[\dhms]*/g, "");

async function until<T>(what: string, look: () => T | undefined | Promise<T | undefined>): Promise<T> {
  for (const start = performance.now(); performance.now() - start < EVENTUALLY_MS;) {
    const found = await look();
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`not in time: ${what}\n${log}`);
}

beforeAll(async () => {
  cluster = await Cluster.create();
  const args = await cluster.write([web, sticky].flatMap((service) => serviceObjects(cluster.lab, service)));
  // Every repair is logged, also while another process keeps changing the tables.
  daemon = cluster.start(["run", ...args, "--log-level", "debug"]);
  daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  await until("served", () => (log.split('"msg":"synced"').length > FAMILIES.length ? true : undefined));
});
afterAll(async () => {
  await cluster.destroy();
});

/** Runs `deed`, and waits for `count` repairs. */
async function repaired(count: number, deed: () => Promise<unknown>): Promise<Repair[]> {
  const offset = log.length;
  await deed();
  return until("repaired", () => {
    const found = repairs(offset);
    return found.length >= count ? found : undefined;
  });
}

/** Stops the daemon while `deed` runs. It continues even if `deed` fails, as later tests need it. */
async function whileStopped(deed: () => Promise<void>): Promise<void> {
  daemon.kill("SIGSTOP");
  try {
    await deed();
  } finally {
    daemon.kill("SIGCONT");
  }
}

describe("changes with nft", () => {
  const deeds: readonly (readonly [string, readonly string[]])[] = [
    ["deletes a rule", ["flush", "chain", "ip", "kube-proxy", "services"]],
    ["makes everything drop", ["insert", "rule", "ip", "kube-proxy", "nat-prerouting", "drop"]],
    [
      "changes a policy",
      ["add chain ip kube-proxy filter-forward { type filter hook forward priority 0; policy drop; }"],
    ],
    ["empties a map", ["flush", "map", "ip", "kube-proxy", "services"]],
    ["adds a chain", ["add", "chain", "ip", "kube-proxy", "theirs"]],
    ["deletes a table", ["delete", "table", "ip", "kube-proxy"]],
  ];
  for (const [deed, args] of deeds) {
    test(`${deed}: undone, and the log names the process`, async () => {
      const before = await listing();
      const [repair] = await repaired(1, () => nft(...args));
      expect(repair).toMatchObject({ family: "ip", cause: deed === "deletes a table" ? "table-deleted" : "changed" });
      expect(repair.by).toEqual([
        expect.stringMatching(/^nft \((?:pid \d+(?:, started by \S+)?|thread \d+, not in \/proc)\)$/),
      ]);
      expect(sorted(await listing())).toEqual(sorted(before));
      for (const row of rows) expect(await checkRow(cluster, row)).toEqual([]);
    });
  }

  test("flushes the whole ruleset: both families are restored, and so is the service", async () => {
    const before = await listing();
    const found = await repaired(2, () => nft("flush", "ruleset"));
    expect(found.map(({ family, cause }) => `${family} ${cause}`).sort()).toEqual([
      "ip table-deleted",
      "ip6 table-deleted",
    ]);
    expect(sorted(await listing())).toEqual(sorted(before));
    for (const row of rows) expect(await checkRow(cluster, row)).toEqual([]);
  });

  test("exchanges the names of two chains: elements lead to the right one again", async () => {
    const before = await listing();
    // The two families give their chains different names.
    const table = await nft("list", "table", "ip", "kube-proxy");
    const [first, second] = Array.from(table.matchAll(/chain (cluster-\d+-\S+) \{/g), ([, chain]) => chain);
    const renames = [
      [first, "third"],
      [second, first],
      ["third", second],
    ];
    await repaired(1, () =>
      whileStopped(async () => {
        for (const [from, to] of renames) await nft("rename", "chain", "ip", "kube-proxy", from, to);
      }),
    );
    await expect.poll(async () => sorted(await listing()), { timeout: EVENTUALLY_MS }).toEqual(sorted(before));
    for (const row of rows) expect(await checkRow(cluster, row)).toEqual([]);
  });

  test("adds a client to an affinity set: that is left alone", async () => {
    const set = /set (sticky-clients-\S+)/.exec(await nft("list", "table", "ip", "kube-proxy"))?.[1] ?? "";
    const offset = log.length;
    await nft(`add element ip kube-proxy ${set} { 192.0.2.99 . 6b00:1 timeout 1h }`);
    const found = await repaired(1, () => nft("add", "chain", "ip", "kube-proxy", "theirs"));
    expect(found[0].found).toEqual(["chain theirs: added"]);
    expect(repairs(offset)).toHaveLength(1);
    expect(await nft("list", "set", "ip", "kube-proxy", set)).toContain("192.0.2.99");
  });

  test("repeats a change: each is undone, and repairs take a limited share of a processor", async () => {
    const offset = log.length;
    const began = { at: performance.now(), cpuMs: cpuMsOf(daemon) };
    const longEnough = (): boolean => performance.now() > began.at + patience(3000);
    // A slow machine repairs more rarely.
    for (let times = 0; !longEnough() || times <= 20 || repairs(offset).length <= 5; times++) {
      await nft("add", "rule", "ip", "kube-proxy", "services", "counter");
    }
    // A tenth for repairs, plus the events of all these changes.
    expect((cpuMsOf(daemon) - began.cpuMs) / (performance.now() - began.at)).toBeLessThan(0.5);
  });
});

/** CPU time that the process has used, ms: Linux counts it in ticks of 10 ms on every architecture. */
function cpuMsOf({ pid }: ChildProcess): number {
  const [, fields] = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ");
  const [user, system] = fields.split(" ").slice(11, 13).map(Number);
  return 10 * (user + system);
}

test("clients that first send while the tables are away, and send again from the same port, are served after the repair", async () => {
  // Like any firewall on a node, this chain makes the kernel track connections while our table is away.
  await nft("add table inet other");
  await nft("add chain inet other input { type filter hook input priority 0; ct state established accept; }");
  for (const timeout of ["udp_timeout", "udp_timeout_stream", "sctp_timeout_cookie_wait", "sctp_timeout_cookie_echoed"])
    await cluster.lab.node.sysctl({ [`net.netfilter.nf_conntrack_${timeout}`]: patience(600) });
  const { namespace, address } = cluster.source("client");
  // No program of the node listens on this port: its answer could be on its way when the entry is deleted, and would create another.
  const { address: destinations, port } = nodePort(sticky);
  const flows = FAMILIES.flatMap((family) => (["udp", "sctp"] as const).map((protocol) => ({ family, protocol })));
  const askAll = () =>
    Promise.all(
      flows.map(async ({ family, protocol }, i) => {
        const query = { protocol, source: address?.[family], destination: destinations[family], port };
        const [outcome] = await namespace.agent().probe({ ...query, sourcePort: 22_000 + i });
        return outcome.result === "ok" ? outcome.name : outcome.result;
      }),
    );
  await whileStopped(async () => {
    for (const family of FAMILIES) await nft("delete", "table", family, "kube-proxy");
    for (const result of await askAll()) expect(result).toMatch(/^(refused|unreachable)$/);
  });
  // Each packet renews its entry, so only the proxier can end it.
  await until("served", async () =>
    (await askAll()).every((name) => sticky.endpoints.includes(name)) ? true : undefined,
  );
  await nft("delete", "table", "inet", "other");
});

test("it ends with its rules in place and nothing left to repair", async () => {
  await until("repaired in the end", async () => {
    const text = await nft("list", "chain", "ip", "kube-proxy", "services");
    return text.includes("counter") ? undefined : true;
  });
  const exited = once(daemon, "exit");
  daemon.kill("SIGTERM");
  expect(await exited).toEqual([0, null]);
  for (const row of rows) expect(await checkRow(cluster, row)).toEqual([]);
});

/** Recreated chains and sets are listed last. */
function sorted(text: string): string[] {
  return text.split("\n").sort();
}
