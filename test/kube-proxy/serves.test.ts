/** kube-proxy itself serves in the lab, in each of its modes: all other tests here depend on that. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { clusterIP, externals, nodePort, type ServiceSpec } from "../packets/support/objects.ts";
import { checkRow, type Row } from "../packets/support/rows.ts";
import { MODES } from "./support/kube-proxy.ts";
import { Node } from "./support/node.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const empty: ServiceSpec = { name: "empty", n: 2, endpoints: [] };
const ROWS: readonly Row[] = [
  { rule: "", from: "b", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: false } },
  { rule: "", from: "client", to: [clusterIP(web), ...externals(web)], expect: { pods: ["a", "r1"], masq: true } },
  { rule: "", from: "node", to: nodePort(web), expect: { pods: ["a", "r1"], masq: true } },
  { rule: "", from: ["b", "client"], to: clusterIP(empty), expect: "reject" },
];

let node: Node;
beforeAll(async () => {
  node = await Node.create([web, empty]);
});
afterAll(async () => node.destroy());
afterEach(async () => node.clear());

describe.each(MODES)("mode %s", (mode) => {
  test("its services are served", async () => {
    await node.startKubeProxy(mode);
    for (const row of ROWS) expect(await checkRow(node.cluster, row)).toEqual([]);
  });
});
