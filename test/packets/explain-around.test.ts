/** `explain` also reports settings of this node beside the rules that decide about a packet. */
import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { NetlinkConntrack } from "../../src/nft/conntrack/netlink-conntrack.ts";
import { eventually } from "../lab/eventually.ts";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { entryTo, GONE } from "./support/entries.ts";
import { clusterAddress, nodePortOf, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { end } from "./support/daemon.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const empty: ServiceSpec = { name: "empty", n: 2, endpoints: [] };
const VIP = clusterAddress(web.n).ip;

let cluster: Cluster;
let directory: string;
let socket: string;
let daemon: ChildProcess;
beforeAll(async () => {
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  directory = await cluster.temporaryDirectory();
  socket = join(directory, "daemon.sock");
  const args = await cluster.write([web, empty].flatMap((service) => serviceObjects(cluster.lab, service)));
  daemon = cluster.start(["run", ...args, "--control-socket", socket]);
  daemon.stderr?.resume();
  await eventually(async () =>
    expect((await cluster.command(["status", "--socket", socket])).stdout).toContain("active: 2 services"),
  );
});
afterAll(async () => {
  await end(daemon);
  await cluster.destroy();
});

interface Told {
  readonly verdict: string;
  readonly endpoints?: readonly unknown[];
  readonly notes: readonly string[];
  readonly open?: unknown;
  readonly obstacle?: string;
  readonly steps: readonly { readonly table: string; readonly text: string }[];
}

async function explain(...words: readonly string[]): Promise<Told> {
  const { code, stdout, stderr } = await cluster.command(["explain", ...words, "-o", "json", "--socket", socket]);
  if (code !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as Told;
}

const notesOf = async (...words: readonly string[]): Promise<readonly string[]> => (await explain(...words)).notes;

test("if everything works, the only note is that open connections stay", async () => {
  const { verdict, notes, steps } = await explain("tcp", PLAN.client.ip, `${VIP}:80`);
  expect(verdict).toBe("endpoint");
  // A chain's rules may repeat a check; it is reported once.
  expect(new Set(steps.map((step) => JSON.stringify(step))).size).toBe(steps.length);
  expect(notes).toEqual(["open connections keep their endpoint; `nft-proxier conntrack list` shows them"]);
});

test("an unknown address gets the nearest service, and a wrong port the existing ones", async () => {
  expect(await notesOf("tcp", "10.96.1.9:80")).toContainEqual(
    expect.stringMatching(/^no service has this address; the nearest is 10\.96\.1\.2:80\/\w+ of default\/empty$/),
  );
  const notes = await notesOf("tcp", `${VIP}:81`);
  expect(notes.join()).toMatch(/no service has this port and protocol; .* 80\/TCP of default\/web/);
  const unused = nodePortOf(web.n) + 500;
  expect(await notesOf("tcp", PLAN.client.ip, `${PLAN.node.ip}:${unused}`)).toContainEqual(
    expect.stringMatching(new RegExp(`^no service has node port ${unused}/TCP; the nearest is \\d+/\\w+ of default/`)),
  );
});

test.each(["tcp", "udp"] as const)(
  "a %s port on which a program of the node listens is no mistyped node port",
  async (protocol) => {
    // The daemon's own health port, for example.
    await cluster.node.agent().serve(protocol, PLAN.node.ip, 10_256, "health");
    expect(await notesOf(protocol, PLAN.client.ip, `${PLAN.node.ip}:10256`)).toContain(
      `no service has node port 10256/${protocol.toUpperCase()}; a program of this node listens on ${PLAN.node.ip}:10256`,
    );
  },
);

test("a node port on an address without node ports is explained", async () => {
  const notes = await notesOf("tcp", PLAN.client.ip, `${PLAN.nodeSecond.ip}:${nodePortOf(web.n)}`);
  expect(notes).toContain(
    `node port ${nodePortOf(web.n)} belongs to default/web, but this node serves node ports on ${PLAN.node.ip}, not on ${PLAN.nodeSecond.ip}`,
  );
});

test("open connections are decided by connection tracking instead of the rules", async () => {
  const table = await NetlinkConntrack.open({ netns: `/run/netns/${cluster.lab.node.name}` });
  try {
    const shared = { family: "ip", protocol: "tcp", destination: VIP, port: 80, state: "ESTABLISHED" } as const;
    const a = cluster.lab.pod("a").address.ip;
    for (const sourcePort of [1001, 1002]) await table.create(entryTo({ ...shared, sourcePort, endpoint: a }));
    await table.create(entryTo({ ...shared, sourcePort: 1003, endpoint: GONE.ip }));
    // One is not open yet, the other is already closed.
    await table.create(entryTo({ ...shared, sourcePort: 1004, endpoint: a, state: "SYN_SENT" }));
    await table.create(entryTo({ ...shared, sourcePort: 1005, endpoint: a, state: "TIME_WAIT" }));
    const told = await explain("tcp", PLAN.client.ip, `${VIP}:80`);
    expect(told.notes).toContain(
      `established connections bypass these rules and keep their endpoint: ${a}:8080 (2), ${GONE.ip}:8080 (1, not used for new connections)`,
    );
    expect(told.open).toEqual([
      { address: a, port: 8080, count: 2 },
      { address: GONE.ip, port: 8080, count: 1 },
    ]);
    // Entries of other clients do not matter to this one.
    expect(await explain("tcp", PLAN.clientSecond.ip, `${VIP}:80`)).not.toHaveProperty("open");
  } finally {
    await table.close();
  }
});

test("a missing route, disabled forwarding and a strict rp_filter are reported", async () => {
  const a = cluster.lab.pod("a").address.ip;
  // Unset the preloaded sanitizer: it would find the faults of `ip route show` and end it.
  const show = ["env", "-u", "LD_PRELOAD", "ip", "route", "show", `${a}/32`];
  const route = (await cluster.lab.node.mustRun(show)).trim().split(/\s+/);
  await cluster.lab.node.mustRun(["ip", "route", "replace", "unreachable", `${a}/32`]);
  await cluster.node.sysctl({ "net.ipv4.ip_forward": 0, "net.ipv4.conf.all.rp_filter": 1 });
  try {
    const told = await explain("tcp", PLAN.client.ip, `${VIP}:80`, "--in", "lo");
    const isAgainst = new RegExp(
      `^rp_filter is strict and requires packets from ${PLAN.client.ip} to arrive on \\w+\\. Correct the route, or run \`sysctl -w net\\.ipv4\\.conf\\.all\\.rp_filter=2\`$`,
    );
    expect(told).toMatchObject({ verdict: "dropped", obstacle: expect.stringMatching(isAgainst) as string });
    const notes = told.notes.join("\n");
    expect(notes).toMatch(new RegExp(`^there is no route to ${a}$`, "m"));
    expect(notes).toMatch(/^IP forwarding is off \(net\.ipv4\.ip_forward is 0\)/m);
    // Without the interface, `explain` cannot know whether this filter drops the packet, but the others do drop it.
    const { stdout } = await cluster.command(["explain", "tcp", PLAN.client.ip, `${VIP}:80`, "--socket", socket]);
    expect(stdout.split("\n")[0]).toMatch(
      /does not arrive: IP forwarding is off \(net\.ipv4\.ip_forward is 0\), so this node forwards no packets/,
    );
    // Packets that this node sends itself are not forwarded.
    const own = await explain("tcp", PLAN.node.ip, `${VIP}:80`);
    expect(own.obstacle).toBe(`there is no route to ${a}`);
  } finally {
    await cluster.node.sysctl({ "net.ipv4.ip_forward": 1, "net.ipv4.conf.all.rp_filter": 0 });
    await cluster.lab.node.mustRun(["ip", "route", "replace", ...route]);
  }
});

test("a program of this node without a route to the service's address is reported", async () => {
  await cluster.lab.node.mustRun(["ip", "route", "replace", "unreachable", `${VIP}/32`]);
  try {
    const reached = { protocol: "tcp", source: PLAN.node.ip, destination: VIP, port: 80 } as const;
    expect(await cluster.node.agent().probe({ ...reached, timeoutMs: 500 })).not.toMatchObject([{ result: "ok" }]);
    expect(await explain("tcp", PLAN.node.ip, `${VIP}:80`)).toMatchObject({
      verdict: "dropped",
      obstacle: `this node has no route to ${VIP}, so its programs cannot connect to it`,
    });
    // Packets of others are translated before they are routed.
    expect(await explain("tcp", PLAN.client.ip, `${VIP}:80`)).toMatchObject({ verdict: "endpoint" });
  } finally {
    await cluster.lab.node.mustRun(["ip", "route", "del", "unreachable", `${VIP}/32`]);
  }
});

const fromClient = { protocol: "tcp", source: PLAN.client.ip, destination: VIP, port: 80 } as const;

test("a rule for routes that prohibits the client's packets is reported", async () => {
  const rule = ["from", "198.51.100.0/24", "prohibit", "priority", "100"];
  await cluster.lab.node.mustRun(["ip", "rule", "add", ...rule]);
  try {
    expect(await cluster.lab.client.agent().probe({ ...fromClient, timeoutMs: 500 })).not.toMatchObject([
      { result: "ok" },
    ]);
    const away = { verdict: "dropped", obstacle: `there is no route to ${cluster.lab.pod("a").address.ip}` };
    expect(await explain("tcp", PLAN.client.ip, `${VIP}:80`)).toMatchObject(away);
    expect(await explain("tcp", PLAN.client.ip, `${VIP}:80`, "--in", "eth1")).toMatchObject(away);
    expect(await explain("tcp", PLAN.remoteNode.ip, `${VIP}:80`)).toMatchObject({ verdict: "endpoint" });
  } finally {
    await cluster.lab.node.mustRun(["ip", "rule", "del", ...rule]);
  }
});

test("forwarding that is off on one interface is reported", async () => {
  await cluster.node.sysctl({ "net.ipv4.conf.eth1.forwarding": 0 });
  try {
    expect(await cluster.lab.client.agent().probe({ ...fromClient, timeoutMs: 500 })).toMatchObject([
      { result: "timeout" },
    ]);
    const off =
      /^IP forwarding is off on eth1 \(net\.ipv4\.conf\.eth1\.forwarding is 0\), so this node forwards no packets from there/;
    for (const more of [[], ["--in", "eth1"]]) {
      const obstacle = expect.stringMatching(off) as string;
      expect(await explain("tcp", PLAN.client.ip, `${VIP}:80`, ...more)).toMatchObject({
        verdict: "dropped",
        obstacle,
      });
    }
    expect(await explain("tcp", PLAN.remoteNode.ip, `${VIP}:80`)).toMatchObject({ verdict: "endpoint" });
  } finally {
    await cluster.node.sysctl({ "net.ipv4.conf.eth1.forwarding": 1 });
  }
  await cluster.node.sysctl({ "net.ipv4.conf.pod0.forwarding": 0 });
  try {
    expect(await cluster.lab.client.agent().probe({ ...fromClient, timeoutMs: 500 })).toMatchObject([
      { result: "timeout" },
    ]);
    expect((await explain("tcp", PLAN.client.ip, `${VIP}:80`)).notes).toContainEqual(
      expect.stringMatching(/^IP forwarding is off on pod0 .* from there, such as replies of endpoints; run/),
    );
  } finally {
    await cluster.node.sysctl({ "net.ipv4.conf.pod0.forwarding": 1 });
  }
});

test("routes that only marked packets, or replies, do not have are named", async () => {
  const marking = (rule: string): string =>
    `table inet marking { chain pass { type filter hook prerouting priority -150; ${rule} meta mark set 0x1; }; }`;
  const rule = ["fwmark", "0x1/0x1", "lookup", "100", "pref", "100"];
  const refused = "which is missing, or refuses packets";
  const node = cluster.lab.node;
  await node.mustRun(["ip", "rule", "add", ...rule]);
  try {
    const a = cluster.lab.pod("a").address.ip;
    for (const [route, why] of [
      [["unreachable", "default"], refused],
      [["local", "default", "dev", "lo"], "which is local (ip rule)"],
    ] as const) {
      await node.mustRun(["ip", "route", "replace", ...route, "table", "100"]);
      await node.mustRun(["nft", "-f", "-"], { input: marking("ct state new") });
      const told = await explain("tcp", PLAN.client.ip, `${VIP}:80`);
      expect(told).toMatchObject({ verdict: "unknown", unknown: [`the route to ${a}, ${why}`] });
      await node.mustRun(["nft", "delete", "table", "inet", "marking"]);
      await node.mustRun(["ip", "route", "flush", "table", "100"]);
    }
  } finally {
    await node.mustRun(["ip", "rule", "del", ...rule]);
  }
  await node.mustRun(["ip", "route", "replace", "unreachable", `${PLAN.client.ip}/32`]);
  try {
    const told = await explain("tcp", PLAN.client.ip, `${VIP}:80`);
    const reply = { verdict: "unknown", by: `the route to ${PLAN.client.ip}, ${refused}` };
    expect(told.endpoints).toEqual([expect.objectContaining({ reply })]);
  } finally {
    await node.mustRun(["ip", "route", "del", "unreachable", `${PLAN.client.ip}/32`]);
  }
});

test("a missing route to an address that no rule touches is reported", async () => {
  const nowhere = "198.18.7.7";
  await cluster.lab.node.mustRun(["ip", "route", "replace", "unreachable", `${nowhere}/32`]);
  try {
    expect(await explain("tcp", PLAN.client.ip, `${nowhere}:80`)).toMatchObject({
      verdict: "dropped",
      obstacle: `there is no route to ${nowhere}`,
    });
  } finally {
    await cluster.lab.node.mustRun(["ip", "route", "del", "unreachable", `${nowhere}/32`]);
  }
  expect(await explain("tcp", PLAN.client.ip, `${PLAN.node.ip}:9`)).toMatchObject({ verdict: "untouched" });
});

test("another program's chain that drops is the final step", async () => {
  const wall = "table inet wall { chain pass { type filter hook forward priority 5; policy drop; }; }";
  await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: wall });
  try {
    const { verdict, steps } = await explain("tcp", PLAN.client.ip, `${VIP}:80`);
    expect(verdict).toBe("dropped");
    expect(steps.at(-1)).toMatchObject({ table: "inet wall", text: "dropped by the chain's policy" });
  } finally {
    await cluster.lab.node.mustRun(["nft", "delete", "table", "inet", "wall"]);
  }
});

test("ICMP errors are reported as rate-limited by the kernel", async () => {
  await cluster.node.sysctl({ "net.ipv4.icmp_ratelimit": 1000, "net.ipv4.icmp_ratemask": 6168 });
  const { verdict, notes } = await explain("udp", PLAN.client.ip, `${clusterAddress(empty.n).ip}:80`);
  expect(verdict).toBe("rejected");
  expect(notes.join()).toMatch(/net\.ipv4\.icmp_ratelimit is \d+\), so some clients see a timeout/);
});
