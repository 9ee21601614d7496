/** Opens the conntrack table and says with what it failed. */
import { addon, errorOf, report } from "./addon.mjs";

report(await errorOf(() => addon.conntrackOpen()));
