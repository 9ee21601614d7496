/** Hints at lost segments: only the third copy of a segment that nothing acknowledges. */
import { expect, test } from "vitest";
import { SegmentHints } from "../../../../src/tools/trace/trace-hints.ts";
import type { TracedPacket } from "../../../../src/tools/trace/traced-packet.ts";

const packet = { source: "198.51.100.10", sourcePort: 4711, destination: "203.0.113.80", destinationPort: 80 };

function segment(
  direction: "original" | "reply",
  sequence: number,
  acknowledgement: number,
  payload: number,
): TracedPacket {
  const tcp = { flags: ["ACK"], sequence, acknowledgement, payload } as const;
  return {
    ...{ at: 0, family: "ip", protocol: "tcp", packet, masqueraded: false, verdict: "accepted" },
    ...{ direction, length: payload + 52, tcp },
  };
}

test("the third copy of a segment without an acknowledgement is a hint, in each direction once", () => {
  const hints = new SegmentHints();
  const data = segment("reply", 4_294_967_000, 5, 1448);
  expect([data, data, data, data].map((one) => hints.of(one)?.slice(0, 52))).toEqual([
    ...[undefined, undefined, "the endpoint has sent the same segment three times (", undefined],
  ]);
  const upload = segment("original", 5, 4_294_967_000, 1448);
  expect([upload, upload, upload].map((one) => hints.of(one)).at(-1)).toMatch(
    /^the client .*way to the endpoint is smaller$/,
  );
});

test("an acknowledgement, also beyond the end of the sequence numbers, ends the count; empty packets do not count", () => {
  const hints = new SegmentHints();
  const data = segment("reply", 4_294_967_000, 5, 1448);
  const acknowledged = segment("original", 5, 1152, 0);
  const all = [data, data, acknowledged, data, data, acknowledged, data, acknowledged, acknowledged, acknowledged];
  expect(all.map((one) => hints.of(one)).filter(Boolean)).toEqual([]);
});
