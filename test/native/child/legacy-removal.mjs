/** Removes the chains whose names begin with KUBE- from the nat table of this namespace. Argument: the lock file. */
import { addon, errorOf, report } from "./addon.mjs";

const connection = await addon.open();
const own = { entries: ["KUBE-SERVICES"], others: [], prefixes: ["KUBE-"] };
const options = { lockFile: process.argv[2], mostBytes: 2 ** 30 };
let outcome;
const error = await errorOf(async () => {
  outcome = await addon.removeLegacyChains(connection, { family: "ip", table: "nat" }, own, options);
});
report({ outcome, ...error });
