/** Changes of a service port that are written as new data of existing elements. */
import { expect, it } from "vitest";

import { EndpointList } from "../../../src/objects/endpoint-list.js";
import type { ServicePortView } from "../../../src/model/service-port-view.js";
import { differInEndpoints } from "../../../src/ruleset/service-expander.js";
import { type ServicePortState } from "../../../src/ruleset/service-port-state.js";

const list = (...addresses: readonly string[]): EndpointList =>
  EndpointList.of(
    "ip",
    addresses.map((address) => ({ address, port: 8080, local: false })),
  );

/** Lists every property, so that none is forgotten. */
const VIEW: { [Name in keyof Required<ServicePortView>]: ServicePortView[Name] } = {
  service: "default/web",
  portName: "http",
  protocol: "TCP",
  port: 80,
  clusterIP: "10.96.0.1",
  externalIPs: [],
  loadBalancerIPs: [],
  nodePort: 30_080,
  internalPolicyLocal: false,
  externalPolicyLocal: false,
  sourceRanges: undefined,
  guards: undefined,
  affinitySeconds: 0,
  balance: undefined,
  limits: undefined,
  clusterEndpoints: list("10.244.1.1", "10.244.1.2"),
  localEndpoints: list("10.244.1.1"),
  hasAnyEndpoint: true,
  resetRemovedEndpoints: false,
};

function stateOf(change: Partial<ServicePortView> = {}): ServicePortState {
  const view = { ...VIEW, ...change };
  return { view, cluster: view.clusterEndpoints, local: view.localEndpoints };
}

it("endpoints that replace others are the only difference", () => {
  expect(differInEndpoints(stateOf(), stateOf({ clusterEndpoints: list("10.244.1.1", "10.244.1.3") }))).toBe(true);
  expect(differInEndpoints(stateOf(), stateOf({ localEndpoints: list("10.244.1.4") }))).toBe(true);
});

it("fewer or more endpoints are another difference", () => {
  expect(differInEndpoints(stateOf(), stateOf({ clusterEndpoints: list("10.244.1.1") }))).toBe(false);
  expect(differInEndpoints(stateOf(), stateOf({ localEndpoints: list() }))).toBe(false);
});

const others = (Object.keys(VIEW) as (keyof ServicePortView)[]).filter(
  (field) => !["clusterEndpoints", "localEndpoints"].includes(field),
);

it.each(others)("another value of %s is another difference", (field) => {
  const value = VIEW[field];
  const other = typeof value === "boolean" ? !value : typeof value === "number" ? value + 1 : ["other"];
  const changed = stateOf({ [field]: other });
  expect(differInEndpoints(stateOf(), changed)).toBe(false);
  expect(differInEndpoints(changed, stateOf())).toBe(false);
});
