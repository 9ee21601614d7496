/** Local traffic: the detectors, no detector, and masqueradeAll; and the masquerade mark. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  configuration,
  everyWay,
  externals,
  type Manifest,
  nodeObject,
  POD_PORT,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
  target,
} from "./support/objects.ts";
import { checkRow, type Row, rowTests } from "./support/rows.ts";
import { longDescribe } from "../support/long.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a", "r1"], external: "Local" };
const here: ServiceSpec = { name: "here", n: 3, endpoints: ["a", "c"] };
const zoned: ServiceSpec = {
  name: "zoned",
  n: 4,
  endpoints: [
    { pod: "a", forZones: ["zone-1"] },
    { pod: "r1", forZones: ["zone-2"] },
  ],
};

let cluster: Cluster;
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(() => cluster.destroy());

async function apply(settings: Manifest, node = nodeObject()): Promise<void> {
  const services = [web, edge, here, zoned].flatMap((service) => serviceObjects(cluster.lab, service));
  await cluster.apply([node, serviceCIDRObject(), ...services], configuration(settings), true);
}

const toWeb = (rule: string, from: Row["from"], masq: boolean): Row => ({
  rule,
  from,
  to: clusterIP(web),
  expect: { pods: ["a", "r1"], masq },
});
const toEdge = (rule: string, from: Row["from"], pods: readonly string[], masq: boolean): Row => ({
  rule,
  from,
  to: externals(edge),
  expect: { pods, masq },
});
/** Holds with every detector. */
const ALWAYS: readonly Row[] = [
  {
    rule: "external addresses with policy Cluster are always rewritten",
    from: ["b", "c", "node", "client"],
    to: externals(web),
    expect: { pods: ["a", "r1"], masq: true },
  },
  toEdge("policy Local keeps off-cluster sources", ["client", "remoteNode"], ["a"], false),
  toEdge("policy Local rewrites the node", "node", ["a", "r1"], true),
];

describe("no detector", () => {
  beforeAll(() => apply({ clusterCIDR: "" }, nodeObject({ zone: null })));
  testRows([
    toWeb("the ClusterIP keeps every source", ["b", "c", "node", "client"], false),
    toEdge("pods count as off-cluster for policy Local", ["b", "c"], ["a"], false),
    { rule: "hairpin", from: "a", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: ["a"] } },
    { rule: "hairpin, policy Local", from: "a", to: externals(edge), expect: { pods: ["a"], masq: true } },
    {
      rule: "a node without a zone: zone hints do not narrow",
      from: "b",
      to: clusterIP(zoned),
      expect: { pods: ["a", "r1"], masq: false },
    },
    ...ALWAYS,
  ]);
});

longDescribe("no detector, masqueradeAll", () => {
  beforeAll(() => apply({ clusterCIDR: "", nftables: { masqueradeAll: true } }));
  testRows([
    toWeb("the ClusterIP rewrites every source", ["b", "c", "node", "client"], true),
    toEdge("pods still count as off-cluster for policy Local", ["b", "c"], ["a"], false),
    ...ALWAYS,
  ]);
});

describe("cluster CIDR, masqueradeAll", () => {
  beforeAll(() => apply({ nftables: { masqueradeAll: true } }));
  testRows([
    toWeb("the ClusterIP rewrites pods too", ["b", "c", "node", "client"], true),
    toEdge("policy Local still keeps pods", ["b", "c"], ["a", "r1"], false),
    ...ALWAYS,
  ]);
});

describe("cluster CIDR of one family: the other has no detector", () => {
  beforeAll(() => apply({ clusterCIDR: "10.244.0.0/16" }));
  const ip = { families: ["ip"] } as const;
  const ip6 = { families: ["ip6"] } as const;
  testRows([
    { ...toWeb("with detector", "client", true), ...ip },
    { ...toEdge("with detector", "b", ["a", "r1"], false), ...ip },
    { ...toWeb("without", "client", false), ...ip6 },
    { ...toEdge("without", "b", ["a"], false), ...ip6 },
  ]);
});

describe("the node's own pod CIDR", () => {
  beforeAll(() => apply({ detectLocalMode: "NodeCIDR", clusterCIDR: "" }));
  testRows([
    toWeb("pods of this node are local", ["b", "c"], false),
    toWeb("others are not local", ["node", "client"], true),
    {
      rule: "pods of other nodes are not local",
      from: "r1",
      to: clusterIP(here),
      expect: { pods: ["a", "c"], masq: true },
    },
    toEdge("policy Local, pods of this node", ["b", "c"], ["a", "r1"], false),
    toEdge("policy Local, pods of other nodes", "r2", ["a"], false),
    ...ALWAYS,
  ]);
});

