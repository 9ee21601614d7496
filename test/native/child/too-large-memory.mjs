/**
 * Batches far larger than can be sent, by the bytes of their elements; says with what they fail and how far resident memory
 * rose above what it was before, at its peak. In a user namespace the send buffer cannot be raised, elsewhere up to 2 GiB.
 */
import { writeFileSync } from "node:fs";
import { addon, errorOf, prepared, report } from "./addon.mjs";
import { largestBuffer, memory } from "./measure.mjs";

const ref = { family: "ip", table: "large" };

/** Bytes that an element of four comes to, and the least that one of four with flags does: a catch-all has no key. */
const [BYTES, LEAST] = [16, 12];
const counts = {
  plain: [Math.ceil((32 * largestBuffer()) / BYTES), false],
  withFlags: [Math.ceil((2 * largestBuffer()) / (BYTES + LEAST)), true],
  huge: [Math.ceil(2 ** 31 / BYTES), false],
};

function elements(count, flags) {
  // Pages that nothing reads are not there: what is measured is what the addon does.
  const bytes = new Uint8Array(count * (flags ? 8 : 4));
  return { op: "add", kind: "elements", ...ref, set: "s", elements: { count, keyLen: 4, dataLen: 0, flags, bytes } };
}

const connection = await addon.open();
const outcome = {};
for (const name of process.argv.slice(2)) {
  const [count, flags] = counts[name];
  const ops = [{ op: "add", kind: "table", ...ref }, elements(count, flags)];
  globalThis.gc();
  // 5: the peak begins anew.
  writeFileSync("/proc/self/clear_refs", "5");
  const before = memory("VmRSS");
  const { code, message } = await errorOf(() => addon.commit(connection, prepared(ops)));
  outcome[name] = { code, message, grown: memory("VmHWM") - before, bytes: count * BYTES };
}
outcome.tables = (await addon.tables(connection)).length;
report(outcome);
