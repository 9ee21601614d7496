/** How the addon decodes NFT_MSG_TRACE, and its listener to packets of the real kernel. */
import { expect, test } from "vitest";
import { FUZZ_SEED } from "../support/fuzz-seed.ts";
import { Hook, MetaKey, NfProto, TraceType } from "../../src/nft/kernel/constants.js";
import type { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import type { Op, TraceEvent } from "../../src/nft/kernel/kernel.js";
import { attr, be, entryMessage, nest } from "./conntrack-messages.js";
import { mutate, Random } from "./fuzz.js";
import { addChain, addTable, dropTable, inside, ip, useLab } from "./lab.js";
import { testAddon as addon } from "./test-addon.js";
import { atLength } from "../lab/length.ts";

const lab = useLab();
const INPUTS = atLength({ short: 5_000, usual: 30_000, nightly: 300_000 });

/** NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_TRACE */
const type = 0x0a11;
const text = (value: string): number[] => [...Buffer.from(`${value}\0`)];
const full = [
  attr(1, text("filter")),
  attr(2, text("forward")),
  attr(3, be(8, 77)),
  attr(4, be(4, TraceType.rule)),
  nest(5, attr(1, be(4, 0xfffffffd)), attr(2, text("services"))),
  attr(6, be(4, 0xdeadbeef)),
  attr(8, [0x45, 0, 0, 60]),
  attr(9, [0, 80]),
  attr(10, be(4, 3)),
  attr(11, be(2, 1)),
  attr(12, be(4, 4)),
  attr(14, be(4, 0x4000)),
  attr(15, be(4, NfProto.ip)),
  attr(16, be(4, 1)),
  attr(18, be(4, 12345)),
  attr(19, [0]),
  attr(20, be(4, 0x108)),
  attr(21, be(4, 8)),
  // An attribute that does not exist yet.
  attr(900, [1, 2, 3]),
];
const decode = (attrs: readonly (readonly number[])[]): Readonly<Record<string, unknown>> =>
  addon.decodeMessages(Uint8Array.from(entryMessage(NfProto.inet, attrs, { type })))[0].body;

test("every attribute of a message is read", () => {
  expect(decode(full)).toEqual({
    id: 0xdeadbeef,
    type: TraceType.rule,
    nfproto: NfProto.ip,
    family: "inet",
    table: "filter",
    chain: "forward",
    rule: 77n,
    verdict: { verdict: "jump", chain: "services" },
    policy: 1,
    mark: 0x4000,
    iif: 3,
    oif: 4,
    network: Uint8Array.of(0x45, 0, 0, 60),
    transport: Uint8Array.of(0, 80),
    ctId: 12345,
    ctState: 8,
  });
});

test("a value that is not in the message is absent", () => {
  const none = { id: 0, type: 0, nfproto: 0, family: "inet", table: "", chain: "" };
  expect(decode([])).toEqual(none);
});

test.each([
  ["a rule that continues", 0xffffffff, { verdict: "continue" }],
  ["a queue with its number", 0x00050003, { verdict: "queue" }],
  ["a drop with a reason", 0x00010000, { verdict: "drop" }],
  ["a stolen packet", 2, { verdict: "?" }],
])("verdicts: %s", (_, code, verdict) => {
  expect(decode([nest(5, attr(1, be(4, code)))])["verdict"]).toEqual(verdict);
});

test.each([
  ["a handle of four bytes", attr(3, be(4, 1))],
  ["an id of two bytes", attr(6, be(2, 1))],
  ["a verdict of one byte", nest(5, attr(1, [1]))],
  ["an attribute longer than the message", [200, 0, 6, 0]],
])("%s is refused", (_, bytes) => {
  expect(() => decode([bytes])).toThrow(/malformed netlink message/);
});

test(`${INPUTS} corrupted messages are accepted or refused, FUZZ_SEED=${FUZZ_SEED}`, { timeout: 3_600_000 }, () => {
  const random = new Random(FUZZ_SEED);
  const whole = Uint8Array.from(entryMessage(NfProto.inet, full, { type }));
  let taken = 0;
  for (let i = 0; i < INPUTS; i++) {
    const bytes = mutate(whole, random);
    try {
      taken += addon.decodeMessages(bytes).length > 0 ? 1 : 0;
    } catch (error) {
      expect(error).toMatchObject({ code: "system" });
    }
  }
  expect(taken).toBeGreaterThan(0);
  expect(taken).toBeLessThan(INPUTS);
});

const ref = ip("traced");
/** Marks every packet that this namespace sends, and drops it at the end. */
const marking: readonly Op[] = [
  addTable(ref),
  { op: "add", kind: "chain", ...ref, chain: "out", base: { type: "filter", hook: Hook.output, priority: 0 } },
  addChain(ref, "end"),
  {
    op: "add",
    kind: "rule",
    ...ref,
    chain: "out",
    exprs: [
      { type: "immediate", dreg: 1, data: Uint8Array.of(1) },
      { type: "meta", key: MetaKey.nftrace, sreg: 1 },
      { type: "immediate", dreg: 0, data: { verdict: "jump", chain: "end" } },
    ],
  },
  {
    op: "add",
    kind: "rule",
    ...ref,
    chain: "end",
    exprs: [{ type: "immediate", dreg: 0, data: { verdict: "drop" } }],
  },
];

interface Listening {
  readonly events: TraceEvent[];
  lost: number;
  close(): Promise<void>;
}
async function listen(kernel: NftKernel): Promise<Listening> {
  const heard: Listening = { events: [], lost: 0, close: () => monitor.close() };
  const monitor = await kernel.trace({
    onEvents: (events) => heard.events.push(...events),
    onLost: () => heard.lost++,
    onError: (error) => {
      throw error;
    },
  });
  return heard;
}

test("a packet's rules are reported in order, with its headers and interfaces", async () => {
  const { kernel, netns } = lab();
  await inside(netns, "ip link set lo up");
  await kernel.commit(marking);
  const heard = await listen(kernel);
  await inside(netns, "echo x > /dev/udp/127.0.0.1/7777 || true");
  await expect.poll(() => heard.events.length).toBeGreaterThanOrEqual(2);
  const [jump, drop] = heard.events;
  expect(jump).toMatchObject({
    ...ref,
    chain: "out",
    type: TraceType.rule,
    verdict: { verdict: "jump", chain: "end" },
  });
  expect(drop).toMatchObject({ ...ref, chain: "end", verdict: { verdict: "drop" }, id: jump.id });
  expect(Buffer.from(jump.network ?? []).subarray(12, 20)).toEqual(Buffer.from([127, 0, 0, 1, 127, 0, 0, 1]));
  expect(Buffer.from(jump.transport ?? []).readUInt16BE(2)).toBe(7777);
  expect(jump.rule).toBe((await kernel.rules(ref, "out"))[0].handle);
  expect((await kernel.interfaces.names()).get(jump.oif ?? 0)).toBe("lo");
  await heard.close();
  await inside(netns, "echo x > /dev/udp/127.0.0.1/7777 || true");
  expect(heard.events).toHaveLength(2);
  await kernel.commit([dropTable(ref)]);
});

test("messages that exceed the buffer are reported as lost, and later ones arrive", async () => {
  const { open, netns } = lab();
  const kernel = await open({ receiveBufferBytes: 4096 });
  await kernel.commit(marking);
  const heard = await listen(kernel);
  await expect
    .poll(async () => {
      await inside(netns, "for i in {1..300}; do echo x > /dev/udp/127.0.0.1/7777; done 2>/dev/null || true");
      return heard.lost;
    })
    .toBeGreaterThan(0);
  const before = heard.events.length;
  await inside(netns, "echo x > /dev/udp/127.0.0.1/7777 || true");
  await expect.poll(() => heard.events.length).toBeGreaterThan(before);
  await kernel.close();
});
