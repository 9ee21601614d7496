import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { unknownFields } from "../../../src/objects/manifests/unknown-fields.js";
import { knownFieldsFile } from "../../fields/list.ts";

const FILE = new URL("../../../src/objects/manifests/known-fields.ts", import.meta.url);

test("the known fields are those of the installed @kubernetes/client-node", () => {
  expect(readFileSync(FILE, "utf8"), "run `node_modules/.bin/node test/fields/write.ts`").toBe(knownFieldsFile());
});

test("an unknown field at any depth is named, with the nearest known one", () => {
  const found = unknownFields("Service", {
    metadata: { name: "a", lables: {} },
    spec: {
      externalIps: [],
      ports: [{ port: 80 }, { port: 81, nodeport: 1 }],
      sessionAffinityConfig: { clientIp: {} },
    },
    zzzzzzzzzz: 1,
  });
  expect(found?.named.map(({ field, meant }) => [field, meant])).toEqual([
    ["metadata.lables", "labels"],
    ["spec.externalIps", "externalIPs"],
    ["spec.ports[1].nodeport", "nodePort"],
    ["spec.sessionAffinityConfig.clientIp", "clientIP"],
    ["zzzzzzzzzz", undefined],
  ]);
});

test("maps with free keys, and content that no field names, are not checked", () => {
  const free = { "any.thing/at-all": "x", nodeport: "y" };
  const managedFields = [{ manager: "kubectl", fieldsV1: { "f:spec": { "f:anything": {} } } }];
  const metadata = { name: "a", labels: free, annotations: free, managedFields };
  expect(unknownFields("Service", { metadata, spec: { selector: free } })).toBeUndefined();
  expect(unknownFields("Node", { metadata, status: { capacity: free, allocatable: free } })).toBeUndefined();
  expect(unknownFields("EndpointSlice", { metadata, endpoints: [{ deprecatedTopology: free }] })).toBeUndefined();
});

test("a wrong type is not reported here, but by the decoder", () => {
  expect(unknownFields("Service", { spec: "none", metadata: [1, { name: "a" }], status: null })).toBeUndefined();
});

test("the first ones of many unknown fields of an object are named", () => {
  const many = Object.fromEntries(Array.from({ length: 100_000 }, (_, i) => [`${i}${"x".repeat(i % 200)}`, i]));
  const found = unknownFields("ServiceCIDR", { spec: many });
  expect(found?.total).toBe(100_000);
  expect(found?.named).toHaveLength(10);
});
