import { type Level, pino } from "pino";
import { type Logger, loggerOptions } from "../../src/base/logger.js";

/** One line of the log. */
export interface LogLine {
  readonly level: Level;
  readonly msg: string;
  readonly [field: string]: unknown;
}

export const SILENT: Logger = pino(loggerOptions("silent"));

/** A log whose lines are added to `lines`, as the program writes them. */
export function keptIn(lines: { push(line: LogLine): unknown }, level: Level | "verbose" = "debug"): Logger {
  return pino(loggerOptions(level), { write: (line: string) => void lines.push(JSON.parse(line) as LogLine) });
}

/** Whether the line is at least this severe. */
export function isAtLeast({ level }: Pick<LogLine, "level">, least: Level): boolean {
  return pino.levels.values[level] >= pino.levels.values[least];
}
