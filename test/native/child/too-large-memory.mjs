/**
 * Commits batches that are far too large to send, judging by the bytes of their elements. Prints the errors, and how
 * far resident memory rose above its former size, at its peak. In a user namespace the send buffer cannot be raised,
 * elsewhere up to 2 GiB.
 */
import { writeFileSync } from "node:fs";
import { addon, errorOf, prepared, report } from "./addon.mjs";
import { largestBuffer, memory } from "./measure.mjs";

const ref = { family: "ip", table: "large" };

/** Encoded bytes of a four-byte element, and the minimum for one with flags: a catch-all has no key. */
const [BYTES, LEAST] = [16, 12];
/** The number of elements, whether they have flags, and whether the addon gets as far as reading them. */
const counts = {
  plain: [Math.ceil((32 * largestBuffer()) / BYTES), false, true],
  withFlags: [Math.ceil((2 * largestBuffer()) / (BYTES + LEAST)), true, true],
  huge: [Math.ceil(2 ** 31 / BYTES), false, false],
};

function elements(count, flags, read) {
  const bytes = new Uint8Array(count * (flags ? 8 : 4));
  // Pages are allocated when they are used, even by a read: do that here, so that only the addon's additions are
  // measured.
  if (read) bytes.fill(0);
  return { op: "add", kind: "elements", ...ref, set: "s", elements: { count, keyLen: 4, dataLen: 0, flags, bytes } };
}

const connection = await addon.open();
const outcome = {};
for (const name of process.argv.slice(2)) {
  const [count, flags, read] = counts[name];
  const ops = [{ op: "add", kind: "table", ...ref }, elements(count, flags, read)];
  globalThis.gc();
  // 5 resets the peak.
  writeFileSync("/proc/self/clear_refs", "5");
  const before = memory("VmRSS");
  const { code, message } = await errorOf(() => addon.commit(connection, prepared(ops)));
  outcome[name] = { code, message, grown: memory("VmHWM") - before, bytes: count * BYTES };
}
outcome.tables = (await addon.tables(connection)).length;
report(outcome);
