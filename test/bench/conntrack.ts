/**
 * Conntrack with 200,000 entries, each part in its own process and network namespace. Compares a full pass with a bare
 * dump in C++. Also measures the deletion of a changed VIP's leftovers, and how much the reconciler's work delays
 * changes of services that are written meanwhile.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildHelper } from "../lab/build.ts";
import { type Aim, atMost } from "./aim.ts";
import { fixed, median, quantile } from "./lib.ts";

const ENTRIES = 200_000;
const ROUNDS = 10;
/** Changes of each kind in a round. */
const CHANGES = 200;

interface Timed {
  readonly ms: number;
  readonly deleted: number;
}

/** A change of one endpoint, from the object to the kernel's acknowledgement, without the time inside the kernel. */
export interface Change {
  readonly totalMs: number;
  readonly ownMs: number;
}

export interface ConntrackResult {
  readonly entries: number;
  /** Resident memory that the first full pass adds at its peak, bytes. */
  readonly grown: number;
  readonly passes: readonly {
    readonly bareMs: number;
    /** Time of `dump` with a callback that does nothing, and with one that groups by VIP. */
    readonly passMs: number;
    readonly groupedMs: number;
    /** The longest time that the event loop was held during the grouping. */
    readonly blockedMs: number;
  }[];
  /** Deletion of 100 entries of a VIP: with `deleteMatching`, and with a dump and `deleteAll`. */
  readonly matching: Timed;
  readonly listed: Timed;
  /** 100 entries selected by a prefix, for which the kernel has no filter. */
  readonly prefix: Timed;
  /** All remaining entries. */
  readonly flushed: Timed;
  /** The reconciler, over as many valid entries; then over one VIP with 100 stale ones. */
  readonly reconcile: {
    readonly grown: number;
    readonly passes: readonly { readonly bareMs: number; readonly passMs: number; readonly blockedMs: number }[];
    readonly one: Timed;
  };
  /** Changes of services while nothing else runs, during a full pass, and during a pass over one changed service. */
  readonly changes: Readonly<Record<Meanwhile, readonly Change[]>>;
  /** Senders that keep sending from one socket, every 10 ms. */
  readonly recovery: Recovery;
}

export type Meanwhile = "alone" | "full" | "few";

/** Every replacement of an endpoint, by sender and destination: ms until the first answer from the new one. */
export type Recovery = Readonly<Record<string, readonly number[]>>;

export function measureConntrack(): ConntrackResult {
  process.stderr.write(`measuring conntrack with ${ENTRIES} entries ...\n`);
  const path = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));
  const program = buildHelper("conntrack");
  const run = (script: string, ...more: readonly number[]): unknown => {
    const child = path(`../native/child/${script}`);
    const counts = [ENTRIES, ROUNDS, ...more].map(String);
    const args = [path("../lab/enter.mjs"), "--", process.execPath, "--expose-gc", child, program, ...counts];
    const output = execFileSync(process.execPath, args, {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "inherit"],
      maxBuffer: 2 ** 26,
    });
    return JSON.parse(output.trim().split("\n").at(-1) ?? "");
  };
  const table = run("conntrack-load.mjs") as Omit<ConntrackResult, "reconcile" | "changes" | "recovery">;
  const reconcile = run("conntrack-reconcile.mjs") as ConntrackResult["reconcile"];
  const changes = run("conntrack-changes.mjs", CHANGES) as ConntrackResult["changes"];
  return { ...table, reconcile, changes, recovery: measureRecovery(path) };
}

/** Runs the packet test, which reports its measurements. */
function measureRecovery(path: (relative: string) => string): Recovery {
  process.stderr.write("measuring how soon senders reach a replaced endpoint ...\n");
  const directory = mkdtempSync(join(tmpdir(), "nft-proxier-bench-"));
  const report = join(directory, "recovery.json");
  const vitest = [
    path("../../node_modules/vitest/vitest.mjs"),
    "run",
    "--project=packets",
    "packets/conntrack-recovery",
  ];
  try {
    execFileSync(process.execPath, [path("../lab/enter.mjs"), "--", process.execPath, ...vitest], {
      cwd: path("../.."),
      env: { ...process.env, RECOVERY_REPORT: report },
      stdio: ["ignore", "ignore", "inherit"],
    });
    return JSON.parse(readFileSync(report, "utf8")) as Recovery;
  } finally {
    rmSync(directory, { recursive: true });
  }
}

const QUANTILES = [0.5, 0.9, 0.99, 1];

function quantiles(changes: readonly Change[], field: keyof Change): number[] {
  const values = changes.map((change) => change[field]);
  return QUANTILES.map((q) => quantile(values, q));
}

/** The additional delay of changes compared with changes alone, ms: the medians, and the slowest ones. */
function delays({ changes }: ConntrackResult, meanwhile: Meanwhile): number[] {
  const alone = quantiles(changes.alone, "totalMs");
  return quantiles(changes[meanwhile], "totalMs").map((ms, i) => ms - (alone[i] ?? Number.NaN));
}

