import { type Level, pino } from "pino";
import type { Logger } from "../../src/base/logger.js";

/** One line of the log. */
export interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly [field: string]: unknown;
}

export const SILENT: Logger = pino({ level: "silent" });

/** A log whose lines are added to `lines`. */
export function keptIn(lines: { push(line: LogLine): unknown }, level: Level = "debug"): Logger {
  return pino({ level, base: null }, { write: (line: string) => void lines.push(JSON.parse(line) as LogLine) });
}
