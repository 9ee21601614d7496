/**
 * `trace --all-packets` finds holes for long packets. Behind the node is a router with a small MTU, with and without ICMP messages. Or the link to
 * the endpoint has a small MTU.
 */
import type { ChildProcess } from "node:child_process";
import { release } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../lab/eventually.ts";
import { Namespace } from "../lab/namespace.ts";
import { type AddressPair, FAMILIES, type Family, PLAN } from "../lab/topology.ts";
import { factsOf } from "../support/kernel-facts.ts";
import { Cluster } from "./support/cluster.ts";
import { end } from "./support/daemon.ts";
import { loadBalancerAddress, serviceObject, type ServiceSpec, sliceObject } from "./support/objects.ts";

/** The client's network, behind the router, which is the lab's client. */
const ROUTER: AddressPair = { ip: "198.18.9.1", ip6: "2001:db8:9::1" };
/** Two clients, because the endpoint learns the MTU of the way to the second one. */
const FAR: AddressPair = { ip: "198.18.9.2", ip6: "2001:db8:9::2" };
const FAR_SECOND: AddressPair = { ip: "198.18.9.3", ip6: "2001:db8:9::3" };
const SMALL = 1300;
const PORT = 8088;
const service: ServiceSpec = { name: "web", n: 1, endpoints: ["a"], protocols: ["tcp"], external: "Local" };

/** Answers a word with 40,000 bytes, and more than that with "ok". */
const SERVER = `
require("node:net").createServer((socket) => {
  let length = 0;
  socket.on("error", () => undefined).on("data", (part) => {
    length += part.length;
    if (part.length === 5 && length === 5) socket.end(Buffer.alloc(40_000));
    else if (length === 40_000) socket.end("ok");
  });
}).listen(${PORT}, "::", () => console.log("listening"));
`;
/** Sends so many bytes and prints how many it gets. */
const CLIENT = `
const [host, localAddress, bytes] = process.argv.slice(1);
let length = 0;
require("node:net").connect({ host, localAddress, port: 80 }, function () { this.write(Buffer.alloc(Number(bytes))); })
  .on("data", (part) => { length += part.length; console.log(length); }).on("error", () => undefined);
`;

let cluster: Cluster;
let far: Namespace;
let socket: string;
let daemon: ChildProcess;

