/**
 * Node ports on this node's loopback addresses: only if requested, over every protocol, and for no other node's
 * packets.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { EVENTUALLY_MS } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES, type AddressPair, type Family, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { Conversation, startEchoServer } from "./support/conversation.ts";
import {
  configuration,
  type Manifest,
  NODE,
  nodePort,
  nodePortOf,
  POD_PORT,
  serviceObject,
  serviceObjects,
  type ServiceSpec,
  sliceObject,
  target,
} from "./support/objects.ts";
import { checkRow, type Row, rowTests } from "./support/rows.ts";
import { someOf } from "../lab/length.ts";
import { longDescribe, longTest } from "../support/long.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "c", "r1"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a", "r1"], external: "Local" };
const farEdge: ServiceSpec = { name: "far-edge", n: 3, endpoints: ["r1"], external: "Local" };
const sticky: ServiceSpec = { name: "sticky", n: 4, endpoints: ["b"], affinitySeconds: patience(60) };
const empty: ServiceSpec = { name: "empty", n: 5, endpoints: [] };
const echo: ServiceSpec = { name: "echo", n: 6, endpoints: ["a"], protocols: ["tcp"] };
const closed: ServiceSpec = { name: "closed", n: 7, endpoints: ["a"], protocols: ["udp"] };
const onHost: ServiceSpec = { name: "on-host", n: 8, endpoints: [] };
const SERVICES = [web, edge, farEdge, sticky, empty];
const ECHO_PORT = 9999;

const LOOPBACK: AddressPair = { ip: "127.0.0.1", ip6: "::1" };
const SECOND: AddressPair = { ip: "127.0.0.2", ip6: "::1" };
const LOCALHOST = { nodePortAddresses: ["primary", "localhost"] };

let cluster: Cluster;
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create();
  cluster.addSource("loopback", { namespace: cluster.node, address: LOOPBACK });
});
afterAll(() => cluster.destroy());

async function apply(settings: Manifest): Promise<void> {
  const objects = SERVICES.flatMap((service) => serviceObjects(cluster.lab, service));
  await cluster.apply(objects, configuration(settings));
}

/** From the node: every kind of service, as at the node's own address. */
function servedAt(
  address: AddressPair,
  only: Pick<Row, "families" | "from"> = { from: ["nodeItself", "loopback"] },
): Row[] {
  const at = (service: ServiceSpec) => nodePort(service, address);
  return [
    { rule: "served", to: at(web), expect: { pods: ["a", "c", "r1"], masq: true }, ...only },
    { rule: "policy Local", to: at(edge), expect: { pods: ["a", "r1"], masq: true }, ...only },
    { rule: "policy Local, no endpoint here", to: at(farEdge), expect: { pods: ["r1"], masq: true }, ...only },
    { rule: "affinity", to: at(sticky), expect: { pods: ["b"], masq: true }, ...only },
    { rule: "no endpoints", to: at(empty), expect: "reject", ...only },
  ];
}

function untouchedAt(address: AddressPair, only: Pick<Row, "families"> = {}): Row {
  const to = SERVICES.map((service) => nodePort(service, address));
  return { rule: "not served", from: "nodeItself", to, expect: "untouched", ...only };
}

describe("primary and localhost", () => {
  beforeAll(() => apply(LOCALHOST));
  testRows([
    ...servedAt(LOOPBACK, { from: ["nodeItself", "loopback", "node", "nodeOutside"] }),
    ...servedAt(SECOND),
    { rule: "the node's own", from: "client", to: nodePort(web), expect: { pods: ["a", "c", "r1"], masq: true } },
    untouchedAt(PLAN.nodeSecond),
    { rule: "no node port", from: "loopback", to: target("127.0.0.1:4321", LOOPBACK, 4321), expect: "untouched" },
  ]);
});

