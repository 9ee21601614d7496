/** Commits a batch too large for a send buffer that cannot be raised, then a small one. */
import { readFileSync } from "node:fs";
import { addon, errorOf, load, prepared, report } from "./addon.mjs";

/** The kernel doubles what is asked for, up to net.core.wmem_max; 212992 is its default where it is not shown. */
function largestBuffer() {
  try {
    return 2 * Number(readFileSync("/proc/sys/net/core/wmem_max", "utf8"));
  } catch {
    return 2 * 212_992;
  }
}

const connection = await addon.open();
// 24 bytes an element.
const large = await errorOf(() => addon.commit(connection, prepared(load(Math.ceil(largestBuffer() / 20)).ops)));
const tables = await addon.tables(connection);
const small = await addon.commit(connection, prepared(load(1000).ops));
report({ large, tables: tables.length, small: small.messages });
