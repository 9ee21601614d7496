/** Seeded nonsense: values that no field expects, and almost valid bytes. Independent of the program's own code. */
import { everyExpr } from "./samples.ts";

/** Numbers from a seed (mulberry32): the same seed gives the same run. */
export class Random {
  #state: number;
  constructor(seed: number) {
    this.#state = seed >>> 0;
  }
  /** 0 <= x < below, an integer. */
  below(below: number): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  }
  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)];
  }
  chance(oneIn: number): boolean {
    return this.below(oneIn) === 0;
  }
}

/** Thrown by a hostile getter. */
export class Sabotage extends Error {}

function detached(): Uint8Array {
  const bytes = new Uint8Array(64);
  structuredClone(bytes, { transfer: [bytes.buffer] });
  return bytes;
}

/** The library's types do not know resizable buffers yet. */
const ResizableArrayBuffer = ArrayBuffer as new (length: number, options: { maxByteLength: number }) => ArrayBuffer;

/** Values that no field expects. They are created for each use, because some of them change. */
export const junk: readonly ((random: Random) => unknown)[] = [
  () => undefined,
  () => null,
  () => NaN,
  () => Infinity,
  () => -1,
  () => -0,
  () => 1.5,
  () => 2 ** 31,
  () => 2 ** 32 - 1,
  () => 2 ** 32,
  () => 2 ** 53,
  () => 1e300,
  () => -1n,
  () => 2n ** 64n,
  () => 2n ** 64n - 1n,
  () => 2n ** 200n,
  () => "",
  () => "\0",
  () => "a\0b",
  () => "é".repeat(128),
  () => "\ud800",
  () => "x".repeat(255),
  () => "x".repeat(256),
  () => "x".repeat(100_000),
  () => true,
  () => Symbol("s"),
  () => () => undefined,
  () => ({}),
  () => [],
  () => [[]],
  () => new Array(5),
  () => Object.create(null) as unknown,
  () => new Proxy([], {}),
  () => new Date(NaN),
  () => detached(),
  () => new Uint8Array(0),
  (random) => new Uint8Array(random.below(300)),
  () => new Uint8Array(70_000),
  () => new Uint16Array(4),
  () => new DataView(new ArrayBuffer(8)),
  () => new ArrayBuffer(8),
  () => Buffer.from("buffer"),
  () => new Uint8Array(new SharedArrayBuffer(16)),
  () => new Uint8Array(new ResizableArrayBuffer(8, { maxByteLength: 64 })),
  () => new Uint8ClampedArray(4),
  (random) => random.below(2 ** 32),
  (random) => BigInt(random.below(2 ** 32)),
  (random) => random.pick(everyExpr),
  (random) => Array.from({ length: random.below(200) }, () => random.pick(everyExpr)),
  (random) => ({ verdict: random.pick(["jump", "goto", "accept", "nonsense"]), chain: random.pick(["c", "", "\0"]) }),
];

/** Replaces, removes or booby-traps one field somewhere inside `value`. */
export function spoil(value: unknown, random: Random, depth = 0): unknown {
  if (typeof value !== "object" || value === null || value instanceof Uint8Array || depth > 5) {
    return random.pick(junk)(random);
  }
  if (Array.isArray(value)) {
    const copy: unknown[] = [...(value as unknown[])];
    if (copy.length === 0 || random.chance(6)) copy.push(random.pick(junk)(random));
    else {
      const at = random.below(copy.length);
      copy[at] = spoil(copy[at], random, depth + 1);
    }
    return copy;
  }
  // Do not spread: that would trigger an existing trap.
  const copy = Object.defineProperties({}, Object.getOwnPropertyDescriptors(value)) as Record<string, unknown>;
  const keys = Object.keys(copy);
  const key = keys.length === 0 || random.chance(20) ? "extra" : random.pick(keys);
  if (Object.getOwnPropertyDescriptor(copy, key)?.get !== undefined) return copy;
  if (random.chance(8)) delete copy[key];
  else if (random.chance(30)) {
    const get = (): never => {
      throw new Sabotage();
    };
    Object.defineProperty(copy, key, { enumerable: true, get });
  } else copy[key] = random.chance(2) ? random.pick(junk)(random) : spoil(copy[key], random, depth + 1);
  return copy;
}

/** An NLMSG_ERROR with a text and an offset, for the message `seq`. */
export function errorReply(seq: number, offset: number, errno = -2): Uint8Array {
  const text = "No such file";
  const bytes = Buffer.alloc(16 + 20 + 4 + 16 + 8);
  bytes.writeUInt32LE(bytes.length, 0);
  bytes.writeUInt16LE(2, 4);
  // NLM_F_CAPPED | NLM_F_ACK_TLVS
  bytes.writeUInt16LE(0x300, 6);
  bytes.writeUInt32LE(seq, 8);
  bytes.writeInt32LE(errno, 16);
  bytes.writeUInt32LE(20, 20);
  bytes.writeUInt32LE(seq, 28);
  bytes.writeUInt16LE(4 + text.length + 1, 36);
  bytes.writeUInt16LE(1, 38);
  bytes.write(text, 40);
  bytes.writeUInt16LE(8, 56);
  bytes.writeUInt16LE(2, 58);
  bytes.writeUInt32LE(offset, 60);
  return bytes;
}

/** Flips, cuts, repeats and rewrites lengths of a buffer. */
export function mutate(bytes: Uint8Array, random: Random): Uint8Array {
  let copy = Uint8Array.from(bytes);
  for (let i = random.below(8) + 1; i > 0 && copy.length > 0; i--) {
    const at = random.below(copy.length);
    switch (random.below(7)) {
      case 0:
        copy[at] ^= 1 << random.below(8);
        break;
      case 1:
        copy[at] = random.below(256);
        break;
      case 2:
        // A likely position of a length.
        copy[at & ~3] = random.pick([0, 1, 3, 4, 5, 8, 255]);
        break;
      case 3:
        copy[(at & ~3) + 1] = random.below(256);
        break;
      case 4:
        copy = copy.slice(0, at);
        break;
      case 5:
        copy = Uint8Array.from([...copy.subarray(0, at), ...copy.subarray(random.below(copy.length))].slice(0, 4096));
        break;
      default:
        copy.fill(random.below(256), at, at + random.below(9));
    }
  }
  // An unaligned view.
  if (!random.chance(3)) return copy;
  const shifted = new Uint8Array(copy.length + 1).subarray(1);
  shifted.set(copy);
  return shifted;
}
