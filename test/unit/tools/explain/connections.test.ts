/** The conntrack entries that `explain` counts. */
import { expect, it } from "vitest";

import { matchesPatterns, compileFilter } from "../../../../src/nft/conntrack/compile-filter.js";
import { packEntry } from "../../../../src/nft/conntrack/encode.js";
import { filterOf } from "../../../../src/tools/explain/world/open-connections.js";
import type { Addressed } from "../../../../src/tools/explain/machine/packet-spec.js";

const TO: Addressed = { family: "ip", protocol: "udp", destination: "10.96.0.10", destinationPort: 53 };

const entry = packEntry("test", {
  family: "ip",
  original: { source: "10.0.0.7", destination: "10.96.0.10", protocol: 17, sourcePort: 40_000, destinationPort: 53 },
  reply: { source: "10.1.0.3", destination: "10.0.0.7", protocol: 17, sourcePort: 5353, destinationPort: 40_000 },
  id: 7,
  status: 0x1aa,
  mark: 0,
  zone: 0,
  timeout: 30,
});

it.each([
  ["any sender", undefined, true],
  ["the sender", "10.0.0.7", true],
  ["another sender", "10.0.0.8", false],
])("from %s", (_who, source, counted) => {
  expect(matchesPatterns(compileFilter(filterOf(TO, source), "dump"), entry)).toBe(counted);
});
