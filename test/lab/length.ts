/**
 * How long a run may take. test/run.ts sets the environment variable TEST_LENGTH: `npm test` is short, `npm run test:nightly` is long, and
 * all others are usual.
 */
const LENGTHS = ["short", "usual", "nightly"] as const;

const asked = process.env["TEST_LENGTH"] ?? "usual";
const length = LENGTHS.find((name) => name === asked);
if (length === undefined) throw new Error(`TEST_LENGTH is ${asked}; it must be one of ${LENGTHS.join(", ")}`);

export const isShort = length === "short";

/** Selects a number of attempts, of objects, or a duration. */
export function atLength<T>(values: { readonly short: T; readonly usual: T; readonly nightly?: T }): T {
  return values[length!] ?? values.usual;
}

/** In a short run, returns one row of `every`, starting with the first; otherwise all rows. */
export function someOf<T>(rows: readonly T[], every: number): readonly T[] {
  return isShort ? rows.filter((_, index) => index % every === 0) : rows;
}

/** Test files, relative to test/, that a short run ignores. */
export const LONG_FILES: readonly string[] = [
  "conformance/long-lists",
  "packets/change-overs",
  "packets/conntrack-api",
  "packets/conntrack-cli",
  "packets/conntrack-entries",
  "packets/diagnose",
  "packets/endurance",
  "packets/explain-around",
  "packets/hostile-text",
  "packets/leftovers-legacy",
  "packets/overlap-service-cidr",
  "packets/two-proxiers",
  "packets/preflight",
  "packets/replace",
  "packets/status-firewalls",
];
