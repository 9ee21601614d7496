import { expect, it } from "vitest";

import { ServiceEvents } from "../../../src/daemon/service-events.js";
import type { EventSubject, EventText } from "../../../src/base/events.js";

it("a service that is quarantined has an Event: which node, which addresses, and what the kernel said", () => {
  const recorded: [EventSubject, EventText][] = [];
  const uids: Record<string, string> = { "shop/cart": "1-2-3" };
  const recorder = { record: (...event: [EventSubject, EventText]) => void recorded.push(event) };
  const events = new ServiceEvents(recorder, "node-a", (service) => uids[service] ?? "");
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
        note: "node node-a does not serve its IPv6 addresses as the Service now says: chain sticky-x: ENOMEM",
      },
    ],
    [{ kind: "Service", namespace: "shop", name: "gone" }, expect.objectContaining({ type: "Warning" })],
  ]);
});
