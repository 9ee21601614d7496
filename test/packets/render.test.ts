/** `render` prints the same table: it loads with `nft -f`, and packets take the same ways. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  configuration,
  everyWay,
  externalIP,
  externals,
  loadBalancer,
  type Manifest,
  nodePort,
  serviceObjects,
  type ServiceSpec,
  target,
} from "./support/objects.ts";
import { type Row, rowTests } from "./support/rows.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1", "r2"] };
const edge: ServiceSpec = { name: "edge", n: 2, endpoints: ["a", "r1"], internal: "Local", external: "Local" };
const far: ServiceSpec = { name: "far", n: 3, endpoints: ["r1"], external: "Local" };
const empty: ServiceSpec = { name: "empty", n: 4, endpoints: [] };
const guarded: ServiceSpec = {
  name: "guarded",
  n: 5,
  endpoints: ["a"],
  ranges: ["198.51.100.0/25", "2001:db8:2::/65"],
};
const sticky: ServiceSpec = { name: "sticky", n: 6, endpoints: ["a"], affinitySeconds: 60 };
const services = [web, edge, far, empty, guarded, sticky];

let cluster: Cluster;
const testRows = rowTests(() => cluster);
beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(() => cluster.destroy());

/** Renders, loads the text without a former table, and returns it. */
async function load(settings: Manifest = {}): Promise<string> {
  const objects = services.flatMap((service) => serviceObjects(cluster.lab, service));
  const args = await cluster.write(objects, configuration(settings));
  const done = await cluster.command(["render", ...args]);
  if (done.code !== 0) throw new Error(`render: exit ${done.code}\n${done.stderr}`);
  const { node } = cluster.lab;
  await node.mustRun(["nft", "flush", "ruleset"]);
  await node.mustRun(["nft", "-f", "-"], { input: done.stdout });
  return done.stdout;
}

const ROWS: readonly Row[] = [
  { rule: "ClusterIP from a pod", from: "b", to: clusterIP(web), expect: { pods: ["a", "r1", "r2"], masq: false } },
  {
    rule: "every external address",
    from: ["node", "client"],
    to: everyWay(web),
    expect: { pods: ["a", "r1", "r2"], masq: true },
  },
  { rule: "hairpin", from: "a", to: clusterIP(web), expect: { pods: ["a", "r1", "r2"], masq: ["a"] } },
  { rule: "policy Local, outside", from: "client", to: externals(edge), expect: { pods: ["a"], masq: false } },
  { rule: "policy Local, pod", from: "b", to: externals(edge), expect: { pods: ["a", "r1"], masq: false } },
  { rule: "policy Local, node", from: "node", to: externals(edge), expect: { pods: ["a", "r1"], masq: true } },
  { rule: "policy Local, ClusterIP", from: "b", to: clusterIP(edge), expect: { pods: ["a"], masq: false } },
  { rule: "policy Local, only elsewhere", from: "client", to: externals(far), expect: "drop" },
  { rule: "no endpoints", from: ["b", "node", "client"], to: everyWay(empty), expect: "reject" },
  { rule: "undefined port", from: ["b", "client"], to: clusterIP(web, 81), expect: "reject" },
  {
    rule: "unallocated",
    from: ["b", "node", "client"],
    to: target("an unallocated ClusterIP", { ip: "10.96.200.1", ip6: "fd00:10:96::c801" }, 80),
    expect: "drop",
  },
  { rule: "source range, inside", from: "client", to: loadBalancer(guarded), expect: { pods: ["a"], masq: true } },
  { rule: "source range, outside", from: ["clientSecond", "b"], to: loadBalancer(guarded), expect: "drop" },
  {
    rule: "a source range protects only the LB IP",
    from: "clientSecond",
    to: [externalIP(guarded), nodePort(guarded)],
    expect: { pods: ["a"], masq: true },
  },
  { rule: "affinity", from: ["client", "node"], to: everyWay(sticky), expect: { pods: ["a"], masq: true } },
  { rule: "other node addresses", from: "client", to: nodePort(web, PLAN.nodeSecond), expect: "untouched" },
];

describe("rendered by default", () => {
  let text = "";
  beforeAll(async () => {
    text = await load();
  });
  testRows(ROWS);

  test("the text needs no kernel and is the same each time", async () => {
    const args = await cluster.write(services.flatMap((service) => serviceObjects(cluster.lab, service)));
    const again = await cluster.command(["render", ...args]);
    expect(again.stdout).toBe(text);
    expect(text).toContain("table ip kube-proxy");
    expect(text).toContain("table ip6 kube-proxy");
  });
});

describe("rendered without a detector, node ports on every address", () => {
  beforeAll(() => load({ clusterCIDR: "", nodePortAddresses: ["0.0.0.0/0", "::/0"] }));
  testRows([
    {
      rule: "ClusterIP",
      from: ["b", "node", "client"],
      to: clusterIP(web),
      expect: { pods: ["a", "r1", "r2"], masq: false },
    },
    { rule: "policy Local, pod", from: "b", to: externals(edge), expect: { pods: ["a"], masq: false } },
    {
      rule: "another node address",
      from: "client",
      to: nodePort(web, PLAN.nodeSecond),
      expect: { pods: ["a", "r1", "r2"], masq: true },
    },
  ]);
});

describe("run --once after rendered text was loaded", () => {
  beforeAll(async () => {
    await load();
    await cluster.apply(services.flatMap((service) => serviceObjects(cluster.lab, service)));
  });
  testRows(ROWS);
});

test.each([["render"], ["validate"], ["--help"]])("%s exits quietly if its reader ends first", async (command) => {
  const args = command === "--help" ? [] : (await cluster.write(serviceObjects(cluster.lab, web))).slice(0, 2);
  const script = `set -o pipefail; "$@" | true`;
  const done = await cluster.lab.node.run([
    ...["bash", "-c", script, "bash", process.execPath, cluster.main, command],
    ...args,
  ]);
  expect(done).toMatchObject({ code: 0, stderr: expect.not.stringContaining("EPIPE") });
});
