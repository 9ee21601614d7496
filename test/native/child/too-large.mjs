/** Commits a batch too large for a send buffer that cannot be raised, and then a small one. */
import { addon, errorOf, load, prepared, report } from "./addon.mjs";
import { largestBuffer } from "./measure.mjs";

const connection = await addon.open();
// 24 bytes per element.
const large = await errorOf(() => addon.commit(connection, prepared(load(Math.ceil(largestBuffer() / 20)).ops)));
const tables = await addon.tables(connection);
const small = await addon.commit(connection, prepared(load(1000).ops));
report({ large, tables: tables.length, small: small.messages });
