/** Structured log, one line per message: JSON, or logfmt for people. Fields have the names that Kubernetes components use. */
import { constants, openSync } from "node:fs";
import type { Level as PinoLevel, Logger as PinoLogger, LoggerOptions } from "pino";
import { LineWriter } from "./line-writer.js";
import type { LogTail } from "./log-tail.js";
import { printable, printableLines } from "./printable.js";
import { redactTexts } from "./redact.js";

/** Between info and debug: klog's -v=2. These lines have the level info. */
type Level = PinoLevel | "verbose";
export type Logger = PinoLogger<"verbose">;

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** "": text on a terminal, otherwise JSON. */
type LogFormat = "" | "text" | "json";

/** klog's verbosity of each level below warning. */
const VERBOSITY: Readonly<Partial<Record<Level, number>>> = { info: 0, verbose: 2, debug: 4, trace: 6 };
/** SGR codes of the levels on a terminal. */
const COLOURS: Readonly<Record<string, number>> = { trace: 90, debug: 90, info: 32, warn: 33, error: 31 };

/** The level for one of klog's verbosities (-v): 0 and 1 info, 2 and 3 verbose, 4 and 5 debug, 6 and up trace. */
export function levelOf(verbosity: number): LogLevel | "verbose" {
  if (verbosity >= 6) return "trace";
  if (verbosity >= 4) return "debug";
  return verbosity >= 2 ? "verbose" : "info";
}

/** Splits a service's "namespace/name" into log fields. */
export function serviceFields(name: string): { readonly namespace: string; readonly service: string } {
  const slash = name.indexOf("/");
  return { namespace: name.slice(0, Math.max(0, slash)), service: name.slice(slash + 1) };
}

/** Line format: `level` as a word, `v`, `ts` in RFC 3339, `msg`, and `err` with the error's message. */
export function loggerOptions(level: Level | "silent"): LoggerOptions<"verbose"> {
  return {
    level,
    customLevels: { verbose: 25 },
    base: null,
    timestamp: () => `,"ts":"${new Date().toISOString()}"`,
    formatters: {
      level: (label) => {
        const v = VERBOSITY[label as Level];
        return { level: label === "verbose" ? "info" : label, v };
      },
      log: ({ err, ...fields }) =>
        redactTexts(err instanceof Error ? { ...fields, ...errorFields(err) } : { ...fields, err }),
    },
  };
}

/** Logs the stack of an error without a code: nobody expected this error, so its origin helps more than its message. */
function errorFields(error: Error): Record<string, unknown> {
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
  return { err: error.message, ...(code === undefined ? { stack: error.stack } : { code }) };
}

/**
 * A logger that writes to stderr. stdout stays free for output.
 * @param tail receives every line as it is written, without colours.
 */
export async function createLogger(
  level: LogLevel | "verbose",
  format: LogFormat = "",
  tail?: LogTail,
): Promise<Logger> {
  // Loaded here, because help and version output need only the names of the levels.
  const { pino } = await import("pino");
  // Opening the stream makes a pipe or socket non-blocking. Node itself writes only to the stream.
  const { isTTY } = process.stderr;
  const stderr = new LineWriter(isTTY ? openTerminal() : STDERR, (lines) =>
    log.warn({ lines }, "log lines were dropped, because stderr did not accept them"),
  );
  const json = format === "json" || (format === "" && !isTTY);
  // https://no-color.org
  const coloured = isTTY && (process.env["NO_COLOR"] ?? "") === "" && process.env["TERM"] !== "dumb";
  const write = (line: string): void => {
    const plain = json ? printableLines(line) : logfmt(line);
    tail?.keep(plain);
    stderr.write(coloured && !json ? logfmt(line, coloured) : plain);
  };
  const log = pino(loggerOptions(level), { write });
  return log;
}

const STDERR = 2;

/** The terminal of stderr again, non-blocking: Ctrl-S stops its output. Other programs use its own descriptor too. */
function openTerminal(): number {
  try {
    return openSync(`/proc/self/fd/${STDERR}`, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch {
    return STDERR;
  }
}

/**
 * Turns a line of JSON into a line of logfmt: `ts=… level=info msg=synced family=ip`; fields of objects become
 * `object.field`.
 */
export function logfmt(json: string, coloured = false): string {
  const { ts, level, v: _, msg, ...fields } = JSON.parse(json) as Record<string, unknown>;
  const name = String(level);
  const shown = coloured ? `\u001b[${COLOURS[name] ?? 0}m${name}\u001b[0m` : name;
  return `${[`ts=${String(ts)}`, `level=${shown}`, ...pairs({ msg, ...fields })].join(" ")}\n`;
}

function pairs(fields: Readonly<Record<string, unknown>>, prefix = ""): string[] {
  return Object.entries(fields).flatMap(([key, value]) => {
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      return pairs(value as Record<string, unknown>, `${prefix}${key}.`);
    }
    return `${printable(prefix + key)}=${quoted(value)}`;
  });
}

function quoted(value: unknown): string {
  const text = Array.isArray(value)
    ? value.map((one: unknown) => (typeof one === "string" ? one : JSON.stringify(one))).join(",")
    : String(value);
  return /^[^\s"=\\\p{C}]+$/u.test(text) ? text : printable(JSON.stringify(text));
}
