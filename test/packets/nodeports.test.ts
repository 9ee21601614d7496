/** The node's addresses on which node ports answer. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { type AddressPair, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  configuration,
  type Manifest,
  nodeObject,
  nodePort,
  nodePortOf,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
  target,
} from "./support/objects.ts";
import { checkRow, type Row, rowTests } from "./support/rows.ts";
import { longDescribe } from "../support/long.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a", "r1"], external: "Local" };
const empty: ServiceSpec = { name: "empty", n: 3, endpoints: [] };
/** A node port is served if it is set, whatever the service's type. */
const typed: ServiceSpec = { name: "typed", n: 4, endpoints: ["a"], spec: { type: "ClusterIP" }, status: {} };

const LOOPBACK: AddressPair = { ip: "127.0.0.1", ip6: "::1" };
const STRANGER: AddressPair = { ip: "203.0.113.250", ip6: "2001:db8:cb::fa:1" };
const ADDRESSES = ["node", "nodeSecond", "nodeOutside", "nodeOnLoopback", "podGateway"] as const;
type AddressName = (typeof ADDRESSES)[number];

let cluster: Cluster;
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(() => cluster.destroy());

async function apply(settings: Manifest, node = nodeObject()): Promise<void> {
  const services = [web, edge, empty, typed].flatMap((service) => serviceObjects(cluster.lab, service));
  await cluster.apply([node, serviceCIDRObject(), ...services], configuration(settings), true);
}

/**
 * Served at these addresses of the node, for a pod, the client and the node itself; not touched at its other addresses.
 */
function answersAt(served: readonly AddressName[], only: Pick<Row, "families"> = {}): Row[] {
  const others = ADDRESSES.filter((address) => !served.includes(address));
  const at = (service: ServiceSpec, names: readonly AddressName[]) =>
    names.map((name) => nodePort(service, PLAN[name]));
  const from = ["b", "client", "node"];
  return [
    { rule: "served", from, to: at(web, served), expect: { pods: ["a", "r1"], masq: true }, ...only },
    {
      rule: "served, policy Local",
      from: "client",
      to: at(edge, served),
      expect: { pods: ["a"], masq: false },
      ...only,
    },
    { rule: "served, no endpoints", from, to: at(empty, served), expect: "reject", ...only },
    { rule: "served, type ClusterIP", from, to: at(typed, served), expect: { pods: ["a"], masq: true }, ...only },
    ...(others.length === 0
      ? []
      : [
          {
            rule: "not served",
            from,
            to: [...at(web, others), ...at(edge, others), ...at(empty, others)],
            expect: "untouched",
            ...only,
          } satisfies Row,
        ]),
    {
      rule: "loopback is not served unless requested",
      from: "nodeItself",
      to: [web, edge, empty].map((service) => nodePort(service, LOOPBACK)),
      expect: "untouched",
      ...only,
    },
  ];
}

describe("by default: primary, the node's own IPs", () => {
  beforeAll(() => apply({}));
  testRows(answersAt(["node"]));
});

longDescribe("primary, written out", () => {
  beforeAll(() => apply({ nodePortAddresses: ["primary"] }));
  testRows(answersAt(["node"]));
});

describe("primary together with CIDRs", () => {
  beforeAll(() => apply({ nodePortAddresses: ["primary", "198.51.100.0/24", "2001:db8:2::/64"] }));
  testRows(answersAt(["node", "nodeOutside"]));
});

describe("primary, from bindAddress without a Node object", () => {
  beforeAll(async () => {
    const services = [web, edge, empty, typed].flatMap((service) => serviceObjects(cluster.lab, service));
    const config = configuration({ bindAddress: PLAN.nodeSecond.ip });
    await cluster.apply([serviceCIDRObject(), ...services], config, true);
  });
  testRows(answersAt(["nodeSecond"], { families: ["ip"] }));
});

describe("primary finds no node IP of one family: that family uses all its addresses", () => {
  beforeAll(() => apply({ nodePortAddresses: ["primary"] }, nodeObject({ addresses: [PLAN.node.ip] })));
  testRows([...answersAt(["node"], { families: ["ip"] }), ...answersAt(ADDRESSES, { families: ["ip6"] })]);
});

describe("CIDRs of both families", () => {
  beforeAll(() =>
    apply({ nodePortAddresses: ["198.51.100.0/24", "192.0.2.20/32", "2001:db8:2::/64", "2001:db8:1::20/128"] }),
  );
  testRows(answersAt(["nodeOutside", "nodeSecond"]));
});

describe("CIDRs that contain an address of the loopback interface", () => {
  beforeAll(() => apply({ nodePortAddresses: ["192.0.2.64/26", "2001:db8:77::/64"] }));
  testRows(answersAt(["nodeOnLoopback"]));
});

describe("CIDRs of one family: the other uses all its addresses", () => {
  beforeAll(() => apply({ nodePortAddresses: ["198.51.100.0/24"] }));
  testRows([...answersAt(["nodeOutside"], { families: ["ip"] }), ...answersAt(ADDRESSES, { families: ["ip6"] })]);
});

longDescribe("all: every local address", () => {
  beforeAll(() => apply({ nodePortAddresses: ["all"] }));
  testRows(answersAt(ADDRESSES));
});

describe("0.0.0.0/0 and ::/0: every local address", () => {
  beforeAll(() => apply({ nodePortAddresses: ["0.0.0.0/0", "::/0"] }));
  testRows([
    ...answersAt(ADDRESSES),
    {
      rule: "an address of another process on a node port's number",
      from: ["b", "client", "node"],
      to: [web, edge, empty].map(({ n }) => target(`203.0.113.250:${nodePortOf(n)}`, STRANGER, nodePortOf(n))),
      expect: "untouched",
    },
  ]);

  test("an address that the node receives later is served at once", async () => {
    await cluster.lab.node.ip(["address add 192.0.2.99/32 dev eth0", "address add 2001:db8:1::99/128 dev eth0 nodad"]);
    const late: AddressPair = { ip: "192.0.2.99", ip6: "2001:db8:1::99" };
    const row: Row = { rule: "", from: "client", to: nodePort(web, late), expect: { pods: ["a", "r1"], masq: true } };
    cluster.addNodeAddress(late);
    expect(await checkRow(cluster, row)).toEqual([]);
  });
});
