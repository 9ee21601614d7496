import { describe, expect, test } from "vitest";
import { plainEntry, unpackRecords } from "../../src/nft/conntrack/decode.js";
import { compileFilter, packPatterns } from "../../src/nft/conntrack/compile-filter.js";
import { packNewEntry } from "../../src/nft/conntrack/encode.js";
import type { ConntrackEntry, ConntrackFilter } from "../../src/nft/conntrack/conntrack-table.js";
import type { NativePiece } from "../../src/nft/kernel/conntrack-addon.js";
import type { NativeError } from "../../src/nft/kernel/native-error.js";
import { flow, ping } from "../support/conntrack-entries.ts";
import {
  attr,
  be,
  doneMessage,
  entryMessage,
  errorMessage,
  FULL,
  icmp4,
  message,
  nest,
  tuple4,
  UDP,
} from "./conntrack-messages.js";
import { testAddon as addon } from "./test-addon.js";

const patterns = (filter: ConntrackFilter = {}): Uint8Array => packPatterns(compileFilter(filter, "test"));
const decode = (bytes: readonly number[], filter: ConntrackFilter = {}): NativePiece =>
  addon.conntrackDecode(patterns(filter), Uint8Array.from(bytes));
const entriesOf = (piece: NativePiece): ConntrackEntry[] => piece.blocks.flatMap(unpackRecords).map(plainEntry);

/** Returns the addon's error for a datagram. */
function failure(bytes: readonly number[]): NativeError {
  try {
    decode(bytes);
  } catch (error) {
    return error as NativeError;
  }
  throw new Error("the message was accepted");
}

describe("entries", () => {
  test("all values that the kernel may report are read", () => {
    const [entry] = entriesOf(decode(entryMessage(2, FULL)));
    expect(entry).toEqual({
      family: "ip",
      original: {
        source: "10.0.0.7",
        destination: "10.96.0.10",
        protocol: 6,
        sourcePort: 40_000,
        destinationPort: 80,
        zone: 5,
      },
      reply: {
        source: "10.1.0.3",
        destination: "10.0.0.7",
        protocol: 6,
        sourcePort: 8080,
        destinationPort: 40_000,
      },
      id: 0xf000_0001,
      status: 0x1ae,
      timeout: 431_999,
      mark: 0xdead_beef,
      zone: 9,
      state: "ESTABLISHED",
      labels: Uint8Array.from({ length: 16 }, (_, i) => i + 1),
      counters: { original: { packets: 2n ** 40n, bytes: 2n ** 63n }, reply: { packets: 3n, bytes: 4n } },
      startedAt: 1_700_000_000_123,
    } satisfies ConntrackEntry);
  });

  test("an offloaded entry without a timeout and a state is read", () => {
    expect(entriesOf(decode(entryMessage(2, UDP)))).toEqual([
      {
        family: "ip",
        original: {
          source: "10.0.0.7",
          destination: "10.96.0.10",
          protocol: 17,
          sourcePort: 40_000,
          destinationPort: 53,
        },
        reply: {
          source: "10.1.0.3",
          destination: "10.0.0.7",
          protocol: 17,
          sourcePort: 5353,
          destinationPort: 40_000,
        },
        id: 0,
        status: 0,
        mark: 0,
        zone: 0,
      },
    ]);
  });

  test("an ICMP id is not a port", () => {
    const echo = [icmp4(1, "10.0.0.1", "10.0.0.2", 4242, 8), icmp4(2, "10.0.0.2", "10.0.0.1", 4242, 0)];
    const [entry] = entriesOf(decode(entryMessage(2, echo)));
    expect(entry.original).toMatchObject({ sourcePort: 0, destinationPort: 0, icmp: { id: 4242, type: 8, code: 0 } });
    expect(entry.reply.icmp).toEqual({ id: 4242, type: 0, code: 0 });
  });

  test("states are named, and unnamed ones are numbers", () => {
    const withState = (protocol: number, info: number, state: number): string | undefined => {
      const tuples = [1, 2].map((type) => tuple4(type, "10.0.0.1", "10.0.0.2", [1, 2], { protocol }));
      const attrs = [...tuples, nest(4, nest(info, attr(1, [state])))];
      return entriesOf(decode(entryMessage(2, attrs)))[0].state;
    };
    expect(withState(6, 1, 0)).toBe("NONE");
    expect(withState(6, 1, 7)).toBe("TIME_WAIT");
    expect(withState(132, 3, 2)).toBe("COOKIE_WAIT");
    expect(withState(33, 2, 4)).toBe("OPEN");
    expect(withState(6, 1, 11)).toBe("#11");
    expect(withState(6, 1, 255)).toBe("#254");
  });

  test("all entries of a datagram are read, or only matching ones", () => {
    const some = Array.from({ length: 1000 }, (_, i) =>
      entryMessage(2, [
        tuple4(1, "10.0.0.7", "10.96.0.10", [1000 + i, 53]),
        tuple4(2, "10.1.0.3", "10.0.0.7", [53, 1000 + i]),
        // One entry has more fields: its block has another shape.
        i === 700 ? nest(9, attr(1, be(8, 5)), attr(2, be(8, 6))) : [],
      ]),
    );
    const bytes = [...some.flat(), ...doneMessage()];
    const piece = decode(bytes);
    expect(piece).toMatchObject({ done: true, seen: 1000, interrupted: false });
    expect(entriesOf(piece).map(({ original }) => original.sourcePort)).toEqual(
      Array.from({ length: 1000 }, (_, i) => 1000 + i),
    );
    expect(entriesOf(piece)[700].counters?.original).toEqual({ packets: 5n, bytes: 6n });
    expect(entriesOf(piece)[699].counters).toBeUndefined();
    const few = decode(bytes, { original: { sourcePort: 1700 } });
    expect(few.seen).toBe(1000);
    expect(entriesOf(few)).toHaveLength(1);
  });

  test("entries of other families are skipped", () => {
    const piece = decode([...entryMessage(7, UDP), ...entryMessage(2, UDP)]);
    expect(piece.seen).toBe(2);
    expect(entriesOf(piece)).toHaveLength(1);
  });
});

