/** The kernel's jhash (include/linux/jhash.h: Bob Jenkins' lookup3) in this machine's byte order. Pure. */

const INITIAL = 0xdeadbeef;

const rotate = (word: number, by: number): number => (word << by) | (word >>> (32 - by));

/** Returns 32 bits. */
export function jhash(data: Uint8Array, seed: number): number {
  const words = paddedWords(data);
  let a = (INITIAL + data.length + seed) | 0;
  let b = a;
  let c = a;
  let at = 0;
  for (let left = data.length; left > 12; left -= 12, at += 3) {
    a = (a + words[at]) | 0;
    b = (b + words[at + 1]) | 0;
    c = (c + words[at + 2]) | 0;
    a = ((a - c) ^ rotate(c, 4)) | 0;
    c = (c + b) | 0;
    b = ((b - a) ^ rotate(a, 6)) | 0;
    a = (a + c) | 0;
    c = ((c - b) ^ rotate(b, 8)) | 0;
    b = (b + a) | 0;
    a = ((a - c) ^ rotate(c, 16)) | 0;
    c = (c + b) | 0;
    b = ((b - a) ^ rotate(a, 19)) | 0;
    a = (a + c) | 0;
    c = ((c - b) ^ rotate(b, 4)) | 0;
    b = (b + a) | 0;
  }
  if (data.length === 0) return c >>> 0;
  a = (a + words[at]) | 0;
  b = (b + words[at + 1]) | 0;
  c = (c + words[at + 2]) | 0;
  c = ((c ^ b) - rotate(b, 14)) | 0;
  a = ((a ^ c) - rotate(c, 11)) | 0;
  b = ((b ^ a) - rotate(a, 25)) | 0;
  c = ((c ^ b) - rotate(b, 16)) | 0;
  a = ((a ^ c) - rotate(c, 4)) | 0;
  b = ((b ^ a) - rotate(a, 14)) | 0;
  c = ((c ^ b) - rotate(b, 24)) | 0;
  return c >>> 0;
}

/** The data as words, padded with 0 to whole blocks of three. */
function paddedWords(data: Uint8Array): Uint32Array {
  const bytes = new Uint8Array(Math.ceil(data.length / 12) * 12);
  bytes.set(data);
  return new Uint32Array(bytes.buffer);
}
