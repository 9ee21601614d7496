import { expect, it } from "vitest";

import { ServiceEvents } from "../../../src/daemon/service-events.js";
import type { EventSubject, EventText } from "../../../src/observe/events.js";

it("a service that is set aside has an Event: which node, which addresses, and what the kernel said", () => {
  const recorded: [EventSubject, EventText][] = [];
  const events = new ServiceEvents({ record: (about, text) => void recorded.push([about, text]) }, "node-a");
  events.setAside({ family: "ip6", service: "shop/cart", reason: "chain sticky-x: ENOMEM" });
  expect(recorded).toEqual([
    [
      { kind: "Service", namespace: "shop", name: "cart" },
      {
        type: "Warning",
        reason: "ServiceNotProgrammed",
        action: "Program",
        note: "node node-a does not serve its IPv6 addresses as the Service now says: chain sticky-x: ENOMEM",
      },
    ],
  ]);
});
