/** Trace messages combined into packets, for any order, loss and reuse of ids by the kernel. */
import { beforeEach, describe, expect, test } from "vitest";
import { parseAddress } from "../../../../src/base/ip.ts";
import { bytesOf, portBytes } from "../../../../src/tools/explain/machine/packet-state.ts";
import { NfProto, TraceType } from "../../../../src/nft/kernel/constants.ts";
import type { TraceEvent } from "../../../../src/nft/kernel/kernel.ts";
import { TraceChain, traceTable } from "../../../../src/tools/trace/trace-filter.ts";
import { type FoldedPacket, QUIET_MS, TraceFold } from "../../../../src/tools/trace/trace-fold.ts";

const own = traceTable(1);
const LOOPBACK = 1;
const PORT = 80;

function headers(source: string, destination: string): Pick<TraceEvent, "network" | "transport"> {
  const network = new Uint8Array(20);
  network[0] = 0x45;
  network[9] = 6;
  network.set(bytesOf(source), 12);
  network.set(bytesOf(destination), 16);
  return { network, transport: Uint8Array.of(...portBytes(4711), ...portBytes(PORT)) };
}
/** Gives the event another IPv4 identification. */
function numbered(event: Pick<TraceEvent, "network" | "transport">): Pick<TraceEvent, "network" | "transport"> {
  const network = Uint8Array.from(event.network ?? []);
  network[5] = 1;
  return { ...event, network };
}
const rule = { type: TraceType.rule, nfproto: NfProto.ip } as const;
const policy = (accept: boolean): Pick<TraceEvent, "type" | "policy" | "nfproto"> => ({
  type: TraceType.policy,
  policy: accept ? 1 : 0,
  nfproto: NfProto.ip,
});
const forward = { family: "inet", table: "fw", chain: "forward" } as const;

/** The kernel's information about a packet, a message at a time. */
const mark = (
  id: number,
  source: string,
  destination: string,
  from: "outside" | "this node" = "outside",
): TraceEvent => ({
  id,
  ...rule,
  ...own,
  chain: TraceChain.traced,
  rule: 9n,
  verdict: { verdict: "continue" },
  ...(from === "outside" && { iif: 7 }),
  ...headers(source, destination),
});
const last = (chain: string, id: number, source: string, destination: string, oif?: number): TraceEvent => ({
  id,
  ...rule,
  ...own,
  chain,
  verdict: { verdict: "continue" },
  oif,
  ...headers(source, destination),
});
const left = (id: number, source: string, destination: string, oif = 8): TraceEvent =>
  last(TraceChain.postroutingLast, id, source, destination, oif);
const jump: Omit<TraceEvent, "id"> = {
  ...rule,
  ...forward,
  rule: 1n,
  verdict: { verdict: "jump", chain: "x" },
  iif: 7,
  oif: 8,
};

const CLIENT = "192.0.2.1";
const VIP = "10.96.0.10";
const POD = "10.244.0.5";
const NODE = "192.0.2.10";

let told: FoldedPacket[];
let refused: number[];
let fold: TraceFold;
beforeEach(() => {
  told = [];
  refused = [];
  fold = new TraceFold({
    ...{ table: own, loopback: LOOPBACK },
    onPacket: (packet) => told.push(packet),
    onRefusal: (event) => refused.push(event.id),
  });
});
const add = (...events: readonly TraceEvent[]): void => {
  for (const event of events) fold.add(event, 0);
};
/** The number of packets in flight, which are ended. */
const open = (): number => {
  const before = told.length;
  fold.finish();
  return told.length - before;
};
const ends = (): string[] => told.map(({ end }) => end);

test("an outgoing packet is shown as it arrived, and as it left", () => {
  add(mark(1, CLIENT, VIP), { id: 1, ...jump, ...headers(CLIENT, POD) }, left(1, NODE, POD));
  expect(told).toHaveLength(1);
  expect(told[0]).toMatchObject({
    end: "accepted",
    iif: 7,
    oif: 8,
    original: {
      family: "ip",
      protocol: "tcp",
      source: CLIENT,
      sourcePort: 4711,
      destination: VIP,
      destinationPort: PORT,
    },
    last: { source: NODE, destination: POD },
  });
  // The end of our last chain, and another packet with the same id.
  add(
    { id: 1, ...policy(true), ...own, chain: TraceChain.postroutingLast },
    mark(1, CLIENT, VIP),
    left(1, CLIENT, POD),
  );
  expect(ends()).toEqual(["accepted", "accepted"]);
  expect(open()).toBe(0);
});