describe("dumps", () => {
  const one = entryMessage(2, UDP);

  test("a dump that the kernel marks as interrupted is read to its end", () => {
    const marked = entryMessage(2, UDP, { flags: 0x12 });
    expect(decode([...one, ...marked, ...one])).toMatchObject({ done: false, seen: 3, interrupted: true });
    expect(decode([...one, ...doneMessage(0, { flags: 0x12 })])).toMatchObject({ done: true, interrupted: true });
  });

  test("messages after the end, and replies to other requests, are ignored", () => {
    const piece = decode([...entryMessage(2, UDP, { seq: 9 }), ...one, ...doneMessage(), ...one]);
    expect(piece).toMatchObject({ done: true, seen: 1 });
    expect(entriesOf(piece)).toHaveLength(1);
  });

  test("a failed dump is an error, wherever the kernel reports it", () => {
    expect(failure([...one, ...doneMessage(-12)])).toMatchObject({ code: "system", errno: 12 });
    expect(failure([...one, ...doneMessage(-0x8000_0000)])).toMatchObject({ code: "system", errno: 0x7fff_ffff });
    expect(failure([...one, ...errorMessage(105)])).toMatchObject({ code: "system", errno: 105 });
    expect(failure(errorMessage(1))).toMatchObject({ code: "no-permission", errno: 1 });
    expect(failure([...one, ...message([], { type: 4 })])).toMatchObject({ code: "unknown-outcome" });
  });

  test("a truncated or out-of-bounds message is an error and not a short dump", () => {
    const wrong: readonly (readonly number[])[] = [
      one.slice(0, -4),
      [...one, ...one.slice(0, 20)],
      [...one, ...one.slice(0, 7)],
      [...one, 0, 0, 0, 0, ...one.slice(4)],
      entryMessage(2, [UDP[0]]),
      entryMessage(2, []),
      message([2, 0]),
      message(UDP.flat(), { type: 0xa00 }),
      entryMessage(2, [nest(1, nest(1, attr(1, [10, 0, 0]), attr(2, [10, 0, 0, 1]))), UDP[1]]),
      entryMessage(2, [nest(1, nest(1, attr(1, [10, 0, 0, 1]))), UDP[1]]),
      entryMessage(10, UDP),
      entryMessage(2, [...UDP, attr(3, [1])]),
      entryMessage(2, [...UDP, attr(22, new Array<number>(20).fill(1))]),
      entryMessage(2, [...UDP, [3, 0, 1, 0]]),
      entryMessage(2, [...UDP, [255, 0, 3, 0, 1, 1, 1, 1]]),
    ];
    for (const bytes of wrong) expect([bytes, failure(bytes).code]).toEqual([bytes, "system"]);
  });
});

describe("errors of opening", () => {
  const openError = (errno: number): NativeError => addon.conntrackOpenError(Uint8Array.from(errorMessage(errno)));

  test("the kernel has no ctnetlink, or lacks the requests that exist since 3.5", () => {
    for (const errno of [22, 95]) {
      expect(openError(errno)).toMatchObject({ code: "no-conntrack", errno, action: "open" });
      expect(openError(errno).message).toMatch(/CONFIG_NF_CT_NETLINK.*modprobe nf_conntrack_netlink/);
    }
    expect(openError(93)).toMatchObject({ code: "no-conntrack", errno: 93 });
  });

  test("the caller has no rights, or another error occurs", () => {
    expect(openError(1)).toMatchObject({ code: "no-permission", errno: 1 });
    expect(openError(1).message).toContain("CAP_NET_ADMIN");
    expect(openError(12)).toMatchObject({ code: "system", errno: 12 });
  });
});

