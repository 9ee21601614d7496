/**
 * No datagram from a socket, and no filter or entry from JS, crashes the process: it is accepted, or rejected with one
 * of our errors. FUZZ_SEED repeats a run.
 */
import { expect, test } from "vitest";
import { FUZZ_SEED } from "../support/fuzz-seed.ts";
import { plainEntry, unpackRecords } from "../../src/nft/conntrack/decode.js";
import { compileFilter, matchesPatterns, packPatterns, type Pattern } from "../../src/nft/conntrack/compile-filter.js";
import { FULL_BYTES, KEY_BYTES, packEntry, packIdentity, packNewEntry } from "../../src/nft/conntrack/encode.js";
import type { ConntrackEntry, ConntrackFilter, NewConntrackEntry } from "../../src/nft/conntrack/conntrack-table.js";
import { KernelError } from "../../src/nft/kernel/errors.js";
import { flow, ping } from "../support/conntrack-entries.ts";
import { attr, be, doneMessage, entryMessage, FULL, icmp4, tuple4, UDP } from "./conntrack-messages.js";
import { mutate, Random, Sabotage, spoil } from "./fuzz.js";
import { testAddon as addon } from "./test-addon.js";
import { atLength } from "../lab/length.ts";

const INPUTS = atLength({ short: 8_000, usual: 50_000, nightly: 500_000 });
const TIMEOUT_MS = 3_600_000;
console.log(`conntrack fuzz: FUZZ_SEED=${FUZZ_SEED}, ${INPUTS} inputs`);

const everything = packPatterns(compileFilter({}, "fuzz"));