test("a reply that refuses is not a packet of the trace", () => {
  add({ ...mark(5, POD, CLIENT), chain: TraceChain.refusals }, left(5, VIP, CLIENT));
  expect([told, refused, open()]).toEqual([[], [5], 0]);
});

test("a refusal that another program traces already has its headers in the message before the chain", () => {
  const verdict = { verdict: "goto", chain: TraceChain.refusals } as const;
  add({ ...mark(5, POD, CLIENT), chain: TraceChain.preroutingTracked, verdict });
  expect([told, refused, open()]).toEqual([[], [5], 0]);
});

test("packets are numbered in the order of their arrival, whenever they end", () => {
  add(mark(1, CLIENT, VIP), mark(2, NODE, VIP), left(2, NODE, POD), left(1, CLIENT, POD));
  expect(told.map(({ number, original }) => [number, original.source])).toEqual([
    [1, NODE],
    [0, CLIENT],
  ]);
});

describe("with br_netfilter, a packet from a bridge, which has another id from forward on", () => {
  test("is the same packet", () => {
    const forwarded = { ...jump, ...headers(CLIENT, POD) };
    add(mark(1, CLIENT, VIP), { id: 2, ...forwarded }, left(2, NODE, POD));
    expect(told).toMatchObject([
      { end: "accepted", original: { source: CLIENT, destination: VIP }, last: { source: NODE, destination: POD } },
    ]);
    expect(open()).toBe(0);
  });

  test("is the same packet even if only our own chains see it there", () => {
    add(mark(1, CLIENT, VIP), { ...left(2, CLIENT, POD), iif: 7 });
    expect(ends()).toEqual(["accepted"]);
  });

  test.each([
    ["another interface", { ...jump, ...headers(CLIENT, POD), iif: 6 }],
    ["another source", { ...jump, ...headers(NODE, POD) }],
    ["another packet of the same source", { ...jump, ...numbered(headers(CLIENT, POD)) }],
  ])("is not %s", (_, other) => {
    add(mark(1, CLIENT, VIP), { id: 2, ...other }, { id: 2, ...policy(false), ...forward });
    fold.settle(QUIET_MS);
    expect(ends()).toEqual(["vanished"]);
  });
});

test("a packet to a socket of the node is delivered", () => {
  add(mark(1, CLIENT, NODE), last(TraceChain.inputLast, 1, CLIENT, NODE));
  expect(ends()).toEqual(["delivered"]);
});

test.each([
  ["a rule", { ...rule, verdict: { verdict: "drop" }, rule: 5n, chain: "x" }, 5n],
  ["a policy", { ...policy(false), chain: "forward" }, undefined],
] as const)("%s that drops ends the packet at once, in its base chain", (_, drop, handle) => {
  add(mark(1, CLIENT, VIP), { id: 1, ...jump, ...headers(CLIENT, POD) }, { id: 1, ...forward, ...drop });
  expect(told).toMatchObject([{ end: "dropped", last: { destination: POD }, base: { chain: "forward" } }]);
  expect(told[0].event.rule).toBe(handle);
});

test("a packet that no other hook sees has vanished after the last chain that saw it", () => {
  add(mark(1, CLIENT, VIP), { id: 1, ...policy(true), ...forward, ...headers(CLIENT, POD) });
  fold.settle(QUIET_MS - 1);
  expect(told).toEqual([]);
  fold.settle(QUIET_MS);
  expect(told).toMatchObject([{ end: "vanished", event: { chain: "forward" } }]);
});

