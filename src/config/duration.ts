const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  "\u00b5s": 1e-3,
  "\u03bcs": 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

const PART = /(\d+\.?\d*|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)/y;

/**
 * Milliseconds of a duration in Go's format ("1h2m3.5s", "300ms", "0"; time.ParseDuration). Returns undefined if `text` is not
 * a duration.
 */
export function parseDuration(text: string): number | undefined {
  const sign = /^[+-]?/.exec(text)?.[0] ?? "";
  const factor = sign === "-" ? -1 : 1;
  if (text.slice(sign.length) === "0") return 0;
  let total = 0;
  PART.lastIndex = sign.length;
  for (let end = sign.length; ; end = PART.lastIndex) {
    const part = PART.exec(text);
    if (part === null) return end === text.length && end > sign.length ? factor * total : undefined;
    total += Number(part[1]) * (UNIT_MS[part[2] ?? ""] ?? NaN);
  }
}

/** Go's format ("1m30s", "1.5s", "300ms", "0s"; time.Duration.String), to the nanosecond. */
export function formatDuration(ms: number): string {
  if (ms < 0) return `-${formatDuration(-ms)}`;
  const ns = Math.round(ms * 1e6);
  if (ns === 0) return "0s";
  if (ns < 1e3) return `${ns}ns`;
  if (ns < 1e6) return `${ns / 1e3}\u00b5s`;
  if (ns < 1e9) return `${ns / 1e6}ms`;
  const minutes = Math.floor(ns / 6e10);
  const seconds = `${(ns - minutes * 6e10) / 1e9}s`;
  if (minutes === 0) return seconds;
  return minutes < 60 ? `${minutes}m${seconds}` : `${Math.floor(minutes / 60)}h${minutes % 60}m${seconds}`;
}
