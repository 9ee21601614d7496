/**
 * Connections that endpoints refuse or do not answer, and those that services refuse. They are counted per service and endpoint, and are a
 * problem in `status` if no endpoint of a service accepts any.
 */
import { release } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { EVENTUALLY_MS, eventually } from "../lab/eventually.ts";
import type { Transport } from "../lab/agent.ts";
import { type AddressPair, FAMILIES, type Family, PLAN } from "../lab/topology.ts";
import { ask } from "../../src/daemon/control/client.js";
import type { ServiceList, ServicePortStatus, StatusReport } from "../../src/observe/status-report.js";
import { factsOf } from "../support/kernel-facts.ts";
import { answers } from "./support/clients.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  loadBalancer,
  type Manifest,
  nodePort,
  serviceObject,
  serviceObjects,
  type ServiceSpec,
  sliceObject,
  type Target,
} from "./support/objects.ts";

/** No program listens on it. */
const WRONG_PORT = 8081;

const tcp = { protocols: ["tcp"] } as const;
const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"], ...tcp };
const remote: ServiceSpec = { name: "remote", n: 2, endpoints: ["r1"], ...tcp };
const silent: ServiceSpec = { name: "silent", n: 3, endpoints: ["b"], ...tcp };
const empty: ServiceSpec = { name: "empty", n: 4, endpoints: [], ...tcp };
const far: ServiceSpec = { name: "far", n: 5, endpoints: ["r1"], external: "Local", ...tcp };
const ranged: ServiceSpec = { name: "ranged", n: 6, endpoints: ["a"], ranges: ["10.0.0.0/8", "fd00::/8"], ...tcp };
const limited: ServiceSpec = {
  ...{ name: "limited", n: 7, endpoints: ["a"], ...tcp },
  metadata: { annotations: { "nft-proxier.dev/rate-per-client": "1/hour burst 1" } },
};
const well: ServiceSpec = { name: "well", n: 8, endpoints: ["a", "r1"], ...tcp };
/** Its endpoint is a program of the node itself. */
const host: ServiceSpec = { name: "host", n: 9, endpoints: ["a"], ...tcp };

const dns: ServiceSpec = { name: "dns", n: 10, endpoints: ["a"], protocols: ["udp"] };
const hostDNS: ServiceSpec = { name: "host-dns", n: 11, endpoints: ["a"], protocols: ["udp"] };
const farDNS: ServiceSpec = { name: "far-dns", n: 12, endpoints: ["r1"], protocols: ["udp"] };
const quietDNS: ServiceSpec = { name: "quiet-dns", n: 13, endpoints: ["b"], protocols: ["udp"] };

let cluster: Cluster;
let socket: string;

/** A service whose endpoints have this port. */
function withPort(service: ServiceSpec, port: number): Manifest[] {
  const slices = FAMILIES.map((family) => {
    const { name, endpoints, protocols } = service;
    return sliceObject(cluster.lab, { name: `${name}-${family}`, service: name, family, endpoints, protocols, port });
  });
  return [serviceObject(service), ...slices];
}

function objects(webPort: number): Manifest[] {
  const ofHost = [host, hostDNS]
    .flatMap((service) => withPort(service, WRONG_PORT))
    .map((object) =>
      object["kind"] === "Service"
        ? object
        : {
            ...object,
            endpoints: [
              { addresses: [PLAN.node[object["addressType"] === "IPv4" ? "ip" : "ip6"]], nodeName: "node-1" },
            ],
          },
    );
  const others = [silent, empty, far, ranged, limited, well, quietDNS];
  return [
    ...withPort(web, webPort),
    ...[remote, dns, farDNS].flatMap((service) => withPort(service, WRONG_PORT)),
    ...ofHost,
    ...others.flatMap((service) => serviceObjects(cluster.lab, service)),
  ];
}

