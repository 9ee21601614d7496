/**
 * The test runner behind `npm test` and `npm run test:*`: runs the tiers one after another, each in a process of its
 * own (and where it needs one, in a network namespace of its own), and adds up what they say.
 *
 *   node test/run.ts [--only TIER[,TIER]] [--nightly] [--asan] [--nft-versions all] [FILTER...]
 *
 * --only          these tiers instead of all
 * --nightly       at length: 1,000,000 fuzz inputs instead of 100,000, 240 random seeds instead of 8, 200 kills instead of 20
 * --asan          with the addon built under AddressSanitizer and UBSan (build-asan/)
 * --nft-versions  `all`: also the nft of other Debian releases, downloaded and unpacked under build/
 * FILTER          passed to vitest: only test files whose path contains it
 *
 * The last line is `N passed, N failed, N skipped`. The exit code is 0 only if nothing failed.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { checks, passes, root } from "./checks.ts";
import { fetchNft, suites } from "./nft-versions/debian-nft.ts";

interface Tier {
  readonly name: string;
  readonly what: string;
  /** Where it runs: the static checks in this process, plain vitest, or vitest in fresh network namespaces. */
  readonly runs: "checks" | "plain" | "in-namespaces";
  /** No part of `npm test`: run by `--only` alone. */
  readonly apart?: true;
}

interface Outcome {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  /** What a reader of the summary must know: what failed, what was left out and why. */
  readonly notes: readonly string[];
}

/** The part of vitest's JSON report (Jest's format) that we read. */
interface Report {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly message: string;
    readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[];
  }[];
}

const tiers: readonly Tier[] = [
  { name: "lint", what: "type checks, linter, formatter", runs: "checks" },
  { name: "unit", what: "pure functions and the fake kernel", runs: "plain" },
  { name: "conformance", what: "one suite on the fake and on the real kernel", runs: "in-namespaces" },
  { name: "native", what: "the addon: codec, errors, dumps, events, fuzzing", runs: "in-namespaces" },
  { name: "leaks", what: "the addon under LeakSanitizer, in worker threads too", runs: "in-namespaces" },
  { name: "packets", what: "real packets through the real kernel", runs: "in-namespaces" },
  { name: "nft", what: "what nft prints of our table", runs: "in-namespaces" },
  { name: "library", what: "the package's entry points and examples/, on the real kernel", runs: "in-namespaces" },
  { name: "package", what: "npm pack, installed and run in a clean root", runs: "plain", apart: true },
];

const { values: options, positionals: filters } = parseArgs({
  allowPositionals: true,
  options: {
    only: { type: "string" },
    nightly: { type: "boolean", default: false },
    asan: { type: "boolean", default: false },
    "nft-versions": { type: "string", default: "machine" },
  },
});

/** A tier that hangs is killed after this long: far more than any needs, so that a run always ends. */
const tierLimitMs = (options.nightly || options.asan || options.only === "leaks" ? 60 : 30) * 60_000;

/** Where the compiler keeps the runtime that must be loaded before Node when the addon is sanitized. */
function sanitizerEnvironment(): Record<string, string> {
  const found = spawnSync("c++", ["-print-file-name=libasan.so"], { encoding: "utf8" });
  return {
    NFT_PROXIER_ADDON: path.join(root, "build-asan", "build", "Release", "nft_proxier.node"),
    LD_PRELOAD: found.stdout.trim(),
    // Node itself does not free everything when it exits, so leaks at exit say nothing about the addon.
    ASAN_OPTIONS: "detect_leaks=0:abort_on_error=1:disable_coredump=1",
    UBSAN_OPTIONS: "halt_on_error=1:print_stacktrace=1",
  };
}

function tierEnvironment(): Record<string, string> {
  return {
    ...(options.nightly ? { NIGHTLY: "1" } : {}),
    ...(options.asan ? sanitizerEnvironment() : {}),
    NFT_VERSIONS: options["nft-versions"],
    ...(process.stdout.isTTY ? {} : { NO_COLOR: "1" }),
  };
}

/** Runs a command in its own process group, so that the whole group can be ended. Resolves with what went wrong. */
function runGroup(command: string, args: readonly string[]): Promise<string | undefined> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: ["ignore", "inherit", "inherit"], detached: true });
    const end = (signal: NodeJS.Signals): void => {
      if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, signal);
    };
    const interrupted = (signal: NodeJS.Signals): void => {
      end(signal);
      process.exitCode = 130;
    };
    process.on("SIGINT", interrupted);
    process.on("SIGTERM", interrupted);
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      end("SIGKILL");
    }, tierLimitMs);
    const settle = (failure: string | undefined): void => {
      clearTimeout(timer);
      process.off("SIGINT", interrupted);
      process.off("SIGTERM", interrupted);
      resolve(failure);
    };
    child.on("error", (error) => settle(`could not be started: ${error.message}`));
    child.on("exit", (code, signal) => {
      if (late) settle(`was still running after ${tierLimitMs / 60_000} minutes`);
      else if (code === 0) settle(undefined);
      else settle(`${signal === null ? `exited with code ${code}` : `was ended by ${signal}`}; see its output above`);
    });
  });
}

function readReport(file: string): Report | undefined {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as Report;
  } catch {
    // No report: vitest did not get that far. The caller has the exit code.
    return undefined;
  }
}