longDescribe("localhost alone", () => {
  beforeAll(() => apply({ nodePortAddresses: ["localhost"] }));
  testRows([...servedAt(LOOPBACK), untouchedAt(PLAN.node)]);
});

longDescribe("all and localhost", () => {
  beforeAll(() => apply({ nodePortAddresses: ["all", "localhost"] }));
  testRows([...servedAt(LOOPBACK), ...servedAt(PLAN.nodeOutside, { from: "node" })]);
});

describe("one loopback address", () => {
  beforeAll(() => apply({ nodePortAddresses: ["primary", "127.0.0.2/32"] }));
  testRows([...servedAt(SECOND, { from: "nodeItself", families: ["ip"] }), untouchedAt(LOOPBACK)]);
});

describe("a configuration of the iptables mode that requests them", () => {
  beforeAll(() => apply({ mode: "", iptables: { localhostNodePorts: true } }));
  testRows([
    ...servedAt(LOOPBACK, { from: "nodeItself", families: ["ip"] }),
    untouchedAt(LOOPBACK, { families: ["ip6"] }),
    ...servedAt(PLAN.node, { from: "node" }),
  ]);
});

const PODS_KNOWN_BY: readonly [string, Manifest][] = [
  ["the node's addresses are among the pods'", { clusterCIDR: "192.0.2.0/24,2001:db8:1::/64" }],
  [
    "pods are identified by their interfaces",
    { detectLocalMode: "InterfaceNamePrefix", detectLocal: { interfaceNamePrefix: "pod" } },
  ],
  ["pods are not identified", { clusterCIDR: "" }],
];
describe.each(someOf(PODS_KNOWN_BY, 3))("connections are masqueraded in every case: %s", (_, settings) => {
  beforeAll(() => apply({ ...LOCALHOST, ...settings }));
  testRows(servedAt(LOOPBACK));
});

describe("not requested", () => {
  const rulesets = () => Promise.all(FAMILIES.map((family) => listed(family)));

  async function listed(family: Family): Promise<string> {
    const { stdout } = await cluster.node.run(["nft", "list", "table", family, "kube-proxy"]);
    // The counts of refused packets are not rules.
    const rules = stdout.replace(/(set refusals \{[^}]*?)elements = \{[^}]*\}\s*/, "$1");
    return rules.replaceAll(/ (packets|bytes) \d+/g, "").replaceAll(/ expires \S+/g, "");
  }

  test("leaves none of its rules, even if it was requested before", async () => {
    await apply({});
    const before = await rulesets();
    await apply(LOCALHOST);
    const between = await rulesets();
    await apply({});
    expect(await rulesets()).toEqual(before);
    for (const [index, text] of between.entries()) {
      expect(text).toContain("localhost-nodeports");
      expect(before[index]).not.toMatch(/localhost|127\.0\.0|addr set/);
    }
  });

  longTest("a disabled feature gate leaves none of its rules", async () => {
    await apply({ ...LOCALHOST, featureGates: { KubeProxyNFTablesLocalhostNodePorts: false } });
    expect(await checkRow(cluster, untouchedAt(LOOPBACK))).toEqual([]);
    for (const text of await rulesets()) expect(text).not.toMatch(/localhost|addr set/);
  });
});

const open: Conversation[] = [];
afterEach(() => {
  for (const conversation of open.splice(0)) conversation.close();
});

async function talk(address: string, port: number): Promise<Conversation> {
  const conversation = await Conversation.open(cluster.node, address, port);
  open.push(conversation);
  return conversation;
}