describe("messages that were lost", () => {
  test("make the fate of a packet unknown", () => {
    add(mark(1, CLIENT, VIP));
    fold.lost(10);
    fold.settle(QUIET_MS);
    expect(ends()).toEqual(["unknown"]);
  });

  test("lost messages also affect a packet whose first message follows, but not much later ones", () => {
    fold.lost(0);
    fold.add(mark(1, CLIENT, VIP), 1000);
    fold.settle(1000 + QUIET_MS);
    fold.add(mark(2, CLIENT, VIP), 60_000);
    fold.settle(60_000 + QUIET_MS);
    expect(ends()).toEqual(["unknown", "vanished"]);
  });

  test("do not change a reported drop", () => {
    add(mark(1, CLIENT, VIP));
    fold.lost(0);
    add({ id: 1, ...policy(false), ...forward });
    expect(ends()).toEqual(["dropped"]);
  });
});

test("a packet through the loopback interface is one packet with two ids", () => {
  add(mark(1, NODE, VIP, "this node"), left(1, NODE, NODE, LOOPBACK));
  expect(told).toEqual([]);
  // A packet that differs only in its port is not mistaken for it, and neither is one from another interface.
  add(last(TraceChain.preroutingFirst, 9, CLIENT, NODE));
  add({ ...last(TraceChain.preroutingFirst, 2, NODE, NODE), iif: LOOPBACK }, { id: 2, ...policy(false), ...forward });
  expect(told).toMatchObject([
    { end: "dropped", iif: undefined, original: { destination: VIP }, last: { destination: NODE } },
  ]);
});

test("a packet through the loopback interface that does not return was accepted", () => {
  add(mark(1, NODE, VIP, "this node"), left(1, NODE, NODE, LOOPBACK));
  fold.settle(QUIET_MS);
  expect(ends()).toEqual(["accepted"]);
});

test("a queue holds a packet, which may return to the next hook or not", () => {
  const queue: TraceEvent = { id: 1, ...jump, verdict: { verdict: "queue" }, ...headers(CLIENT, POD) };
  add(mark(1, CLIENT, VIP), queue, left(1, CLIENT, POD));
  add(mark(1, CLIENT, VIP), queue);
  fold.settle(QUIET_MS);
  expect(ends()).toEqual(["accepted", "queued"]);
});

test("an id that is used again before its packet ended belongs to another packet", () => {
  add(mark(1, CLIENT, VIP), mark(1, POD, VIP), left(1, POD, POD));
  expect(told.map(({ end, original }) => [end, original.source])).toEqual([
    ["unknown", CLIENT],
    ["accepted", POD],
  ]);
});

test("packets that another program traces are not reported, even if they pass our chains", () => {
  add(
    last(TraceChain.preroutingFirst, 1, CLIENT, VIP),
    { id: 1, ...jump, ...headers(CLIENT, POD) },
    left(1, CLIENT, POD),
  );
  expect([open(), told]).toEqual([0, []]);
});

test("packets in flight are reported at the end as far as they are known", () => {
  add(mark(1, CLIENT, VIP), mark(2, NODE, VIP, "this node"), left(2, NODE, NODE, LOOPBACK));
  fold.finish();
  expect(ends()).toEqual(["unknown", "accepted"]);
});

test("headers that are truncated, or of other protocols, are no packet", () => {
  const whole = mark(1, CLIENT, VIP);
  const icmp = Uint8Array.from(whole.network ?? []);
  icmp[9] = 1;
  for (const network of [icmp, new Uint8Array(), (whole.network ?? icmp).subarray(0, 19), Uint8Array.of(0x60, 0)]) {
    add({ ...whole, network });
  }
  add({ ...whole, transport: Uint8Array.of(1, 2) });
  expect(open()).toBe(0);
});

test("IPv6 headers are read", () => {
  const network = new Uint8Array(40);
  network[0] = 0x60;
  network[6] = 132;
  network.set(bytesOf("2001:db8::1"), 8);
  network.set(bytesOf("fd00::10"), 24);
  add({ ...mark(1, CLIENT, VIP), network }, { ...left(1, CLIENT, VIP), network });
  expect(told[0].original).toMatchObject({
    family: "ip6",
    protocol: "sctp",
    source: parseAddress("2001:db8::1"),
    destination: "fd00::10",
  });
});
