import type { V1Node } from "@kubernetes/client-node";
import { expect, test } from "vitest";
import { NodeTap } from "../../../src/daemon/node-tap.js";
import type { ObjectSink } from "../../../src/source/types.js";
import { decoded } from "../../support/decoded.js";

test("passes everything on, and tells what this node's Node last said; its deletion says nothing", () => {
  const passed: string[] = [];
  const sink: ObjectSink = {
    upsert: ({ kind, name }) => passed.push(`+${kind} ${name}`),
    remove: (kind, name) => passed.push(`-${kind} ${name}`),
    synced: () => passed.push("synced"),
    flush: () => passed.push("flush"),
  };
  const seen: (V1Node | undefined)[] = [];
  const tap = new NodeTap(sink, "n1", (node) => seen.push(node));
  const mine: V1Node = { metadata: { name: "n1" } };
  tap.upsert(decoded({ kind: "Node", object: { metadata: { name: "n2" } } }));
  tap.upsert(decoded({ kind: "Node", object: mine }));
  tap.synced();
  tap.remove("Node", "n1");
  tap.flush();
  expect(seen).toEqual([mine]);
  expect(passed).toEqual(["+Node n2", "+Node n1", "synced", "-Node n1", "flush"]);
});
