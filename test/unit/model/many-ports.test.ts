/** A Service with thousands of ports: the work is linear in their number, not quadratic. */
import { expect, it } from "vitest";

import { describeService, type Listing } from "../../../src/daemon/answers/listed-services.js";
import { nameOf, ObjectDecoder } from "../../../src/objects/decode/object-decoder.js";
import { ServiceModel } from "../../../src/model/service-model.js";
import type { Fields } from "../../../src/base/unknown.js";
import { ownMs } from "../../bench/loop-watch.ts";

const FEW = 1_000;
const TIMES = 16;

/** Called twice with different names, so that both claim the same addresses. */
function objects(
  ports: number,
  name: string,
  endpoint: string,
): readonly (readonly ["Service" | "EndpointSlice", Fields])[] {
  const list = Array.from({ length: ports }, (_, i) => ({
    name: `m${i}`,
    port: 20_000 + i,
    nodePort: 40_000 + i,
    protocol: "UDP",
  }));
  const metadata = { namespace: "default", name };
  return [
    [
      "Service",
      {
        metadata,
        spec: {
          type: "LoadBalancer",
          clusterIP: "10.96.43.1",
          ports: list,
          externalTrafficPolicy: "Local",
          healthCheckNodePort: 30_000,
        },
      },
    ],
    [
      "EndpointSlice",
      {
        metadata: { ...metadata, name: `${name}-1`, labels: { "kubernetes.io/service-name": name } },
        addressType: "IPv4",
        ports: list,
        endpoints: ["10.244.1.11", endpoint].map((address) => ({
          addresses: [address],
          nodeName: "this-node",
          conditions: { terminating: address === endpoint },
        })),
      },
    ],
  ];
}

/** Returns this thread's own CPU time for all work on them, ms. */
async function workOn(ports: number): Promise<number> {
  const input = [
    ...objects(ports, "media", "10.244.1.12"),
    ...objects(ports, "rival", "10.244.1.12"),
    ...objects(ports, "media", "10.244.2.21"),
  ];
  const began = ownMs();
  const decoder = new ObjectDecoder({ nodeName: "this-node" });
  const model = new ServiceModel({
    families: ["ip"],
    node: { nodeName: "this-node" },
    trackRemovals: true,
    onProblem: () => undefined,
  });
  for (const [kind, object] of input) model.upsert(decoder.decode(kind, nameOf(kind, object) ?? "", object));
  model.takeDirty();
  for (const service of ["default/media", "default/rival"]) {
    expect(model.views("ip", service)).toHaveLength(ports);
    expect([...model.targets("ip", service)]).toHaveLength(ports);
    expect([...model.eachViewWithCandidates("ip", service)]).toHaveLength(ports);
    expect(model.healthCheck("ip", service)?.port).toBe(30_000);
    for (let i = 0; i < ports; i++) model.target("ip", service, "nodePort", "UDP", 40_000 + i);
  }
  model.takeRemovals();
  const listing: Listing = {
    model,
    families: ["ip"],
    states: { active: () => true, quarantineReason: () => undefined },
  };
  let described = 0;
  for await (const piece of describeService(listing, "default/media")) described += piece.length;
  expect(described).toBe(ports);
  return ownMs() - began;
}

it("the ports of one service take about as much work as the same number of ports of many services", async () => {
  await workOn(FEW);
  let many = 0;
  for (let service = 0; service < TIMES; service++) many += await workOn(FEW);
  const one = await workOn(TIMES * FEW);
  // 1.3 to 1.6 are usual, and a quadratic cost would give 16. Both take about a second, so that other load changes both alike.
  expect(one / many).toBeLessThan(3);
});
