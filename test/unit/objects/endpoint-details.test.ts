/** Details of endpoints for operators, and the effect of a change of these alone. */
import { expect, test } from "vitest";
import { describeService } from "../../../src/daemon/answers/listed-services.js";
import type { ServiceModel } from "../../../src/model/service-model.js";
import { DetailPacker } from "../../../src/objects/endpoint-details.js";
import { newModel, service, slice } from "../model/objects.js";

const endpoint = (address: string, pod: string, rest: object = {}) => ({
  ...{ addresses: [address], nodeName: "n1", targetRef: { kind: "Pod", name: pod } },
  ...rest,
});

type Endpoints = Parameters<typeof slice>[2];

async function described(endpoints: Endpoints, ...more: Endpoints[]): Promise<string[][]> {
  const { model } = newModel();
  model.upsertService(service("web"));
  for (const [i, each] of [endpoints, ...more].entries()) model.upsertSlice(slice(`web-${i}`, "web", each));
  return rowsOf(model);
}

async function rowsOf(model: ServiceModel): Promise<string[][]> {
  const states = { active: () => true, quarantineReason: () => undefined };
  const rows: string[][] = [];
  for await (const ports of describeService({ model, families: ["ip"], states }, "default/web")) {
    for (const { address, pod = "", node = "", zone = "" } of ports.flatMap((port) => port.endpoints ?? [])) {
      rows.push([address, pod, node, zone]);
    }
  }
  return rows;
}

test("each endpoint has its pod, node and zone, as far as its slice names them", async () => {
  expect(
    await described([
      endpoint("10.1.0.1", "web-7d4b-x", { zone: "a" }),
      "10.1.0.2",
      { addresses: ["10.1.0.3"], zone: "b" },
      endpoint("10.1.0.4", "web-7d4b-y", { nodeName: "n2" }),
    ]),
  ).toEqual([
    ["10.1.0.1", "web-7d4b-x", "n1", "a"],
    ["10.1.0.2", "", "n1", ""],
    ["10.1.0.3", "", "", "b"],
    ["10.1.0.4", "web-7d4b-y", "n2", ""],
  ]);
  expect(await described([{ addresses: ["10.1.0.1"] }])).toEqual([["10.1.0.1", "", "", ""]]);
});

test("a pod of another namespace has that in its name, and an endpoint that is not a pod, or has no name, has none", async () => {
  const of = async (targetRef: unknown) => (await described([{ addresses: ["10.1.0.1"], targetRef }]))[0]?.[1];
  expect(await of({ kind: "Pod", namespace: "default", name: "x" })).toBe("x");
  expect(await of({ kind: "Pod", namespace: "other", name: "x" })).toBe("other/x");
  for (const none of [{ kind: "Node", name: "x" }, { kind: "Pod" }, { kind: "Pod", name: 5 }, "x", null]) {
    expect(await of(none)).toBe("");
  }
});

test("a name with a line break only removes the names of its own slice", async () => {
  const [bad, good] = [endpoint("10.1.0.1", "a\nb"), endpoint("10.1.0.2", "c")];
  expect((await described([bad, good], [endpoint("10.1.0.3", "d")])).map(([, pod, node]) => [pod, node])).toEqual([
    ["", "n1"],
    ["", "n1"],
    ["d", "n1"],
  ]);
});

test("the slice that receives traffic describes an address that is in two slices", async () => {
  const ending = endpoint("10.1.0.1", "old", { conditions: { ready: false, serving: true, terminating: true } });
  expect(await described([ending], [endpoint("10.1.0.1", "new")])).toEqual([["10.1.0.1", "new", "n1", ""]]);
});

test("a pod with another name and the same address does not change any rule, and is shown at once", async () => {
  const { model } = newModel();
  model.upsertService(service("web"));
  const zones = { zone: "a" };
  model.upsertSlice(slice("web-1", "web", [endpoint("10.1.0.1", "old", zones)]));
  model.takeDirty();
  expect(model.upsertSlice(slice("web-1", "web", [endpoint("10.1.0.1", "new", { ...zones, nodeName: "n2" })]))).toBe(
    false,
  );
  expect(model.takeDirty().services).toEqual([]);
  expect(await rowsOf(model)).toEqual([["10.1.0.1", "new", "n2", "a"]]);
  model.upsertSlice(slice("web-1", "web", [{ addresses: ["10.1.0.1"], ...zones }]));
  expect(model.takeDirty().services).toEqual([]);
  expect(await rowsOf(model)).toEqual([["10.1.0.1", "", "", "a"]]);
});

test("a node that its slices put into several zones has each of them", async () => {
  const at = (address: string, zone: string) => endpoint(address, "x", { zone });
  const rows = await described([at("10.1.0.1", "a"), at("10.1.0.2", "b"), at("10.1.0.3", "")], [at("10.1.0.4", "b")]);
  expect(rows.map(([, , node, zone]) => [node, zone])).toEqual([
    ["n1", "a"],
    ["n1", "b"],
    ["n1", ""],
    ["n1", "b"],
  ]);
});

test("more nodes than there are codes: earlier ones keep their names", () => {
  const packer = new DetailPacker();
  const packed = (from: number) => {
    packer.begin(1000);
    for (let i = 0; i < 1000; i++) packer.place(i, `node-${from + i}`, "a");
    return packer.pack(["", ...Array.from({ length: 1000 }, (_, i) => `pod-${i}`)])!;
  };
  const all = Array.from({ length: 70 }, (_, i) => packed(i * 1000));
  for (const [i, details] of all.entries()) {
    expect(details.all(1000)[999]).toEqual({ pod: "pod-999", node: `node-${i * 1000 + 999}` });
    expect(details.zone(999)).toBe("a");
  }
});