describe("connections", () => {
  const objects = (): Manifest[] => {
    const slices = FAMILIES.flatMap((family) => [
      sliceObject(cluster.lab, {
        name: `echo-${family}`,
        service: "echo",
        family,
        endpoints: ["a"],
        protocols: ["tcp"],
        port: ECHO_PORT,
      }),
      sliceObject(cluster.lab, {
        name: `closed-${family}`,
        service: "closed",
        family,
        endpoints: ["a"],
        protocols: ["udp"],
        port: 9,
      }),
      {
        ...sliceObject(cluster.lab, {
          name: `on-host-${family}`,
          service: "on-host",
          family,
          endpoints: [],
          port: POD_PORT,
        }),
        endpoints: [{ addresses: [PLAN.node[family]], nodeName: NODE, conditions: { ready: true } }],
      },
    ]);
    return [serviceObject(echo), serviceObject(closed), serviceObject(onHost), ...slices];
  };

  let offered = false;
  /** Does nothing if the last test has left them so. */
  async function offer(): Promise<void> {
    if (!offered) await cluster.apply(objects(), configuration(LOCALHOST));
    offered = true;
  }
  async function withdraw(config: Manifest): Promise<void> {
    offered = false;
    await apply(config);
  }

  beforeAll(async () => {
    const { namespace, address } = cluster.lab.pod("a");
    for (const family of FAMILIES) {
      await startEchoServer(namespace, address[family], ECHO_PORT);
      for (const transport of ["tcp", "udp", "sctp"] as const) {
        await cluster.node.agent().serve(transport, PLAN.node[family], POD_PORT, "node");
      }
    }
  });

  test.each(someOf(FAMILIES, 2))("%s: megabytes pass each way, and one direction can end alone", async (family) => {
    await offer();
    const script = `
      const socket = require("node:net").connect({ port: ${nodePortOf(echo.n)}, host: "${LOOPBACK[family]}", allowHalfOpen: true });
      let got = 0;
      socket.on("data", (data) => (got += data.length)).on("end", () => console.log(got, socket.localAddress));
      socket.end(Buffer.alloc(8 << 20, "x"));
    `;
    const { stdout, stderr } = await cluster.node.run([process.execPath, "-e", script]);
    expect([stdout.trim(), stderr]).toEqual([`${8 << 20} ${LOOPBACK[family]}`, ""]);
  });

  test.each(someOf(FAMILIES, 2))("%s: connections continue when their service is deleted", async (family) => {
    await offer();
    const conversation = await talk(LOOPBACK[family], nodePortOf(echo.n));
    expect(await conversation.say("one")).toBe("one");
    await withdraw(LOCALHOST);
    expect(await conversation.say("two")).toBe("two");
  });

  test.each(someOf(FAMILIES, 2))(
    "%s: a local program's own connections with such a port are left alone, before a service has it and after",
    async (family) => {
      await withdraw({});
      const port = nodePortOf(echo.n);
      await startEchoServer(cluster.node, LOOPBACK[family], port);
      const conversation = await talk(LOOPBACK[family], port);
      expect(await conversation.say("one")).toBe("one");
      await offer();
      expect(await conversation.say("two")).toBe("two");
    },
  );

  test.each(someOf(FAMILIES, 2))(
    "%s: connections that another program translates from one loopback port to another are left alone",
    async (family) => {
      await offer();
      const [from, to] = [6001, 6002];
      await startEchoServer(cluster.node, LOOPBACK[family], to);
      const rule = `${family} daddr ${LOOPBACK[family]} tcp dport ${from} redirect to :${to}`;
      const table = `table ${family} other { chain o { type nat hook output priority -100; ${rule}; }; }`;
      await cluster.node.mustRun(["nft", "-f", "-"], { input: table });
      try {
        const conversation = await talk(LOOPBACK[family], from);
        for (const word of ["one", "two"]) expect(await conversation.say(word)).toBe(word);
      } finally {
        await cluster.node.mustRun(["nft", "delete", "table", family, "other"]);
      }
    },
  );

  test.each(someOf(FAMILIES, 2))("%s: an endpoint's error reaches the program", async (family) => {
    await offer();
    const probe = {
      protocol: "udp",
      destination: LOOPBACK[family],
      port: nodePortOf(closed.n),
      timeoutMs: 10_000,
    } as const;
    const code = family === "ip" ? { type: 3, code: 3 } : { type: 1, code: 4 };
    expect(await cluster.node.agent().probe(probe)).toMatchObject([{ result: "unreachable", ...code }]);
  });

  test("an endpoint may have the node's own address", async () => {
    await offer();
    const row: Row = {
      rule: "",
      from: ["nodeItself", "loopback"],
      to: nodePort(onHost, LOOPBACK),
      expect: { pods: ["node"], masq: true },
    };
    expect(await checkRow(cluster, row)).toEqual([]);
  });

  test("cleanup removes all of it", async () => {
    const settings = ["all", "lo", "eth0"].map((name) => `/proc/sys/net/ipv4/conf/${name}/route_localnet`);
    await withdraw(LOCALHOST);
    expect((await cluster.node.run(["cat", ...settings])).stdout).toBe("0\n0\n0\n");
    await cluster.command(["cleanup"]);
    expect(await checkRow(cluster, untouchedAt(LOOPBACK))).toEqual([]);
    expect((await cluster.node.run(["nft", "list", "ruleset"])).stdout).not.toContain("localhost");
  });
});

