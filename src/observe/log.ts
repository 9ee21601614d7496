import { type Logger, pino } from "pino";

export type { Logger } from "pino";

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Structured log on stderr: JSON lines, or one readable line each on a terminal. stdout stays free for output. */
export async function createLogger(level: LogLevel): Promise<Logger> {
  if (!process.stderr.isTTY) return pino({ level, base: null }, pino.destination({ dest: 2, sync: true }));
  // Only a person at a terminal pays for the pretty printer.
  const { default: pretty } = await import("pino-pretty");
  return pino({ level, base: null }, pretty({ destination: 2, sync: true, translateTime: "SYS:HH:MM:ss.l" }));
}
