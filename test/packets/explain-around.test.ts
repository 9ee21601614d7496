/** `explain` also reports settings of this node beside the rules that decide about a packet. */
import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../lab/eventually.ts";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterAddress, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { end } from "./support/daemon.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const VIP = clusterAddress(web.n).ip;

let cluster: Cluster;
let directory: string;
let socket: string;
let daemon: ChildProcess;
beforeAll(async () => {
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  directory = await cluster.temporaryDirectory();
  socket = join(directory, "daemon.sock");
  const args = await cluster.write(serviceObjects(cluster.lab, web));
  daemon = cluster.start(["run", ...args, "--control-socket", socket]);
  daemon.stderr?.resume();
  await eventually(async () =>
    expect((await cluster.command(["status", "--socket", socket])).stdout).toContain("active: 1 service"),
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
