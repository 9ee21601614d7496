/** Opens the conntrack table and prints the error. */
import { addon, errorOf, report } from "./addon.mjs";

report(await errorOf(() => addon.conntrackOpen()));
