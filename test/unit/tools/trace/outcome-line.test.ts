/** Lines of `trace`: complete in a pipe, and within the width of a terminal without the details that matter least. */
import { expect, test } from "vitest";
import { outcomeLine, outcomeOf, type PacketNames } from "../../../../src/tools/trace/outcome-line.ts";
import type { TracedPacket } from "../../../../src/tools/trace/traced-packet.ts";
import { PORT_STATUS } from "../../observe/port-status.ts";

const at = new Date(2026, 10, 27, 14, 3, 22, 118).getTime();
const answered: TracedPacket = {
  at,
  family: "ip",
  protocol: "tcp",
  packet: { source: "198.51.100.10", sourcePort: 41532, destination: "203.0.113.80", destinationPort: 80 },
  translated: { source: "10.244.0.1", sourcePort: 33211, destination: "10.244.0.5", destinationPort: 8080 },
  masqueraded: true,
  in: "eth1",
  out: "pod0",
  verdict: "accepted",
  reply: "yes",
};
const endpoint = {
  address: "10.244.0.5",
  port: 8080,
  pod: "web-7d4b9c6d5f-kx2vq",
  node: "node-2",
  local: false,
  terminating: true,
} as PacketNames["endpoint"];
const names: PacketNames = {
  service: { ...PORT_STATUS, namespace: "default", name: "web", portName: "http" },
  endpoint,
};
const by = { table: "inet other", chain: "forward", hook: "forward", rule: "12" };
const { translated: _, ...untranslated } = { ...answered, masqueraded: false };

test.each([
  [
    undefined,
    "14:03:22.118 tcp 198.51.100.10:41532 → 203.0.113.80:80 default/web:http → 10.244.0.5:8080 web-7d4b9c6d5f-kx2vq " +
      "(node-2, terminating), masqueraded as 10.244.0.1:33211, in eth1, out pod0, answered",
  ],
  [120, "14:03:22 tcp 198.51.100.10:41532 → 203.0.113.80:80 default/web:http → web-7d4b9c6d5f-kx2vq:8080, answered"],
  [100, "14:03:22 tcp 198.51.100.10:41532 → 203.0.113.80:80 → web-7d4b9c6d5f-kx2vq:8080, answered"],
  [80, "tcp 198.51.100.10:41532 → 203.0.113.80:80 → web-7d4b9c6d5f-kx2vq:8080, answered"],
  [20, "tcp 198.51.100.10 → 203.0.113.80:80 → web-7d4b9c6d5f-kx2vq:8080, answered"],
])("width %s", (width, line) => {
  expect(outcomeLine(answered, names, width)).toBe(line);
});

test("with all packets, a line has direction, length, flags, sequence and fragment bits, and no answer that says nothing", () => {
  const tcp = { flags: ["PSH", "ACK"], sequence: 7, acknowledgement: 9, payload: 1448 };
  const facts = { length: 1500, fragment: "DF", tcp } as const;
  const line = (more: Partial<TracedPacket>): string => outcomeLine({ ...answered, ...facts, ...more }, {}, 120);
  expect(line({ direction: "original" })).toBe(
    "14:03:22 tcp 198.51.100.10:41532 → 203.0.113.80:80 → 10.244.0.5:8080, 1500 bytes, PSH ACK, seq 7 ack 9, DF",
  );
  expect(line({ direction: "reply", reply: undefined })).toContain(
    "198.51.100.10:41532 ← 203.0.113.80:80 ← 10.244.0.5:8080",
  );
  expect(line({ direction: "original", reply: "no" })).toMatch(/, DF, no answer$/);
  expect(line({ direction: "reply", verdict: "dropped", by })).toMatch(/, DF, dropped by inet other forward/);
  expect(outcomeOf({ ...answered, direction: "reply", reply: undefined })).toBe("in reply");
});

test.each<[Partial<TracedPacket>, string, string]>([
  [{ reply: "refused", refusal: "TCP reset" }, "refused (TCP reset)", "refused (TCP reset)"],
  [{ reply: "no" }, "no answer", "no answer"],
  [
    { verdict: "dropped", by },
    "dropped by inet other forward (handle 12)",
    "dropped by inet other forward (handle 12)",
  ],
  [
    { verdict: "dropped", by: { ...by, rule: undefined } },
    "dropped by the policy of inet other forward",
    "dropped by the policy of inet other forward",
  ],
  [
    { verdict: "rejected", by: { ...by, table: "ip kube-proxy", chain: "reject-chain", reason: "no-ready-endpoint" } },
    "rejected by ip kube-proxy reject-chain (handle 12): the service has no ready endpoint",
    "rejected: the service has no ready endpoint",
  ],
  [
    { verdict: "dropped", by: { ...by, reason: "traffic-policy-local" } },
    "dropped by inet other forward (handle 12): externalTrafficPolicy is Local, and this node has no ready endpoint",
    "dropped: externalTrafficPolicy is Local, and this node has no ready endpoint",
  ],
  [
    { verdict: "vanished", by },
    "lost after inet other forward; possible causes: no route, rp_filter, IP forwarding off, or rules outside nf_tables",
    "lost after inet other forward",
  ],
  [{ verdict: "unknown" }, "outcome unknown: messages are missing", "outcome unknown: messages are missing"],
])("the outcome is last and never cut: %j", (more, full, short) => {
  expect(outcomeLine({ ...untranslated, ...more }, names).endsWith(`, ${full}`)).toBe(true);
  expect(outcomeLine({ ...untranslated, ...more }, names, 80).endsWith(`, ${short}`)).toBe(true);
});
