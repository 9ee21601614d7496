/** Node ports on this node's loopback addresses: asked for by `nodePortAddresses`, by every protocol, and by no one else's packets. */
import { afterAll, beforeAll, describe } from "vitest";

import { type AddressPair, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { configuration, type Manifest, nodePort, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { type Row, testRows } from "./support/rows.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "c", "r1"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a", "r1"], external: "Local" };
const farEdge: ServiceSpec = { name: "far-edge", n: 3, endpoints: ["r1"], external: "Local" };
const sticky: ServiceSpec = { name: "sticky", n: 4, endpoints: ["b"], affinitySeconds: 60 };
const empty: ServiceSpec = { name: "empty", n: 5, endpoints: [] };
const SERVICES = [web, edge, farEdge, sticky, empty];

const LOOPBACK: AddressPair = { ip: "127.0.0.1", ip6: "::1" };
const SECOND: AddressPair = { ip: "127.0.0.2", ip6: "::1" };

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
  cluster.addSource("loopback", { namespace: cluster.node, address: LOOPBACK });
});
afterAll(async () => {
  await cluster.destroy();
});

async function apply(settings: Manifest): Promise<void> {
  const services = SERVICES.flatMap((service) => serviceObjects(cluster.lab, service));
  await cluster.apply(services, configuration(settings));
}

/** From the node: every kind of service, as at the node's own address. */
function servedAt(address: AddressPair, only: Pick<Row, "families"> = {}): Row[] {
  const from = ["nodeItself", "loopback", "node"];
  const at = (service: ServiceSpec) => nodePort(service, address);
  return [
    { rule: "served", from, to: at(web), expect: { pods: ["a", "c", "r1"], masq: true }, ...only },
    { rule: "policy Local", from, to: at(edge), expect: { pods: ["a", "r1"], masq: true }, ...only },
    { rule: "policy Local, no endpoint here", from, to: at(farEdge), expect: { pods: ["r1"], masq: true }, ...only },
    { rule: "affinity", from, to: at(sticky), expect: { pods: ["b"], masq: true }, ...only },
    { rule: "no endpoints", from, to: at(empty), expect: "reject", ...only },
  ];
}

describe("primary and localhost", () => {
  beforeAll(() => apply({ nodePortAddresses: ["primary", "localhost"] }));
  testRows(
    () => cluster,
    [
      ...servedAt(LOOPBACK),
      ...servedAt(SECOND),
      { rule: "the node's own", from: "client", to: nodePort(web), expect: { pods: ["a", "c", "r1"], masq: true } },
      { rule: "no other", from: "nodeItself", to: nodePort(web, PLAN.nodeSecond), expect: "untouched" },
    ],
  );
});
