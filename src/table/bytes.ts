/** Numbers in the byte order of this machine, in which the kernel keeps marks, indices and flags. */
const HOST_LITTLE = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

/** Reads 4 bytes in host order. */
export function readU32(bytes: Uint8Array, at: number): number {
  return HOST_LITTLE
    ? (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0
    : ((bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3]) >>> 0;
}

/** Writes 4 bytes in host order. */
export function writeU32(bytes: Uint8Array, at: number, value: number): void {
  for (let i = 0; i < 4; i++) bytes[at + i] = value >>> (8 * (HOST_LITTLE ? i : 3 - i));
}

/** For a few bytes a loop beats `set` of a `subarray`, which makes an object. */
export function copyBytes(from: Uint8Array, fromAt: number, to: Uint8Array, toAt: number, length: number): void {
  for (let i = 0; i < length; i++) to[toAt + i] = from[fromAt + i];
}
