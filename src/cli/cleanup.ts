import { createLogger, type Logger, type LogLevel } from "../observe/log.js";
import { TABLE_NAME } from "../ruleset/names.js";
import { Table } from "../table/index.js";
import { MONOTONIC_CLOCK, openKernel } from "./setup.js";

/** `cleanup`: removes the tables of both families; fine when there are none. */
export async function cleanupCommand(options: { readonly logLevel: LogLevel }): Promise<number> {
  return cleanupTables(await createLogger(options.logLevel));
}

/** The same with a log: 0 when nothing of ours is left. */
export async function cleanupTables(log: Logger): Promise<number> {
  const kernel = await openKernel();
  let code = 0;
  try {
    for (const family of ["ip", "ip6"] as const) {
      const table = new Table(kernel, { family, name: TABLE_NAME, clock: MONOTONIC_CLOCK });
      try {
        const { transactions } = await table.destroy();
        log.info({ family, table: TABLE_NAME }, transactions === 0 ? "no table to remove" : "table removed");
      } catch (error) {
        log.error({ family, table: TABLE_NAME, err: error }, "the table could not be removed");
        code = 1;
      } finally {
        table.close();
      }
    }
    return code;
  } finally {
    await kernel.close();
  }
}