beforeAll(async () => {
  cluster = await Cluster.create();
  socket = join(await cluster.temporaryDirectory(), "daemon.sock");
  const drop = "table inet quiet { chain in { type filter hook input priority 0; meta l4proto { tcp, udp } drop; }; }";
  await cluster.lab.pod("b").namespace.mustRun(["nft", "-f", "-"], { input: drop });
  const args = await cluster.write(objects(WRONG_PORT));
  cluster.start(["run", ...args, "--control-socket", socket]).stderr?.resume();
  await eventually(async () => expect((await status()).families.every(({ inForce }) => inForce)).toBe(true));
});
afterAll(() => cluster.destroy());

const status = async (): Promise<StatusReport> => (await ask(socket, "status")) as StatusReport;

async function portOf({ name }: ServiceSpec, family: Family): Promise<ServicePortStatus> {
  const { items } = (await ask(socket, "services", "default", name)) as ServiceList;
  return items.find((item) => item.family === family)!;
}

async function problemsOf({ name }: ServiceSpec): Promise<string[]> {
  const { problems } = await status();
  return problems.map(({ what }) => what).filter((what) => what.startsWith(`default/${name}:`));
}

interface Way {
  readonly from?: string;
  readonly to: Target;
}

async function connect(
  family: Family,
  { from = "client", to }: Way,
  count: number,
  timeoutMs?: number,
  protocol: Transport = "tcp",
) {
  const { namespace, address } = cluster.source(from);
  const source: AddressPair = address ?? { ip: "0.0.0.0", ip6: "::" };
  return answers(cluster, { to, family, protocol, source, from: namespace, count, timeoutMs });
}

/** Sends IPv4 packets with any content: `send(protocol, source, destination, payload)`. */
const RAW = `
import socket, struct
def checksum(data):
    words = struct.unpack("!%dH" % (len(data) // 2), data)
    total = sum(words)
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def packet(protocol, source, destination, payload):
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol, 0) + addresses + payload
def send(protocol, source, destination, payload):
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    raw.sendto(packet(protocol, source, destination, payload), (destination, 0))
`;

/** Older kernels count nothing. */
const { countsAdded } = factsOf(release());

describe.skipIf(!countsAdded)("forged packets do not make a healthy endpoint look failing", () => {
  const none = async (service: ServiceSpec): Promise<void> => {
    await new Promise((resolve) => setTimeout(resolve, 1100));
    expect((await portOf(service, "ip")).refusals).toBeUndefined();
  };

  test("a pod's ICMP errors about its own connection, with another pod's address", async () => {
    const [client, own, other] = ["c", "b", "a"].map((name) => cluster.lab.pod(name).address.ip);
    await connect("ip", { from: "c", to: clusterIP(quietDNS) }, 1, 200, "udp");
    const { stdout } = await cluster.command(["conntrack", "list", "--protocol", "udp", "-o", "json"]);
    const entry = stdout
      .trim()
      .split("\n")
      .map(
        (line) => JSON.parse(line) as { original: { source: string; sourcePort: number }; reply: { source: string } },
      )
      .find(({ original, reply }) => original.source === client && reply.source === own);
    const script = `${RAW}
inner = packet(17, "${client}", "${own}", struct.pack("!HHHH", ${entry?.original.sourcePort}, 8080, 8, 0))
body = struct.pack("!BBHI", 3, 3, 0, 0) + inner
body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
for source in ["${other}"] * 3 + ["${own}"]: send(1, source, "${client}", body)`;
    await cluster.lab.pod("b").namespace.mustRun(["python3", "-c", script]);
    await eventually(async () => expect((await portOf(quietDNS, "ip")).refusals).toEqual({ endpoint: 1 }));
    await none({ ...quietDNS, name: "well" });
    const { stdout: counted } = await cluster.node.run(["nft", "list", "set", "ip", "kube-proxy", "icmp-errors"]);
    expect(counted).toContain(`${other} . udp . 8080 . ${own} counter packets 3`);
    await cluster.node.mustRun(["nft", "flush", "set", "ip", "kube-proxy", "icmp-errors"]);
  });

  test("a client's packets in the middle of a connection that does not exist", async () => {
    const { ip } = PLAN.node;
    const script = `${RAW}
segment = struct.pack("!HHIIBBHHH", 40000, ${nodePort(well).port}, 1, 1, 0x50, 0x10, 1000, 0, 0)
pseudo = socket.inet_aton("${PLAN.client.ip}") + socket.inet_aton("${ip}") + struct.pack("!BBH", 0, 6, len(segment))
segment = segment[:16] + struct.pack("!H", checksum(pseudo + segment)) + segment[18:]
for i in range(5): send(6, "${PLAN.client.ip}", "${ip}", segment)`;
    await cluster.lab.client.mustRun(["python3", "-c", script]);
    await none(well);
  });
});

