/** Options that several commands have, and readers of options' values. */
import { LOG_LEVELS, type LogLevel } from "../base/logger.js";
import { parseDuration } from "../config/duration.js";
import { BadValue, flag } from "./read-flags.js";

/** @param formats the default is the first. */
export const output = <const F extends readonly [string, ...string[]]>(...formats: F) =>
  flag("-o, --output <format>", "output format", { choices: formats, default: formats[0] });
export const logLevel = (initial: LogLevel) =>
  flag("--log-level <level>", "minimum level of the messages on stderr", { choices: LOG_LEVELS, default: initial });
export const SOCKET = flag(
  "--socket <path>",
  "the daemon's control socket (default: the one of this network namespace)",
);
export const NO_HEADERS = flag("--no-headers", "omit the column titles");

export function positive(text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new BadValue("must be a number of at least 1");
}

/** Returns milliseconds. */
export function duration(text: string): number {
  const ms = parseDuration(text);
  if (ms !== undefined && ms >= 0) return ms;
  throw new BadValue("must be a duration such as 30s or 5m, or 0");
}
