/** The addon itself, for child processes that measure it or drop rights. */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const built = fileURLToPath(new URL("../../../build/Release/nft_proxier.node", import.meta.url));
export const addon = createRequire(import.meta.url)(process.env.NFT_PROXIER_ADDON ?? built);

/** Prints the result as JSON, as the last line. */
export function report(value) {
  console.log(JSON.stringify(value));
}

/** Returns the code and message of an error that a function throws or rejects with. */
export async function errorOf(call) {
  try {
    await call();
    return { code: "none", message: "" };
  } catch (error) {
    return { code: error.code, message: error.message, errno: error.errno };
  }
}

/** Returns a batch of operations, read to the end. */
export function prepared(ops, options) {
  const batch = addon.createBatch(ops, options);
  while (!addon.prepareBatch(batch, 1000));
  return batch;
}

/** A table with a set of `count` 12-byte keys: the shape of a service's address, protocol and port. */
export function load(count, table = "load") {
  const ref = { family: "ip", table };
  const bytes = new Uint8Array(count * 12);
  const view = new DataView(bytes.buffer);
  for (let i = 0; i < count; i++) {
    view.setUint32(i * 12, 0x0a000000 + i);
    view.setUint8(i * 12 + 4, 6);
    view.setUint16(i * 12 + 8, 80);
  }
  const set = { set: "s", flags: 0, keyType: (7 << 12) | (12 << 6) | 13, keyLen: 12, size: count };
  return {
    ref,
    set,
    ops: [
      { op: "add", kind: "table", ...ref },
      { op: "add", kind: "set", ...ref, ...set },
      { op: "add", kind: "elements", ...ref, set: "s", elements: { count, keyLen: 12, dataLen: 0, bytes } },
    ],
  };
}