beforeAll(async () => {
  cluster = await Cluster.create();
  far = await Namespace.create(`far-${process.pid}`);
  const { node, client } = cluster.lab;
  await client.sysctl({ "net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1, "net.ipv4.icmp_ratelimit": 0 });
  await node.sysctl({ "net.ipv4.icmp_ratelimit": 0 });
  await client.ip([
    `link add far0 mtu ${SMALL} type veth peer name eth0 netns ${far.name}`,
    "link set far0 up",
    `addr add ${ROUTER.ip}/24 dev far0`,
    `addr add ${ROUTER.ip6}/64 dev far0 nodad`,
  ]);
  await far.ip([
    "link set lo up",
    "link set eth0 mtu 1500 up",
    ...[FAR, FAR_SECOND].flatMap(({ ip, ip6 }) => [`addr add ${ip}/24 dev eth0`, `addr add ${ip6}/64 dev eth0 nodad`]),
    `route add default via ${ROUTER.ip}`,
    `route add default via ${ROUTER.ip6}`,
  ]);
  await node.ip([`route add 198.18.9.0/24 via ${PLAN.client.ip}`, `route add 2001:db8:9::/64 via ${PLAN.client.ip6}`]);
  const server = cluster.lab
    .pod("a")
    .namespace.spawn([process.execPath, "-e", SERVER], { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((resolve) => server.stdout?.once("data", resolve));
  socket = join(await cluster.temporaryDirectory(), "daemon.sock");
  const slices = FAMILIES.map((family) =>
    sliceObject(cluster.lab, {
      name: `web-${family}`,
      service: "web",
      family,
      endpoints: ["a"],
      protocols: ["tcp"],
      port: PORT,
    }),
  );
  const args = await cluster.write([serviceObject(service), ...slices]);
  daemon = cluster.start(["run", ...args, "--control-socket", socket]);
  daemon.stderr?.resume();
  await eventually(async () =>
    expect((await cluster.command(["status", "--socket", socket])).stdout).toMatch(/IPv6 +active: 1 service/),
  );
});
afterAll(async () => {
  await end(daemon);
  await far.destroy();
  await cluster.destroy();
});

afterEach(async () => {
  for (const undo of undoes.splice(0)) await undo();
});
const undoes: (() => Promise<unknown>)[] = [];

/** `trace --all-packets` with what it has printed. */
async function tracing(client: string): Promise<{ readonly out: () => string; readonly stop: () => Promise<void> }> {
  const words = ["trace", client, "web", "-n", "default", "--all-packets", "--for", "0", "--socket", socket];
  const child = cluster.start(words, "pipe");
  let out = "";
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding("utf8").on("data", (text: string) => (out += text));
  await eventually(() => expect(out).toContain("tracing packets"));
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  return { out: () => out, stop: () => (child.kill("SIGINT"), ended) };
}

/** A connection that sends so many bytes; `got` is the number of bytes that it received. */
function connect(
  from: Namespace,
  family: Family,
  source: AddressPair,
  bytes: number,
): { readonly got: () => number; readonly close: () => void } {
  const words = ["-e", CLIENT, loadBalancerAddress(1)[family], source[family], String(bytes)];
  const child = from.spawn([process.execPath, ...words], { stdio: ["ignore", "pipe", "inherit"] });
  let got = 0;
  child.stdout?.setEncoding("utf8").on("data", (text: string) => (got = Number(text.trim().split("\n").at(-1))));
  return { got: () => got, close: () => void child.kill() };
}

const WORD = 5;
const MUCH = 40_000;

// Older kernels have no trace.
describe.skipIf(!factsOf(release()).owner).each(FAMILIES)("%s", (family) => {
  const fragment = family === "ip" ? ", DF" : "";

  test("a router that drops long packets silently: the same segment, three times", async () => {
    const hole =
      "table inet hole { chain out { type filter hook output priority 0; icmp type destination-unreachable drop; icmpv6 type packet-too-big drop; }; }";
    await cluster.lab.client.mustRun(["nft", "-f", "-"], { input: hole });
    undoes.push(() => cluster.lab.client.mustRun(["nft", "delete", "table", "inet", "hole"]));
    const { code } = await cluster.command(["status", "--socket", socket]);
    expect(code).toBe(0);
    const trace = await tracing(FAR[family]);
    const connection = connect(far, family, FAR, WORD);
    await eventually(() =>
      expect(trace.out()).toMatch(
        /hint: the endpoint has sent the same segment three times \(sequence \d+, \d{4,} bytes\)/,
      ),
    );
    expect(connection.got()).toBe(0);
    const packets = [
      String.raw` → .* default/web:tcp → .*, in eth1, out pod0, \d\d bytes, SYN, seq \d+ ack 0${fragment}\n`,
      String.raw` ← .* default/web:tcp ← .*, in pod0, out eth1, \d\d bytes, SYN ACK, seq \d+ ack \d+${fragment}\n`,
      String.raw` → .*, \d\d bytes, PSH ACK, seq \d+ ack \d+${fragment}\n`,
      String.raw` ← .*, \d{4,} bytes, (PSH )?ACK, seq \d+ ack \d+${fragment}\n`,
    ];
    for (const packet of packets) expect(trace.out()).toMatch(new RegExp(packet));
    connection.close();
    await trace.stop();
    expect(trace.out()).toMatch(/\d+ packets: .*\d+ in reply/);
  });

  test("a router that sends ICMP messages: who sent them, and the MTU of the next link", async () => {
    const trace = await tracing(FAR_SECOND[family]);
    const connection = connect(far, family, FAR_SECOND, WORD);
    await eventually(() => expect(connection.got()).toBe(MUCH));
    const name = family === "ip" ? "fragmentation needed" : "packet too big";
    const routers = `(${PLAN.client[family]}|${PLAN.clientSecond[family].replace(":0:", ":0?:")})`;
    const hint = `hint: ICMP "${name}" from ${routers} to ${loadBalancerAddress(1)[family]}: the next link takes ${SMALL} bytes`;
    await eventually(() => expect(trace.out()).toMatch(new RegExp(hint)));
    connection.close();
    await trace.stop();
  });

  test("a small MTU on the way to the endpoint: both MTUs, and the node's own ICMP messages", async () => {
    await cluster.node.mustRun(["ip", "link", "set", "pod0", "mtu", String(SMALL)]);
    undoes.push(() => cluster.node.mustRun(["ip", "link", "set", "pod0", "mtu", "1500"]));
    const trace = await tracing(PLAN.client[family]);
    const connection = connect(cluster.lab.client, family, PLAN.client, MUCH);
    const endpoint = cluster.lab.pod("a").address[family];
    const hint = `hint: the route to the endpoint ${endpoint} takes ${SMALL} bytes, the one to the client ${PLAN.client[family]} 1500.`;
    await eventually(() => expect(trace.out()).toContain(hint));
    await eventually(() =>
      expect(trace.out()).toMatch(
        new RegExp(`hint: ICMP ".*" from this node to ${PLAN.client[family]}: the next link takes ${SMALL} bytes`),
      ),
    );
    connection.close();
    await trace.stop();
  });
});