describe("requests", () => {
  interface Sent {
    readonly type: number;
    readonly flags: number;
    /** Top-level attributes, by number. */
    readonly attrs: ReadonlyMap<number, Buffer>;
  }

  function attrsOf(bytes: Buffer): Map<number, Buffer> {
    const found = new Map<number, Buffer>();
    for (let at = 0; at < bytes.length;) {
      const length = bytes.readUInt16LE(at);
      found.set(bytes.readUInt16LE(at + 2) & 0x3fff, bytes.subarray(at + 4, at + length));
      at += (length + 3) & ~3;
    }
    return found;
  }

  function sent(filter: ConntrackFilter, entries: readonly Uint8Array[] = []): Sent[] {
    const bytes = Buffer.from(addon.conntrackEncode(patterns(filter), Buffer.concat(entries)));
    const messages: Sent[] = [];
    for (let at = 0; at < bytes.length;) {
      const length = bytes.readUInt32LE(at);
      const attrs = attrsOf(bytes.subarray(at + 20, at + length));
      messages.push({ type: bytes.readUInt16LE(at + 4), flags: bytes.readUInt16LE(at + 6), attrs });
      at += (length + 3) & ~3;
    }
    return messages;
  }

  /** The filters that a dump sends to the kernel: flags of the tuple filters, and its other attributes. */
  function asked(filter: ConntrackFilter): { original: number; reply: number; others: readonly number[] } {
    const [{ attrs }] = sent(filter);
    const flags = attrs.get(25) === undefined ? new Map<number, Buffer>() : attrsOf(attrs.get(25) as Buffer);
    return {
      original: flags.get(1)?.readUInt32LE() ?? 0,
      reply: flags.get(2)?.readUInt32LE() ?? 0,
      others: [...attrs.keys()].filter((type) => type !== 1 && type !== 2 && type !== 25),
    };
  }

  test("a deletion always names its entry, because without a tuple it would empty the table", () => {
    const entries = [
      flow(),
      flow({ client: "fd00::1", vip: "fd00::2" }),
      ping("10.0.0.1", "10.0.0.2", 5),
      flow({}, { zone: 3 }),
    ];
    const messages = sent(
      {},
      entries.map((entry) => packNewEntry("test", entry)),
    );
    const deletions = messages.filter(({ type }) => type === 0x102);
    expect(deletions).toHaveLength(entries.length);
    for (const { attrs } of deletions) {
      expect(attrs.get(1)?.length).toBeGreaterThan(20);
      expect(attrs.get(12)?.length).toBe(4);
      expect(attrs.has(25)).toBe(false);
    }
    expect(deletions.map(({ attrs }) => attrs.has(18))).toEqual([false, false, false, true]);
  });

  const SOURCE = 1;
  const DESTINATION = 2;
  const PROTOCOL = 8;
  const SOURCE_PORT = 16;
  const DESTINATION_PORT = 32;
  const rows: readonly [ConntrackFilter, { original?: number; reply?: number; others?: readonly number[] }][] = [
    [{}, {}],
    [{ family: "ip" }, {}],
    [{ protocol: 17 }, {}],
    [{ protocol: 17, family: "ip" }, { original: PROTOCOL }],
    [{ protocol: 17, family: "ip6" }, { original: PROTOCOL }],
    [{ original: { destination: "10.96.0.10" } }, { original: DESTINATION }],
    [
      { original: { source: "10.0.0.1", destination: "10.96.0.10", destinationPort: 53 }, protocol: 17 },
      { original: SOURCE | DESTINATION | PROTOCOL | DESTINATION_PORT },
    ],
    // The kernel does not compare ports of SCTP.
    [
      { original: { destination: "10.96.0.10", destinationPort: 53 }, protocol: 132 },
      { original: DESTINATION | PROTOCOL },
    ],
    // The kernel ignores a port without a protocol.
    [{ original: { destination: "10.96.0.10", destinationPort: 53 } }, { original: DESTINATION }],
    [{ original: { source: "10.0.0.0/8" } }, {}],
    // The kernel inverts the comparison of IPv6 addresses.
    [
      { original: { destination: "fd96::a", destinationPort: 53 }, protocol: 17 },
      { original: PROTOCOL | DESTINATION_PORT },
    ],
    [{ original: { destination: "fd96::a" } }, {}],
    [
      { reply: { source: "10.1.0.3", sourcePort: 5353 }, protocol: 17 },
      { original: PROTOCOL, reply: SOURCE | PROTOCOL | SOURCE_PORT },
    ],
    [{ mark: { value: 1 } }, { others: [8, 21] }],
    [{ status: { value: 0, mask: 8 } }, { others: [3, 26] }],
    [{ zone: 0 }, { others: [18] }],
    [{ state: "ESTABLISHED", family: "ip" }, {}],
    [{ state: "SYN_SENT", family: "ip" }, { original: PROTOCOL }],
  ];
  test.each(rows)(
    "the kernel applies as much of the filter %j as it can",
    (filter, { original = 0, reply = 0, others = [] }) => {
      expect(asked(filter)).toEqual({ original, reply, others });
    },
  );
});