/** Lets the event loop turn from time to time, so that vitest sees the worker alive. */
async function many(count: number, offset: number, input: (random: Random) => void): Promise<void> {
  for (let i = 0; i < count; i++) {
    const own = (FUZZ_SEED + offset + i * 4) >>> 0;
    try {
      input(new Random(own));
    } catch (error) {
      throw new Error(`input ${i}, seed ${own}`, { cause: error });
    }
    if (i % 1000 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Returns true if `call` succeeded, false if it was rejected with one of these codes. */
function taken(call: () => void, codes: readonly string[]): boolean {
  try {
    call();
    return true;
  } catch (error) {
    const { code } = error as { code?: string };
    if (error instanceof Sabotage) return false;
    if (error instanceof Error && code !== undefined && codes.includes(code)) return false;
    throw error;
  }
}

const v6 = (last: number): number[] => [0xfd, ...new Array<number>(14).fill(0), last];
const tuple6 = (type: number, from: number, to: number): number[] =>
  attr(type | 0x8000, [
    ...attr(1 | 0x8000, [...attr(3, v6(from)), ...attr(4, v6(to))]),
    ...attr(2 | 0x8000, [...attr(1, [17]), ...attr(2, be(2, 7)), ...attr(3, be(2, 9))]),
  ]);

/** A valid datagram as a starting point. */
function datagram(random: Random): Uint8Array {
  const kinds = [
    () => entryMessage(2, UDP),
    () => entryMessage(2, FULL),
    () => entryMessage(10, [tuple6(1, 1, 2), tuple6(2, 2, 1)]),
    () => entryMessage(2, [icmp4(1, "10.0.0.1", "10.0.0.2", 5, 8), icmp4(2, "10.0.0.2", "10.0.0.1", 5, 0)]),
    () => entryMessage(2, [tuple4(1, "10.0.0.1", "10.0.0.2", [1, 2]), ...FULL.slice(1)]),
    () => doneMessage(random.pick([0, 0, -4, 7])),
  ];
  return Uint8Array.from(Array.from({ length: random.below(5) + 1 }, () => random.pick(kinds)()).flat());
}

/** Reads every field. */
function look(entry: ConntrackEntry): void {
  const { original, reply, id, status, mark, zone } = plainEntry(entry);
  expect(Number.isInteger(id + status + mark + zone)).toBe(true);
  for (const { source, destination, sourcePort, destinationPort } of [original, reply]) {
    expect(source.length * destination.length).toBeGreaterThan(0);
    expect(sourcePort + destinationPort).toBeLessThanOrEqual(2 * 65_535);
  }
  JSON.stringify({ ...plainEntry(entry), counters: undefined });
}

test(
  "datagrams",
  async () => {
    let good = 0;
    await many(INPUTS, 0, (random) => {
      const bytes = random.chance(20) ? datagram(random) : mutate(datagram(random), random);
      const codes = ["system", "no-permission", "no-conntrack", "no-nftables", "unknown-outcome"];
      const whole = taken(() => {
        const piece = addon.conntrackDecode(everything, bytes);
        const entries = piece.blocks.flatMap(unpackRecords);
        expect(entries.length).toBeLessThanOrEqual(piece.seen);
        entries.forEach(look);
      }, codes);
      if (whole) good++;
    });
    expect(good).toBeGreaterThan(INPUTS * 0.02);
    expect(good).toBeLessThan(INPUTS * 0.9);
  },
  TIMEOUT_MS,
);

function randomBytes(length: number, random: Random): Uint8Array<ArrayBuffer> {
  const dense = random.chance(2);
  return Uint8Array.from({ length }, () => (dense || random.chance(8) ? random.pick([0, 255, random.below(256)]) : 0));
}

test(
  "records and patterns of arbitrary bytes",
  async () => {
    await many(INPUTS / 5, 1, (random) => {
      const list: Pattern[] = Array.from({ length: random.below(3) + 1 }, () => {
        const mask = randomBytes(KEY_BYTES, random);
        return { mask, value: randomBytes(KEY_BYTES, random).map((byte, i) => byte & mask[i]) };
      });
      const records = randomBytes(random.below(3) * FULL_BYTES, random);
      taken(() => addon.conntrackEncode(packPatterns(list), records), []);
      const odd = randomBytes(random.below(500), random);
      taken(() => addon.conntrackEncode(packPatterns(list), odd), ["invalid"]);
      taken(() => addon.conntrackEncode(odd, records), ["invalid"]);
      taken(() => addon.conntrackDecode(odd, records), ["invalid", "system", "no-permission", "unknown-outcome"]);
    });
  },
  TIMEOUT_MS,
);

test(
  "a filter matches the same entries in the addon as in TypeScript",
  async () => {
    let matched = 0;
    await many(INPUTS / 10, 2, (random) => {
      const port = random.below(3);
      const udp = tuple4(1, "10.0.0.7", random.pick(["10.96.0.10", "10.96.0.11"]), [40_000, port]);
      const bytes = Uint8Array.from(entryMessage(2, [udp, UDP[1], attr(8, be(4, random.below(4)))]));
      const list = compileFilter(
        {
          ...(random.chance(2) && {
            original: { destination: random.pick(["10.96.0.10", "10.96.0.10/31", "10.0.0.0/8"]) },
          }),
          ...(random.chance(2) && { mark: { value: random.below(4), mask: random.below(4) } }),
          ...(random.chance(2) && { reply: { sourcePort: 5353 } }),
          ...(random.chance(3) && { protocol: random.pick([6, 17]) }),
        },
        "fuzz",
      );
      const [block] = addon.conntrackDecode(everything, bytes).blocks;
      const [entry] = unpackRecords(block);
      const here = matchesPatterns(list, packEntry("fuzz", entry));
      expect(addon.conntrackDecode(packPatterns(list), bytes).blocks.length === 1).toBe(here);
      if (here) matched++;
    });
    expect(matched).toBeGreaterThan(0);
    expect(matched).toBeLessThan(INPUTS / 10);
  },
  TIMEOUT_MS,
);

const filters: readonly ConntrackFilter[] = [
  { family: "ip", protocol: 17, zone: 3, original: { destination: "10.96.0.10", destinationPort: 53 } },
  { state: "ESTABLISHED", mark: { value: 1, mask: 3 }, status: { value: 8, mask: 8 } },
  { reply: { source: "fd00::/16", sourcePort: 1 }, original: { source: "fd00::1", sourcePort: 3 } },
];
const entries: readonly NewConntrackEntry[] = [
  flow({ endpoint: "10.1.0.3" }, { mark: 7, zone: 3, labels: new Uint8Array(16) }),
  flow({ client: "fd00::1", vip: "fd00::2", protocol: 6 }, { state: "ESTABLISHED", status: 2 }),
  ping("10.0.0.1", "10.0.0.2", 7),
];

test(
  "filters and entries that are almost valid",
  async () => {
    const outcomes = new Map<string, number>();
    const count = (what: string, good: boolean): void => {
      const key = `${what} ${good ? "taken" : "refused"}`;
      outcomes.set(key, (outcomes.get(key) ?? 0) + 1);
    };
    /** Runs `read`, which may only throw our own errors or the getter's. */
    const attempt = (what: string, read: () => void): void => {
      try {
        read();
        count(what, true);
      } catch (error) {
        if (!(error instanceof Sabotage) && !(error instanceof KernelError && error.code === "invalid")) throw error;
        count(what, false);
      }
    };
    await many(INPUTS / 5, 3, (random) => {
      const filter = spoil(random.pick(filters), random) as ConntrackFilter;
      attempt("filter", () => addon.conntrackEncode(packPatterns(compileFilter(filter, "fuzz")), new Uint8Array(0)));
      const entry = spoil(random.pick(entries), random) as NewConntrackEntry;
      attempt("entry", () => addon.conntrackEncode(everything, packNewEntry("fuzz", entry)));
      const old = spoil({ ...random.pick(entries), id: 7 }, random) as ConntrackEntry;
      attempt("identity", () => packIdentity("fuzz", old));
    });
    for (const what of ["filter", "entry", "identity"]) {
      expect(outcomes.get(`${what} taken`)).toBeGreaterThan(0);
      expect(outcomes.get(`${what} refused`)).toBeGreaterThan(0);
    }
  },
  TIMEOUT_MS,
);