/** CVE-2020-8558, on a node where kube-proxy's iptables mode has left `route_localnet` on. */
describe("from the network, with route_localnet on", () => {
  const SPOOFED = "127.0.0.9";
  const LOCAL_PORT = 4321;

  beforeAll(async () => {
    await cluster.node.sysctl({ "net.ipv4.conf.all.route_localnet": 1 });
    await cluster.catchUntouched(LOCAL_PORT);
    const { client } = cluster.lab;
    // The client sends to 127.0.0.1 over the wire, and from a loopback address.
    await client.sysctl({ "net.ipv4.conf.all.route_localnet": 1 });
    await client.ip([
      "address delete 127.0.0.1/8 dev lo",
      `address add ${SPOOFED}/32 dev eth0`,
      `route add 127.0.0.1/32 via ${PLAN.nodeOutside.ip}`,
    ]);
    await cluster.node.ip([`route add ${SPOOFED}/32 via ${PLAN.client.ip}`]);
  });
  afterAll(async () => {
    await cluster.node.sysctl({ "net.ipv4.conf.all.route_localnet": 0 });
  });

  const knock = async (source: string, destination: string, port: number, timeoutMs = 300): Promise<string> => {
    const probe = { protocol: "tcp", source, destination, port, timeoutMs } as const;
    const [outcome] = await cluster.lab.client.agent().probe(probe);
    return outcome.result === "ok" ? outcome.name : outcome.result;
  };

  test("without the option, programs on the node's loopback are reachable, so the test works", async () => {
    await apply({});
    expect(await knock(PLAN.client.ip, "127.0.0.1", LOCAL_PORT, EVENTUALLY_MS)).toBe("node");
    expect(["a", "c", "r1"]).toContain(await knock(SPOOFED, PLAN.node.ip, nodePortOf(web.n), EVENTUALLY_MS));
  });

  test("with the option, neither programs nor node ports on loopback are reachable, and packets from loopback addresses are dropped", async () => {
    await apply(LOCALHOST);
    expect(await knock(PLAN.client.ip, "127.0.0.1", LOCAL_PORT)).toBe("timeout");
    expect(await knock(PLAN.client.ip, "127.0.0.1", nodePortOf(web.n))).toBe("timeout");
    expect(await knock(SPOOFED, PLAN.node.ip, nodePortOf(web.n))).toBe("timeout");
    expect(["a", "c", "r1"]).toContain(await knock(PLAN.client.ip, PLAN.node.ip, nodePortOf(web.n), EVENTUALLY_MS));
  });

  test("the node's own node ports on loopback still work", async () => {
    await apply(LOCALHOST);
    for (const row of servedAt(LOOPBACK)) expect(await checkRow(cluster, row)).toEqual([]);
  });
});