describe.skipIf(!countsAdded).each(FAMILIES)("%s", (family) => {
  const ways: readonly (readonly [string, ServiceSpec, Way])[] = [
    ["a client at the node port", web, { to: nodePort(web) }],
    ["a client at the load-balancer IP", remote, { to: loadBalancer(remote) }],
    ["a pod at the ClusterIP", remote, { from: "a", to: clusterIP(remote) }],
    ["the node at the ClusterIP", web, { from: "node", to: clusterIP(web) }],
    ["a client, to a program of the node", host, { to: nodePort(host) }],
  ];
  test.each(ways)(
    "%s: connections that the endpoint refuses are counted, and are a problem",
    async (_, service, way) => {
      const before = (await portOf(service, family)).refusals?.endpoint ?? 0;
      expect(await connect(family, way, 4)).toEqual(new Map([["refused", 4]]));
      await eventually(async () => {
        const { refusals, endpoints } = await portOf(service, family);
        expect(refusals).toEqual({ endpoint: before + 4 });
        expect(endpoints?.map(({ refused }) => refused)).toEqual([before + 4]);
      });
      const words = `${family === "ip" ? "IPv4" : "IPv6"}\\): .*:8081 refused \\d+ connections?, the last \\S+ ago`;
      await eventually(async () =>
        expect((await problemsOf(service)).join("\n")).toMatch(
          new RegExp(`${words}; no endpoint has an open connection`),
        ),
      );
    },
  );

  const udpWays: readonly (readonly [string, ServiceSpec, Way])[] = [
    ["a client at the node port", dns, { to: nodePort(dns) }],
    ["a pod at the ClusterIP", farDNS, { from: "b", to: clusterIP(farDNS) }],
    ["the node at the ClusterIP", dns, { from: "node", to: clusterIP(dns) }],
    ["a client, to a program of the node", hostDNS, { to: nodePort(hostDNS) }],
    ["the node, to a program of its own", hostDNS, { from: "node", to: clusterIP(hostDNS) }],
  ];
  test.each(udpWays)(
    "UDP, %s: datagrams that the endpoint refuses are counted, and are a problem",
    async (_, service, way) => {
      const before = (await portOf(service, family)).refusals?.endpoint ?? 0;
      expect([...(await connect(family, way, 4, undefined, "udp")).keys()]).toEqual(["unreachable"]);
      await eventually(async () => {
        const { refusals, refusalAgesMs, endpoints } = await portOf(service, family);
        expect(refusals).toEqual({ endpoint: before + 4 });
        expect(refusalAgesMs?.endpoint).toBeLessThan(EVENTUALLY_MS);
        expect(endpoints?.map(({ refused }) => refused)).toEqual([before + 4]);
      });
      const what = /:8081 refused at least \d+ datagrams, the last \S+ ago; no endpoint has answered any/;
      await eventually(async () => expect((await problemsOf(service)).join("\n")).toMatch(what));
    },
  );

  test("UDP: errors of a firewall before the endpoint are not the endpoint's", async () => {
    const wall = "table inet wall { chain c { type filter hook forward priority 10; udp dport 8080 reject; }; }";
    await cluster.node.mustRun(["nft", "-f", "-"], { input: wall });
    await connect(family, { to: nodePort(quietDNS) }, 3, undefined, "udp");
    await cluster.node.mustRun(["nft", "delete", "table", "inet", "wall"]);
    await new Promise((resolve) => setTimeout(resolve, 1100));
    expect((await portOf(quietDNS, family)).refusals).toBeUndefined();
  });

  test("UDP: datagrams without an answer are counted, and are no problem, because a program may not answer", async () => {
    await connect(family, { from: "a", to: clusterIP(quietDNS) }, 3, 2000, "udp");
    await eventually(async () => {
      const { stdout } = await cluster.command(["services", "default/quiet-dns", "-o", "json", "--socket", socket]);
      const port = (JSON.parse(stdout) as ServiceList).items.find((item) => item.family === family)!;
      expect(port.endpoints?.[0]?.unanswered).toBeGreaterThanOrEqual(3);
    });
    expect(await problemsOf(quietDNS)).toEqual([]);
  });

  test("a refused connection of the node to itself is counted once, for the endpoint", async () => {
    await cluster.node.mustRun(["nft", "flush", "set", family, "kube-proxy", "refusals"]);
    expect(await connect(family, { from: "node", to: clusterIP(host) }, 2)).toEqual(new Map([["refused", 2]]));
    const { stdout } = await cluster.node.run(["nft", "-j", "list", "set", family, "kube-proxy", "refusals"]);
    const keys = [...stdout.matchAll(/"concat": (\[[^\]]*\])/g)].map(([, key]) => JSON.parse(key ?? "[]") as unknown[]);
    expect(keys.map(([address, protocol, port]) => [address, protocol, port])).toEqual([
      [PLAN.node[family], "tcp", WRONG_PORT],
    ]);
  });

  test("an endpoint that never answers is a problem", async () => {
    const probe = connect(family, { to: clusterIP(silent), from: "a" }, 3, 8000);
    await expect
      .poll(async () => (await problemsOf(silent)).join("\n"), { timeout: EVENTUALLY_MS, interval: 500 })
      .toMatch(/:8080 did not answer 3 connections; no endpoint has an open connection/);
    await probe;
  });

  test.each([
    ["no endpoint", empty, clusterIP(empty), { "no-endpoint": 3 }],
    ["no endpoint on this node, with policy Local", far, loadBalancer(far), { "no-local-endpoint": 3 }],
    ["no endpoint on this node, at the node port", far, nodePort(far), { "no-local-endpoint": 6 }],
    ["a client outside the source ranges", ranged, loadBalancer(ranged), { "source-ranges": 3 }],
  ] as const)("%s: refused connections are counted by reason", async (_, service, to, expected) => {
    await connect(family, { from: "client", to }, 3, 300);
    await eventually(async () => expect((await portOf(service, family)).refusals).toEqual(expected));
    expect(await problemsOf(service)).toEqual([]);
  });

  test("connections over a limit are counted", async () => {
    await connect(family, { to: nodePort(limited) }, 3, 2000);
    await eventually(async () => expect((await portOf(limited, family)).refusals).toEqual({ limits: 2 }));
  });

  test("a service that serves has no counts, and is no problem", async () => {
    const answered = await connect(family, { to: nodePort(well) }, 20);
    expect([...answered.values()].reduce((sum, count) => sum + count, 0)).toBe(20);
    expect((await portOf(well, family)).refusals).toBeUndefined();
    expect(await problemsOf(well)).toEqual([]);
  });
});

