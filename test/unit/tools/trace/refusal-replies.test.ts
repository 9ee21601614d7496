/** Finds the packet that a rejection answers. */
import { expect, test } from "vitest";
import { bytesOf, portBytes } from "../../../../src/tools/explain/machine/packet-state.ts";
import { NfProto, TraceType } from "../../../../src/nft/kernel/constants.ts";
import type { TraceEvent } from "../../../../src/nft/kernel/kernel.ts";
import { TraceChain, traceTable } from "../../../../src/tools/trace/trace-filter.ts";
import type { TraceHeaders } from "../../../../src/tools/trace/trace-headers.ts";
import { RefusalReplies } from "../../../../src/tools/trace/refusal-replies.ts";

const CLIENT = "192.0.2.1";
const POD = "10.244.0.5";
const TCP = 6;
const ICMP = 1;

function reply(protocol: number, transport: Uint8Array, more: Partial<TraceEvent> = {}): TraceEvent {
  const network = new Uint8Array(20);
  network[0] = 0x45;
  network[9] = protocol;
  network.set(bytesOf(POD), 12);
  network.set(bytesOf(CLIENT), 16);
  const event = { id: 1, ...traceTable(1), chain: TraceChain.refusals, type: TraceType.rule, nfproto: NfProto.ip };
  return { ...event, network, transport, ...more };
}
const reset = (port: number): TraceEvent => reply(TCP, Uint8Array.of(...portBytes(port), ...portBytes(4711)));
const unreachable = (code: number, ctId?: number): TraceEvent =>
  reply(ICMP, Uint8Array.of(3, code, 0, 0), ctId === undefined ? {} : { ctId });

const last: TraceHeaders = {
  ...{ family: "ip", protocol: "tcp", source: CLIENT, sourcePort: 4711, destination: POD, destinationPort: 8080 },
};
const told = (event: TraceEvent, ctId?: number): string | undefined => {
  const refusals = new RefusalReplies();
  refusals.add(event, 0);
  return refusals.of({ last, ctId });
};

test("a reset belongs to the packet with its addresses and ports in the other direction", () => {
  expect([told(reset(8080)), told(reset(8081))]).toEqual(["TCP reset", undefined]);
});

test("an ICMP error belongs to the packet with the same conntrack entry, and to none if the kernel does not name it", () => {
  expect([told(unreachable(3, 7), 7), told(unreachable(3, 7), 8), told(unreachable(3), 7)]).toEqual([
    "ICMP port unreachable",
    undefined,
    undefined,
  ]);
});

test("a message that a packet is too big is not a refusal", () => {
  expect(told(unreachable(4, 7), 7)).toBeUndefined();
});

test("refusals are remembered for five seconds, at most the latest 512", () => {
  const refusals = new RefusalReplies();
  refusals.add(reset(8080), 0);
  refusals.add(reset(1), 5001);
  expect(refusals.of({ last, ctId: undefined })).toBeUndefined();
  for (let port = 1; port <= 2000; port++) refusals.add(reset(port), 6000);
  refusals.add(reset(8080), 6000);
  expect(refusals.of({ last, ctId: undefined })).toBe("TCP reset");
});