describe("bridge interface", () => {
  beforeAll(() =>
    apply({ detectLocalMode: "BridgeInterface", detectLocal: { bridgeInterface: "cbr0" }, clusterCIDR: "" }),
  );
  testRows([
    toWeb("packets over the bridge are local", "c", false),
    toWeb("other packets are not local, and the node's own never", ["b", "node", "client"], true),
    toEdge("policy Local, over the bridge", "c", ["a", "r1"], false),
    toEdge("policy Local, over another interface", "b", ["a"], false),
    { rule: "hairpin", from: "c", to: clusterIP(here), expect: { pods: ["a", "c"], masq: ["c"] } },
    ...ALWAYS,
  ]);
});

describe("interface name prefix", () => {
  beforeAll(() =>
    apply({ detectLocalMode: "InterfaceNamePrefix", detectLocal: { interfaceNamePrefix: "pod" }, clusterCIDR: "" }),
  );
  testRows([
    toWeb("packets over such an interface are local", "b", false),
    toWeb("other packets are not local, and the node's own never", ["c", "node", "client"], true),
    toEdge("policy Local, over such an interface", "b", ["a", "r1"], false),
    toEdge("policy Local, over another interface", "c", ["a"], false),
    ...ALWAYS,
  ]);
});

/** Counts packets by their mark in prerouting after DNAT's priority, and after postrouting. */
const MARKS = `table inet marks {
  chain before {
    type filter hook prerouting priority -200
    meta mark set meta mark | 0x1
  }
  chain between {
    type filter hook forward priority 10
    meta mark & 0x100001 == 0x100001 counter comment "marked"
  }
  chain after {
    type filter hook postrouting priority 300
    meta mark & 0x100000 != 0 counter comment "left"
    meta mark & 0x1 != 0 counter comment "other"
  }
}
`;

describe("another masquerade bit", () => {
  beforeAll(() => apply({ nftables: { masqueradeBit: 20 } }));
  testRows([toWeb("pods", "b", false), toWeb("others", ["node", "client"], true), ...ALWAYS]);

  test("the mark has only that bit, is cleared after postrouting, and other bits stay", async () => {
    const { node } = cluster.lab;
    await node.mustRun(["nft", "-f", "-"], { input: MARKS });
    expect(await checkRow(cluster, toWeb("", "client", true))).toEqual([]);
    const text = await node.mustRun(["nft", "list", "table", "inet", "marks"]);
    const packets = (name: string): number => {
      const found = new RegExp(`counter packets (\\d+) bytes \\d+ comment "${name}"`).exec(text);
      if (!found) throw new Error(`no counter ${name} in\n${text}`);
      return Number(found[1]);
    };
    await node.mustRun(["nft", "delete", "table", "inet", "marks"]);
    expect(packets("marked")).toBeGreaterThan(0);
    expect(packets("left")).toBe(0);
    expect(packets("other")).toBeGreaterThan(0);
  });

  test("connections that no rule of ours translated keep their source, whatever mark another program gives them", async () => {
    const { node, pod } = { node: cluster.lab.node, pod: cluster.lab.pod("r1") };
    // WireGuard gives such a mark to the packets of its tunnel, by an option of its socket.
    const marking = (hook: string): string =>
      `chain ${hook} { type filter hook ${hook} priority 0; meta mark set meta mark | 0x100000; }\n`;
    await node.mustRun(["nft", "-f", "-"], {
      input: `table inet tunnel {\n${marking("output")}${marking("forward")}}\n`,
    });
    const to = target("pod r1", pod.address, POD_PORT);
    const wrong = await checkRow(cluster, { rule: "", from: ["node", "b"], to, expect: { pods: ["r1"], masq: false } });
    await node.mustRun(["nft", "delete", "table", "inet", "tunnel"]);
    expect(wrong).toEqual([]);
  });

  test("every address of a service still works", async () => {
    const row: Row = { rule: "", from: "client", to: everyWay(web), expect: { pods: ["a", "r1"], masq: true } };
    expect(await checkRow(cluster, row)).toEqual([]);
  });
});