const told = (values: readonly number[]): string => values.map((value) => fixed(value)).join(" / ");

/** Durations of changes. */
export function changeRows(result: ConntrackResult): Record<string, string>[] {
  const row = (meanwhile: Meanwhile, title: string): Record<string, string> => ({
    "changes while": title,
    n: String(result.changes[meanwhile].length),
    "own p50/p90/p99/max ms": told(quantiles(result.changes[meanwhile], "ownMs")),
    "with the kernel's ms": told(quantiles(result.changes[meanwhile], "totalMs")),
    "longer by ms": told(delays(result, meanwhile)),
  });
  return [
    row("alone", "nothing else runs"),
    row("full", "the reconciler makes a full pass"),
    row("few", "it checks one service"),
  ];
}

/** How soon senders reached the new endpoint. */
export function recoveryRows({ recovery }: ConntrackResult): Record<string, string>[] {
  return Object.entries(recovery).map(([sender, times]) => ({
    sender,
    replacements: String(times.length),
    "p50/p90/p99/max ms": told(QUANTILES.map((q) => quantile(times, q))),
  }));
}

/** One line for the table. Uses the median of the passes: each is compared with the bare dump just before it. */
export function conntrackRow(result: ConntrackResult): Record<string, string> {
  const { entries, grown, passes, reconcile, ...deletions } = result;
  const ms = ({ ms }: Timed): string => ms.toFixed(0);
  return {
    entries: String(entries),
    "bare ms": median(passes.map(({ bareMs }) => bareMs)).toFixed(0),
    "pass ratio": median(passes.map(({ passMs, bareMs }) => passMs / bareMs)).toFixed(2),
    "grouped ratio": median(passes.map(({ groupedMs, bareMs }) => groupedMs / bareMs)).toFixed(2),
    "added MB": (grown / 2 ** 20).toFixed(1),
    "blocked ms": median(passes.map(({ blockedMs }) => blockedMs)).toFixed(1),
    "one VIP ms": ms(deletions.matching),
    "listed first ms": ms(deletions.listed),
    "by prefix ms": ms(deletions.prefix),
    "all ms": ms(deletions.flushed),
    "reconciled ratio": median(reconcile.passes.map(({ passMs, bareMs }) => passMs / bareMs)).toFixed(2),
    "reconciler blocked ms": median(reconcile.passes.map(({ blockedMs }) => blockedMs)).toFixed(1),
    "reconciler added MB": (reconcile.grown / 2 ** 20).toFixed(1),
    "one VIP reconciled ms": ms(reconcile.one),
  };
}

/** The aims for this number of entries. */
export function conntrackAims(result: ConntrackResult): Aim[] {
  const { entries, grown, passes, reconcile, matching } = result;
  const delay = (meanwhile: Meanwhile, title: string): Aim => {
    const [p50 = Number.NaN, , p99 = Number.NaN, max = Number.NaN] = delays(result, meanwhile);
    const note = `p50 ${fixed(p50)}, max ${fixed(max)}`;
    return atMost(`${what} a change is longer while ${title}, p99`, 2, p99, "ms", note);
  };
  const what = `conntrack, ${entries} entries:`;
  const pass = median(passes.map(({ passMs, bareMs }) => passMs / bareMs));
  const reconciled = median(reconcile.passes.map(({ passMs, bareMs }) => passMs / bareMs));
  const blocked = (of: readonly { readonly blockedMs: number }[]): number =>
    median(of.map(({ blockedMs }) => blockedMs));
  const recovered = Object.values(result.recovery).flat();
  return [
    atMost(
      "a sender reaches a replaced endpoint, longest",
      50,
      Math.max(...recovered),
      "ms",
      `p50 ${fixed(median(recovered))}, p99 ${fixed(quantile(recovered, 0.99))} of ${recovered.length}`,
    ),
    atMost(`${what} a dump / a bare one`, 1.2, pass, "x"),
    atMost(`${what} the reconciler's pass / a bare dump`, 1.2, reconciled, "x"),
    atMost(`${what} memory that a dump adds`, 20, grown / 2 ** 20, "MB"),
    atMost(`${what} memory that the reconciler adds`, 20, reconcile.grown / 2 ** 20, "MB"),
    atMost(`${what} 100 of one VIP deleted`, 100, matching.ms, "ms"),
    atMost(`${what} 100 of one VIP reconciled`, 100, reconcile.one.ms, "ms"),
    delay("full", "the reconciler makes a full pass"),
    delay("few", "it checks one service"),
    atMost(`event loop held: ${what} a dump`, 20, blocked(passes), "ms"),
    atMost(`event loop held: ${what} the reconciler's pass`, 20, blocked(reconcile.passes), "ms"),
  ];
}
