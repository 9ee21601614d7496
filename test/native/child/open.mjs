/** Opens a connection and prints the error. */
import { addon, errorOf, report } from "./addon.mjs";

report(await errorOf(() => addon.open()));