test.each(FAMILIES)("a later packet of a forwarded connection evaluates three expressions: %s", async (family) => {
  const listing = ["nft", "--debug=netlink", "list", "chain", family, "kube-proxy", "filter-forward"];
  const { stdout } = await cluster.node.run(listing);
  // The first rule jumps. A packet with an answer leaves it at the comparison. Services of SCTP would have a rule of their own.
  expect(stdout.split("\n").flatMap((line) => /\[ (\S+ \S+)/.exec(line)?.[1] ?? [])).toEqual([
    "ct load",
    "bitwise reg",
    "cmp neq",
    "immediate reg",
  ]);
});

if (!countsAdded) {
  test("a kernel that does not count shows no counts, and no problem", async () => {
    expect(await connect("ip", { to: nodePort(web) }, 4)).toEqual(new Map([["refused", 4]]));
    expect((await portOf(web, "ip")).refusals).toBeUndefined();
    expect(await problemsOf(web)).toEqual([]);
  });
}

test("packets are refused even if no more addresses can be counted", async () => {
  for (const family of FAMILIES) {
    const { stdout } = await cluster.node.run(["nft", "-j", "list", "set", family, "kube-proxy", "refusals"]);
    expect(stdout).toContain('"size": 8192');
    const address = (i: number): string =>
      family === "ip" ? `10.1.${i >> 8}.${i & 255}` : `fd00:1::${i.toString(16)}`;
    const elements = Array.from(
      { length: 8192 },
      (_, i) => `${address(i)} . tcp . 80 . 0x3 counter packets 1 bytes 1 timeout 1h`,
    );
    const fill = (): Promise<unknown> =>
      cluster.lab.node.mustRun(["nft", "-f", "-"], {
        input: `flush set ${family} kube-proxy refusals\nadd element ${family} kube-proxy refusals { ${elements.join(", ")} }\n`,
      });
    // The first connection is within the limit.
    await connect(family, { to: nodePort(limited) }, 1, 2000);
    await fill();
    for (const [to, expected] of [
      [loadBalancer(ranged), "timeout"],
      [nodePort(far), "timeout"],
      [clusterIP(empty), "unreachable"],
      [nodePort(limited), "refused"],
    ] as const) {
      const [result] = (await connect(family, { to }, 2, 300)).keys();
      expect([to.name, result]).toEqual([to.name, expected]);
    }
    const full = `too many ${family === "ip" ? "IPv4" : "IPv6"} addresses were refused connections to count all`;
    await eventually(async () => {
      await fill();
      expect((await status()).problems.map(({ what }) => what).join("\n")).toContain(full);
      expect((await portOf(well, family)).refusalsIncomplete).toBe(true);
    });
    await cluster.lab.node.mustRun(["nft", "flush", "set", family, "kube-proxy", "refusals"]);
    await eventually(async () => expect((await portOf(well, family)).refusalsIncomplete).toBeUndefined());
  }
});

test.skipIf(!countsAdded)("if no more addresses can be counted, old counts are deleted", async () => {
  const elements = Array.from(
    { length: 8192 },
    (_, i) => `10.1.${i >> 8}.${i & 255} . tcp . 80 . 0x3 counter packets 1 bytes 1 timeout 1h expires 58m`,
  );
  await cluster.lab.node.mustRun(["nft", "-f", "-"], {
    input: `flush set ip kube-proxy refusals\nadd element ip kube-proxy refusals { ${elements.join(", ")} }\n`,
  });
  await eventually(async () => {
    await connect("ip", { to: clusterIP(empty) }, 1, 300);
    expect((await portOf(empty, "ip")).refusals).toMatchObject({ "no-endpoint": expect.any(Number) as number });
  });
});

test.skipIf(!countsAdded)("a service that gets an address of another one has none of its counts", async () => {
  await connect("ip", { to: loadBalancer(ranged) }, 3, 300);
  await eventually(async () => expect((await portOf(ranged, "ip")).refusals).toBeDefined());
  const heir: ServiceSpec = { name: "heir", n: ranged.n, endpoints: [], ...tcp };
  const isRanged = ({ kind, metadata }: Manifest): boolean =>
    kind === "Service" && (metadata as { name: string }).name === "ranged";
  await cluster.write([...objects(WRONG_PORT).filter((object) => !isRanged(object)), serviceObject(heir)]);
  await eventually(async () => expect((await portOf(heir, "ip")).state).toBe("rejected"));
  await eventually(async () => {
    const { stdout } = await cluster.node.run(["nft", "list", "set", "ip", "kube-proxy", "refusals"]);
    expect(stdout).not.toContain(loadBalancer(heir).address.ip);
  });
  expect((await portOf(heir, "ip")).refusals).toBeUndefined();
  await cluster.write(objects(WRONG_PORT));
});

test.skipIf(!countsAdded)("the problem ends when the service has the right targetPort", async () => {
  // Only ten services are named.
  for (const family of FAMILIES) await cluster.node.mustRun(["nft", "flush", "set", family, "kube-proxy", "refusals"]);
  await connect("ip", { to: nodePort(web) }, 3);
  await eventually(async () => expect(await problemsOf(web)).not.toEqual([]));
  await cluster.write(objects(8080));
  await eventually(async () => expect(await problemsOf(web)).toEqual([]));
});