/** Adds up a report. A file that failed outside of its tests, or a failure that no test shows, counts as one failed. */
function tally(tier: Tier, report: Report | undefined, failure: string | undefined): Outcome {
  const notes: string[] = [];
  let failed = report?.numFailedTests ?? 0;
  const skipped = (report?.numPendingTests ?? 0) + (report?.numTodoTests ?? 0);
  for (const file of report?.testResults ?? []) {
    const name = path.relative(root, file.name);
    const results = file.assertionResults;
    if (file.status === "failed" && !results.some((result) => result.status === "failed")) {
      failed += 1;
      const [reason = ""] = file.message.split("\n");
      notes.push(`failed: ${name}: ${reason === "" ? "ended before its tests; see its output above" : reason}`);
    }
    for (const result of results) {
      if (result.status === "failed") notes.push(`failed: ${name}: ${result.fullName}`);
      else if (result.status !== "passed") notes.push(`left out: ${name}: ${result.fullName} (${result.status})`);
    }
  }
  if (failure !== undefined && failed === 0) {
    failed = 1;
    notes.push(`failed: tier ${tier.name} ${failure}`);
  }
  return { passed: report?.numPassedTests ?? 0, failed, skipped, notes };
}

/** What a tier needs from outside, as its namespaces have no way out. Returns what went wrong. */
function prepare(tier: Tier): string | undefined {
  if (tier.name !== "nft" || options["nft-versions"] !== "all") return undefined;
  try {
    for (const suite of suites) fetchNft(suite);
    return undefined;
  } catch (error) {
    return `could not fetch the nft of other releases: ${String(error)}`;
  }
}

async function runVitest(tier: Tier): Promise<Outcome> {
  const directory = path.join(root, "build", "test-results");
  const file = path.join(directory, `${tier.name}.json`);
  mkdirSync(directory, { recursive: true });
  rmSync(file, { force: true });
  const vitest = [
    path.join(root, "node_modules", "vitest", "vitest.mjs"),
    "run",
    `--project=${tier.name}`,
    "--reporter=default",
    "--reporter=json",
    `--outputFile.json=${file}`,
    ...filters,
  ];
  // The environment is set inside of the namespaces: a preloaded sanitizer has no business in the tools that make them.
  const environment = Object.entries(tierEnvironment()).map(([name, value]) => `${name}=${value}`);
  const inner = ["env", ...environment, process.execPath, ...vitest];
  const enter = tier.runs === "in-namespaces" ? [process.execPath, path.join(root, "test/lab/enter.mjs"), "--"] : [];
  const [command, ...args] = [...enter, ...inner] as [string, ...string[]];
  const failure = prepare(tier) ?? (await runGroup(command, args));
  return tally(tier, readReport(file), failure);
}

function runChecks(): Outcome {
  const list = checks({ cpp: false, fix: false });
  const failed = list.filter((check) => !passes(check));
  return {
    passed: list.length - failed.length,
    failed: failed.length,
    skipped: 0,
    notes: failed.map((check) => `failed: ${check.name}`),
  };
}

function selectTiers(): readonly Tier[] {
  if (options.only === undefined) return tiers.filter((tier) => tier.apart !== true);
  return options.only.split(",").map((name) => {
    const tier = tiers.find((candidate) => candidate.name === name);
    if (tier === undefined) {
      console.error(`no tier "${name}"; there are ${tiers.map((candidate) => candidate.name).join(", ")}`);
      process.exit(2);
    }
    return tier;
  });
}

/** What is no part of `npm test`, and why. */
const apart: readonly { readonly command: string; readonly why: string }[] = [
  { command: "test:nightly", why: "long: 1,000,000 fuzz inputs, 200 kills, 12,000 random steps" },
  { command: "test:leaks", why: "long: 10,000 of everything under LeakSanitizer" },
  { command: "test:asan", why: "long: a second build, under sanitizers" },
  { command: "test:endurance", why: "long: two minutes of changes under traffic" },
  { command: "test:kernels", why: "long, downloads: other kernels, emulated" },
  { command: "test:nft", why: "downloads: nft of other releases" },
  { command: "test:package", why: "downloads: a cross compiler, a Debian root" },
  { command: "bench", why: "needs a quiet machine" },
];

/** What this run does not cover though the project has it: said, so that a green line is not read as more than it is. */
function leftOut(selected: readonly Tier[]): string[] {
  const absent = tiers.filter((tier) => tier.apart !== true && !selected.includes(tier)).map((tier) => tier.name);
  const lines = absent.length === 0 ? [] : [`not asked for: ${absent.join(", ")}`];
  if (filters.length > 0) lines.push(`only test files that match: ${filters.join(" ")}`);
  if (options.only !== undefined) return lines;
  const done = [
    ...(options.nightly ? ["test:nightly"] : []),
    ...(options.asan ? ["test:asan"] : []),
    ...(options["nft-versions"] === "all" ? ["test:nft"] : []),
  ];
  const others = apart.filter(({ command }) => !done.includes(command));
  lines.push(`left out (npm run …): ${others.map(({ command, why }) => `${command} (${why})`).join(", ")}`);
  return lines;
}

async function main(): Promise<void> {
  const selected = selectTiers();
  const total = { passed: 0, failed: 0, skipped: 0 };
  const notes: string[] = [];
  const lines: string[] = [];
  for (const tier of selected) {
    console.log(`\n=== ${tier.name}: ${tier.what}`);
    const start = Date.now();
    const outcome = tier.runs === "checks" ? runChecks() : await runVitest(tier);
    const seconds = ((Date.now() - start) / 1000).toFixed(1);
    total.passed += outcome.passed;
    total.failed += outcome.failed;
    total.skipped += outcome.skipped;
    notes.push(...outcome.notes);
    lines.push(
      `${tier.name.padEnd(12)} ${outcome.passed} passed, ${outcome.failed} failed, ${outcome.skipped} skipped in ${seconds} s`,
    );
    if (process.exitCode === 130) break;
  }
  console.log(`\n=== summary\n${lines.join("\n")}`);
  for (const note of [...notes, ...leftOut(selected)]) console.log(note);
  console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
  process.exitCode ??= total.failed === 0 ? 0 : 1;
}

await main();
