import { expect, it } from "vitest";

import { KubernetesEvents } from "../../../src/daemon/kubernetes-events.js";
import type { EventSubject, EventText } from "../../../src/base/events.js";

it("a quarantined service has an Event with the node, the addresses, and the kernel's error", () => {
  const recorded: [EventSubject, EventText][] = [];
  const uids: Record<string, string> = { "shop/cart": "1-2-3" };
  const recorder = { record: (...event: [EventSubject, EventText]) => void recorded.push(event) };
  const events = new KubernetesEvents(recorder, "node-a", (service) => uids[service] ?? "");
  events.quarantined({ family: "ip6", service: "shop/cart", reason: "chain sticky-x: ENOMEM" });
  events.quarantined({ family: "ip", service: "shop/gone", reason: "EINVAL" });
  expect(recorded).toEqual([
    [
      // `kubectl describe service` asks for Events by the uid.
      { kind: "Service", namespace: "shop", name: "cart", uid: "1-2-3" },
      {
        type: "Warning",
        reason: "ServiceNotProgrammed",
        action: "Program",
        note: "node node-a does not serve the current IPv6 configuration of this Service: chain sticky-x: ENOMEM",
      },
    ],
    [{ kind: "Service", namespace: "shop", name: "gone" }, expect.objectContaining({ type: "Warning" })],
  ]);
});

it("if two proxiers compete, the Node has an Event that names the other process, and what to do", () => {
  const recorded: [EventSubject, EventText][] = [];
  const events = new KubernetesEvents({ record: (...event) => void recorded.push(event) }, "node-a", () => "");
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
