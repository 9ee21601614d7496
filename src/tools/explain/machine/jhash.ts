/** The kernel's jhash (include/linux/jhash.h: Bob Jenkins' lookup3) in this machine's byte order. Pure. */

const INITIAL = 0xdeadbeef;

const rotate = (word: number, by: number): number => (word << by) | (word >>> (32 - by));

/** __jhash_mix, by the indexes of the words a, b and c: x -= y; x ^= rotate(y, by); y += z. */
const MIX = [
  [0, 2, 1, 4],
  [1, 0, 2, 6],
  [2, 1, 0, 8],
  [0, 2, 1, 16],
  [1, 0, 2, 19],
  [2, 1, 0, 4],
] as const;
/** __jhash_final: x ^= y; x -= rotate(y, by). */
const FINAL = [
  [2, 1, 14],
  [0, 2, 11],
  [1, 0, 25],
  [2, 1, 16],
  [0, 2, 4],
  [1, 0, 14],
  [2, 1, 24],
] as const;

/** Returns 32 bits. */
export function jhash(data: Uint8Array, seed: number): number {
  // The data as words, padded with 0 to whole blocks of three.
  const padded = new Uint8Array(Math.ceil(data.length / 12) * 12);
  padded.set(data);
  const words = new Uint32Array(padded.buffer);
  // Sums wrap around.
  const state = new Uint32Array(3).fill(INITIAL + data.length + seed);
  for (let at = 0; at < words.length; at += 3) {
    for (let i = 0; i < 3; i++) state[i] += words[at + i];
    if (at + 3 === words.length)
      for (const [x, y, by] of FINAL) state[x] = (state[x] ^ state[y]) - rotate(state[y], by);
    else {
      for (const [x, y, z, by] of MIX) {
        state[x] = (state[x] - state[y]) ^ rotate(state[y], by);
        state[y] += state[z];
      }
    }
  }
  return state[2];
}
