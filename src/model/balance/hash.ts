import { type EndpointList, wordsOf } from "../../objects/endpoint-list.js";

/** A hash of each endpoint's address and port. Signed, because V8 keeps such numbers unboxed. */
export function hashesOf(list: EndpointList): Int32Array {
  // Int32Array.from would take ten times as long.
  const hashes = new Int32Array(list.length);
  for (let i = 0; i < hashes.length; i++) hashes[i] = hashOf(list, i);
  return hashes;
}

function hashOf(list: EndpointList, index: number): number {
  const count = wordsOf(list.family);
  let hash = list.port(index);
  for (let i = 0; i < count; i++) hash = Math.imul(mix(hash) ^ list.words[index * count + i], 0x9e3779b1);
  return mix(hash) | 0;
}

/** The number at `index` of the hash's pseudo-random sequence: 32 bits. */
export function draw(hash: number, index: number): number {
  return mix(mix(hash ^ Math.imul(index, 0x9e3779b1)) + hash);
}

/** MurmurHash3's last step: each input bit changes half of the output bits. */
function mix(number: number): number {
  let hash = number ^ (number >>> 16);
  hash = Math.imul(hash, 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
