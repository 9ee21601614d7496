/** Numbers in this machine's byte order, which the kernel uses for marks, indices and flags, and bytes as words of that order. */
const HOST_LITTLE = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

export function readU32(bytes: Uint8Array, at: number): number {
  return HOST_LITTLE
    ? (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0
    : ((bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3]) >>> 0;
}

export function writeU32(bytes: Uint8Array, at: number, value: number): void {
  for (let i = 0; i < 4; i++) bytes[at + i] = value >>> (8 * (HOST_LITTLE ? i : 3 - i));
}

const [LOW, HIGH] = HOST_LITTLE ? [0, 1] : [1, 0];

export function readU64(words: Int32Array, at: number): number {
  return (words[at + LOW] >>> 0) + (words[at + HIGH] >>> 0) * 2 ** 32;
}

export function writeU64(words: Int32Array, at: number, value: number): void {
  words[at + LOW] = value | 0;
  words[at + HIGH] = Math.floor(value / 2 ** 32);
}

/** Number of words that hold this many bytes. Keys or data of 1 or 2 bytes are padded with zeros. */
export function wordsFor(bytes: number): number {
  return (bytes + 3) >>> 2;
}

export function bytesAt(words: Int32Array, at: number, length: number): Uint8Array {
  return new Uint8Array(words.buffer, words.byteOffset + at * 4, length);
}
