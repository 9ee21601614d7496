import { expect, it } from "vitest";

import { NodeEvents } from "../../../src/daemon/node-events.js";
import type { EventSubject, EventText } from "../../../src/base/events.js";

it("contended: the Node has an Event that names the other process, and what to do", () => {
  const recorded: [EventSubject, EventText][] = [];
  const events = new NodeEvents({ record: (...event) => void recorded.push(event) }, "node-a");
  events.contended({ by: ["nft-proxier (pid 4711)"], hint: "end one of them" });
  expect(recorded).toEqual([
    [
      { kind: "Node", name: "node-a" },
      {
        type: "Warning",
        reason: "TablesContended",
        action: "Repair",
        note: "nft-proxier (pid 4711) keeps changing the kube-proxy tables of nf_tables: end one of them",
      },
    ],
  ]);
});
