/** Services between which an address or node port passes are tried together. */
import { expect, it } from "vitest";
import { NO_ENDPOINTS } from "../../../src/model/endpoints.js";

import type { ServicePortView } from "../../../src/model/types.js";
import { ChangedClaims } from "../../../src/proxier/changed-claims.js";
import type { ServiceState } from "../../../src/ruleset/ruleset.js";

/** A service port with these addresses; "30000" is a node port. */
function view(...claims: readonly string[]): ServicePortView {
  const addresses = claims.filter((claim) => claim.includes("."));
  return {
    service: "",
    portName: "",
    protocol: "TCP",
    port: 80,
    clusterIP: addresses[0],
    externalIPs: addresses.slice(1, 2),
    loadBalancerIPs: addresses.slice(2),
    nodePort: Number(claims.find((claim) => !claim.includes(".")) ?? 0),
    internalPolicyLocal: false,
    externalPolicyLocal: false,
    affinitySeconds: 0,
    clusterEndpoints: NO_ENDPOINTS,
    localEndpoints: NO_ENDPOINTS,
    hasAnyEndpoint: true,
    resetRemovedEndpoints: false,
  };
}

const had = (...claims: readonly string[]): ServiceState => [
  { view: view(...claims), cluster: NO_ENDPOINTS, local: NO_ENDPOINTS },
];

it.each<[string, Readonly<Record<string, [present: string[], former: string[]]>>, string[][]]>([
  ["strangers are alone", { a: [["10.0.0.1"], []], b: [["10.0.0.2"], []] }, [["a"], ["b"]]],
  ["an address passes", { a: [[], ["10.0.0.1"]], b: [["10.0.0.1"], []], c: [["10.0.0.2"], []] }, [["a", "b"], ["c"]]],
  ["a node port passes", { a: [["10.0.0.1"], ["10.0.0.1", "30000"]], b: [["10.0.0.2", "30000"], []] }, [["a", "b"]]],
  [
    "two exchange theirs",
    { a: [["10.0.0.1"], ["10.0.0.2"]], b: [["10.0.0.2"], ["10.0.0.1"]], c: [["10.0.0.3"], ["10.0.0.3"]] },
    [["a", "b"], ["c"]],
  ],
  [
    "one has to do with two that had nothing to do with each other, and another with one of these",
    {
      a: [["10.0.0.1"], []],
      b: [["10.0.0.2", "10.0.0.3"], []],
      c: [["10.0.0.1"], ["10.0.0.2"]],
      d: [[], ["10.0.0.1"]],
      e: [["10.0.0.3"], []],
    },
    [["a", "b", "c", "d", "e"]],
  ],
])("%s", (_what, services, groups) => {
  const changes = Object.entries(services).map(
    ([name, [present, former]]) =>
      [name, { present: present.length === 0 ? [] : had(...present), former: had(...former) }] as const,
  );
  const found = new ChangedClaims(new Map(changes)).groups();
  const inOrder = found.map((group) => group.toSorted()).toSorted(([a], [b]) => (a < b ? -1 : 1));
  expect(inOrder).toEqual(groups);
});
