import type { Logger } from "pino";

export type { Logger } from "pino";

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** "": text on a terminal, else JSON. */
export type LogFormat = "" | "text" | "json";

/** The level that stands for a verbosity of klog's (-v): 0 to 3 info, 4 and 5 debug, 6 and up trace. */
export function levelOf(verbosity: number): LogLevel {
  if (verbosity >= 6) return "trace";
  return verbosity >= 4 ? "debug" : "info";
}

/** Structured log on stderr: JSON lines, or one readable line each. stdout stays free for output. */
export async function createLogger(level: LogLevel, format: LogFormat = ""): Promise<Logger> {
  // Help and versions need the names of the levels alone.
  const { pino } = await import("pino");
  const terminal = process.stderr.isTTY;
  if (format === "json" || (format === "" && !terminal)) {
    return pino({ level, base: null }, pino.destination({ dest: 2, sync: true }));
  }
  // Only who reads text pays for the pretty printer.
  const { default: pretty } = await import("pino-pretty");
  const options = { destination: 2, sync: true, colorize: terminal, translateTime: "SYS:yyyy-mm-dd HH:MM:ss.l" };
  return pino({ level, base: null }, pretty(terminal ? { ...options, translateTime: "SYS:HH:MM:ss.l" } : options));
}
