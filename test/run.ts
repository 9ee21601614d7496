/**
 * The test runner for `npm test` and `npm run test:*`: runs the tiers one after another and adds up their results. Tiers that need a
 * network namespace share one process and its namespaces, so that files of the next tier run while the last ones wait.
 *
 * `node test/run.ts --help` lists tiers, options and variables.
 *
 * The last line is `N passed, N failed, N skipped`, with the files of the skipped tests. The exit code is 0 only if nothing failed.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { checks, failing, quickChecks, root } from "./checks.ts";
import { fetchIptables } from "./kube-proxy/support/iptables.ts";
import { LONG_FILES } from "./lab/length.ts";
import { kubeProxyMinor } from "./kube-proxy/support/program.ts";
import { fetchNft, suites } from "./nft-versions/debian-nft.ts";
import { HAS_HELM, helm, kind, schemas } from "./page/helm.ts";
import { kubectl } from "./page/kubectl.ts";
import { promtool } from "./page/promtool.ts";
import { commands, type Tier, tiers } from "./tiers.ts";

interface Outcome {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  /** Files with skipped tests, relative to test/, and the number for each. */
  readonly skippedIn: readonly string[];
  /** Notes for the reader of the summary: failures, skipped tests and the reasons. */
  readonly notes: readonly string[];
  readonly seconds: number;
}

/** The part of vitest's JSON report (Jest's format) that we read. */
interface Report {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly message: string;
    /** ms since 1970. */
    readonly startTime: number;
    readonly endTime: number;
    readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[];
  }[];
}

/** A JSON report of each tier's last run. */
const results = path.join(root, "build", "test-results");
/** The program as in the image, which nodes run; it also starts in less than half the time. */
const bundle = path.join(root, "build", "program");

const { values: options, positionals: filters } = parseArgs({
  allowPositionals: true,
  options: {
    only: { type: "string" },
    short: { type: "boolean", default: false },
    nightly: { type: "boolean", default: false },
    asan: { type: "boolean", default: false },
    update: { type: "boolean", short: "u", default: false },
    "nft-versions": { type: "string", default: "machine" },
    help: { type: "boolean", short: "h", default: false },
  },
});

const OPTIONS: readonly (readonly [option: string, what: string])[] = [
  ["--only TIER[,TIER]", "run only these tiers"],
  [
    "--short",
    "like `npm test`: skip the linter, formatter, leak check and long tests; use fewer seeds, kills, inputs and rows",
  ],
  [
    "--nightly",
    "run longer: 1,000,000 fuzz inputs instead of 100,000, 240 random seeds instead of 8, 200 kills instead of 20, 3,000 rulesets beside `explain` instead of 300",
  ],
  ["--asan", "use the addon built with AddressSanitizer and UBSan (build-asan/)"],
  ["-u, --update", "write the screens of packets/screens as they are now"],
  ["--nft-versions all", "also test the nft of other Debian releases, downloaded to build/"],
  ["FILTER...", "run only test files whose path contains one of them: table, packets/claims"],
];

const VARIABLES: readonly (readonly [name: string, what: string])[] = [
  ["FUZZ_SEED, RANDOM_SEED", "seed that a failed run printed, to repeat its inputs"],
  ["RULESETS", "first and last seed of packets/explain-random: 601-1200"],
  ["NFT_PROXIER_SLOW", "factor for every time limit, for slow or emulated machines (default 1)"],
  [
    "NFT_PROXIER_ADDON",
    "addon to test (default build/Release/nft_proxier.node); the tests' own must be in the same directory",
  ],
  ["NFT_PROXIER_MAIN", "program that tests start (default: the bundle of dist/)"],
  ["LEAKS_COUNT, LEAKS_WORKERS", "number of rounds of each operation, and of worker threads, in the tier leaks"],
  ["ENDURE_SECONDS, ENDURE_SERVICES", "duration of packets/endurance, and its number of services"],
  ["NFT_PROXIER_OLDER", "versions for the tier rollback; `npm run test:rollback` sets it"],
  ["DEBIAN_MIRROR", "mirror for the packages of other releases"],
  ["PICTURES=write", "replace the pictures of README.md by those that page/pictures takes"],
  ["KUBE_PROXY", "path of the kube-proxy for the tier kube-proxy"],
];

/** A tier that hangs is killed after this time: far more than any tier needs, so that a run always ends. */
const tierLimitMs = (options.nightly || options.asan || options.only === "leaks" ? 90 : 30) * 60_000;

/** Directory of the compiler's runtime that must be loaded before Node if the addon is sanitized. */
function sanitizerEnvironment(): Record<string, string> {
  const found = spawnSync("c++", ["-print-file-name=libasan.so"], { encoding: "utf8" });
  return {
    NFT_PROXIER_ADDON: path.join(root, "build-asan", "build", "Release", "nft_proxier.node"),
    LD_PRELOAD: found.stdout.trim(),
    // Node itself does not free everything at exit, so leaks at exit prove nothing about the addon.
    // Node resets every signal's handler when it starts. The value 2 keeps the sanitizer's, which prints where a process crashed.
    ASAN_OPTIONS: "detect_leaks=0:abort_on_error=1:disable_coredump=1:handle_segv=2:handle_sigbus=2",
    UBSAN_OPTIONS: "halt_on_error=1:print_stacktrace=1",
  };
}

function tierEnvironment(): Record<string, string> {
  return {
    TEST_LENGTH: options.nightly ? "nightly" : options.short ? "short" : "usual",
    // Sanitized programs take several times as long.
    ...(options.asan ? { NFT_PROXIER_SLOW: process.env["NFT_PROXIER_SLOW"] ?? "3", ...sanitizerEnvironment() } : {}),
    NFT_VERSIONS: options["nft-versions"],
    NFT_PROXIER_MAIN: process.env["NFT_PROXIER_MAIN"] ?? path.join(bundle, "dist", "main.js"),
    ...(process.stdout.isTTY ? {} : { NO_COLOR: "1" }),
  };
}

/** Runs a command in its own process group, so that the whole group can be ended. Resolves with the error, if any. */
function runGroup(command: string, args: readonly string[], limitMs = tierLimitMs): Promise<string | undefined> {
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
    let overdue = false;
    const timer = setTimeout(() => {
      overdue = true;
      end("SIGKILL");
    }, limitMs);
    const settle = (failure: string | undefined): void => {
      clearTimeout(timer);
      process.off("SIGINT", interrupted);
      process.off("SIGTERM", interrupted);
      resolve(failure);
    };
    child.on("error", (error) => settle(`could not be started: ${error.message}`));
    child.on("exit", (code, signal) => {
      if (overdue) settle(`was still running after ${limitMs / 60_000} minutes`);
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

/** Tiers that run in one process. */
type Stage = readonly Tier[];

/** Tiers in namespaces form one stage, except those with their own settings or namespace. */
function stagesOf(selected: readonly Tier[]): readonly Stage[] {
  const stages: Tier[][] = [];
  const isShared = ({ runs, apart, alone }: Tier): boolean => runs === "in-namespaces" && !apart && !alone;
  for (const tier of selected) {
    const last = stages.at(-1);
    if (isShared(tier) && last !== undefined && last.every(isShared)) last.push(tier);
    else stages.push([tier]);
  }
  return stages;
}

/** Directory of a tier's tests, relative to test/. */
const folderOf = ({ name }: Tier): string => ({ nft: "nft-versions", package: "library" })[name] ?? name;

/** The tier's part of a stage's report. */
function partOf(report: Report, tier: Tier): Report {
  const folder = path.join(root, "test", folderOf(tier), path.sep);
  return { testResults: report.testResults.filter(({ name }) => name.startsWith(folder)) };
}

/** Seconds from the first file's start to the last one's end. */
function secondsOf({ testResults }: Report): number {
  const start = Math.min(...testResults.map(({ startTime }) => startTime));
  const end = Math.max(...testResults.map(({ endTime }) => endTime));
  return testResults.length === 0 ? 0 : (end - start) / 1000;
}

/** Adds up a report. A file that failed outside its tests counts as one failure. */
function tally(report: Report): Outcome {
  const notes: string[] = [];
  const skippedIn: string[] = [];
  let [passed, failed, skipped] = [0, 0, 0];
  for (const file of report.testResults) {
    const name = path.relative(root, file.name);
    const of = (status: string): Report["testResults"][number]["assertionResults"] =>
      file.assertionResults.filter((result) => result.status === status);
    const others = file.assertionResults.filter(({ status }) => status !== "passed" && status !== "failed");
    passed += of("passed").length;
    failed += of("failed").length;
    skipped += others.length;
    if (file.status === "failed" && of("failed").length === 0) {
      failed += 1;
      const [reason = ""] = file.message.split("\n");
      notes.push(`failed: ${name}: ${reason === "" ? "ended before its tests; see its output above" : reason}`);
    }
    notes.push(...of("failed").map(({ fullName }) => `failed: ${name}: ${fullName}`));
    notes.push(...others.map(({ fullName, status }) => `skipped: ${name}: ${fullName} (${status})`));
    if (others.length > 0) skippedIn.push(`${others.length} in ${name.replace(/^test\/|\.test\.ts$/g, "")}`);
  }
  return { passed, failed, skipped, skippedIn, notes, seconds: secondsOf(report) };
}

/** Runs a script that prepares a tier. Returns the error, if any. */
function makeWith(script: string, what: string): string | undefined {
  const { status } = spawnSync(process.execPath, ["--no-warnings", script], { cwd: root, stdio: "inherit" });
  return status === 0 ? undefined : `could not ${what}; see above`;
}

/** Returns the error, if any. */
async function bundleProgram(): Promise<string | undefined> {
  rmSync(bundle, { recursive: true, force: true });
  // Sanitized tests read stack traces: they run the program from files.
  const steps = options.asan ? ["bundle"] : ["bundle", "snapshot"];
  for (const step of steps) {
    const failure = await runGroup(process.execPath, [`deploy/image/${step}.mjs`, bundle]);
    if (failure !== undefined) return `could not make the program's ${step}: it ${failure}`;
  }
  mkdirSync(path.join(bundle, "build"));
  symlinkSync(path.join(root, "build", "Release"), path.join(bundle, "build", "Release"));
  // Commands store their compiled code here for the next run.
  mkdirSync(path.join(bundle, "cache"));
  return undefined;
}

/** Builds the lab's programs once, which otherwise each of the first tests would compile. Returns the error, if any. */
async function buildLab(): Promise<string | undefined> {
  const failure = await runGroup(process.execPath, ["--no-warnings", "test/lab/build-all.ts"]);
  return failure === undefined ? undefined : `could not compile the lab's programs: it ${failure}`;
}

/** Prepares resources that tiers in namespaces share. Returns the error, if any. */
async function prepareShared(): Promise<string | undefined> {
  const all = await Promise.all([bundleProgram(), ...(filters.length === 0 ? [buildLab()] : [])]);
  return all.find((failure) => failure !== undefined);
}

/** Prepares a tier's resources from outside, because its namespaces have no way out. Returns the error, if any. */
function prepare(tier: Tier): string | undefined {
  if (tier.name === "package") return makeWith("test/library/clean-root.ts", "pack and install the package");
  if (tier.name === "image") return makeWith("test/image/build.ts", "build the image");
  try {
    if (tier.name === "kube-proxy") kubeProxyMinor();
  } catch (error) {
    return `cannot run: ${String(error)}`;
  }
  try {
    if (tier.name === "page") {
      promtool();
      kubectl();
      if (HAS_HELM) helm();
      schemas();
      kind();
    }
    if (tier.name === "nft" && options["nft-versions"] === "all") for (const suite of suites) fetchNft(suite);
    if (tier.name === "kube-proxy") fetchIptables();
    return undefined;
  } catch (error) {
    return `could not fetch programs: ${String(error)}`;
  }
}

/** Returns the outcomes of the stage's tiers, in order. A failure that belongs to no test counts as one failure of the first tier. */
async function runVitest(stage: Stage): Promise<readonly Outcome[]> {
  const names = stage.map(({ name }) => name);
  const file = path.join(results, "stage.json");
  mkdirSync(results, { recursive: true });
  rmSync(file, { force: true });
  const vitest = [
    path.join(root, "node_modules", "vitest", "vitest.mjs"),
    "run",
    ...names.map((name) => `--project=${name}`),
    "--reporter=default",
    "--reporter=./test/failures.ts",
    "--reporter=json",
    `--outputFile.json=${file}`,
    ...(options.update ? ["--update"] : []),
    ...filters,
  ];
  // Set the environment inside the namespaces: a sanitizer must not be preloaded into the tools that create them.
  const environment = Object.entries(tierEnvironment()).map(([name, value]) => `${name}=${value}`);
  const inner = ["env", ...environment, process.execPath, ...vitest];
  const enter =
    stage[0].runs === "in-namespaces" ? [process.execPath, path.join(root, "test/lab/enter.mjs"), "--"] : [];
  const [command, ...args] = [...enter, ...inner] as [string, ...string[]];
  const unprepared = stage.map(prepare).find((failure) => failure !== undefined);
  const failure = unprepared ?? (await runGroup(command, args, stage.length * tierLimitMs));
  const report = readReport(file) ?? { testResults: [] };
  const outcomes = stage.map((tier) => {
    const part = partOf(report, tier);
    writeFileSync(path.join(results, `${tier.name}.json`), JSON.stringify(part));
    return tally(part);
  });
  if (failure === undefined || outcomes.some(({ failed }) => failed > 0)) return outcomes;
  const [first, ...others] = outcomes as [Outcome, ...Outcome[]];
  return [{ ...first, failed: 1, notes: [...first.notes, `failed: ${names.join(", ")} ${failure}`] }, ...others];
}

async function runChecks(): Promise<Outcome> {
  const start = Date.now();
  const list = options.short ? quickChecks() : checks({ cpp: options.nightly ? "all" : "format", fix: false });
  const failed = await failing(list);
  return {
    passed: list.length - failed.length,
    failed: failed.length,
    skipped: 0,
    skippedIn: [],
    notes: failed.map((check) => `failed: ${check.name}`),
    seconds: (Date.now() - start) / 1000,
  };
}

function selectTiers(): readonly Tier[] {
  if (options.only === undefined) return tiers.filter(({ apart, long }) => apart !== true && !(long && options.short));
  return options.only.split(",").map((name) => {
    const tier = tiers.find((candidate) => candidate.name === name);
    if (tier === undefined) {
      console.error(`no tier "${name}"; there are ${tiers.map((candidate) => candidate.name).join(", ")}`);
      process.exit(2);
    }
    return tier;
  });
}

/** Commands that do more than a run, each with its purpose and duration. */
function beyond(run: "ci" | "nightly"): readonly (readonly [name: string, what: string])[] {
  return commands
    .filter((command) => command.in[run] !== "all")
    .map(({ name, what, takes }) => [name, `${what}; ${takes}`]);
}

/** Existing tests that this run does not cover. They are printed, so that nobody reads too much into a green line. */
function notCovered(selected: readonly Tier[]): string[] {
  const absent = tiers.filter(({ apart, long }) => apart !== true && !(long && options.short));
  const names = absent.filter((tier) => !selected.includes(tier)).map(({ name }) => name);
  const lines = names.length === 0 ? [] : [`not selected: ${names.join(", ")}`];
  if (filters.length > 0) lines.push(`only test files that match: ${filters.join(" ")}`);
  if (options.only !== undefined) return lines;
  if (options.short) {
    const left = ["linter", "formatter", ...tiers.filter(({ long }) => long).map(({ name }) => name), ...LONG_FILES];
    lines.push(`only in npm run test:all: ${left.join(", ")}, and some tests and rows of other files`);
  }
  const done = [...(options.asan ? ["test:asan"] : []), ...(options["nft-versions"] === "all" ? ["test:nft"] : [])];
  const others = beyond(options.nightly ? "nightly" : "ci").filter(([name]) => !done.includes(name));
  lines.push(`not covered (npm run …): ${others.map(([name, what]) => `${name} (${what})`).join(", ")}`);
  return lines;
}

function columns(rows: readonly (readonly [string, string])[]): string {
  const width = Math.max(...rows.map(([name]) => name.length));
  return rows.map(([name, what]) => `  ${name.padEnd(width)}  ${what}`).join("\n");
}

/** How long a tier took on this machine according to its last report; a run with a FILTER counts, too. */
function lastRun({ name }: Tier): string {
  const report = readReport(path.join(results, `${name}.json`));
  if (report === undefined) return "";
  const tests = report.testResults.reduce((sum, { assertionResults }) => sum + assertionResults.length, 0);
  return `; last time ${tests} tests in ${Math.ceil(secondsOf(report))} s`;
}

function help(): string {
  const rows = tiers.map((tier): readonly [string, string] => {
    const isolated = tier.runs === "in-namespaces" ? ", in its own network namespaces" : "";
    return [tier.name, `${tier.what}${isolated}${tier.apart === true ? "; only with --only" : ""}${lastRun(tier)}`];
  });
  return [
    "Runs the tests, one tier after another. Run `npm run build` first. `npm test` takes about 6 minutes on two idle cores, 1 of them to compile the addon.",
    "",
    "  npm test                           every tier, shortened",
    "  npm run test:all                   every tier, every test",
    "  npm run test:TIER -- FILTER        one tier, only files whose path contains FILTER",
    "  node test/run.ts [OPTION...] [FILTER...]",
    "",
    `Tiers:\n${columns(rows)}`,
    "",
    `Options:\n${columns(OPTIONS)}`,
    "",
    `Environment:\n${columns(VARIABLES)}`,
    "",
    `More than \`npm test\` and \`npm run test:all\` (npm run …):\n${columns(beyond("ci"))}`,
    "",
    "Reports are in build/test-results/, one JSON file per tier. To run a test while you write it:",
    "  node_modules/.bin/node node_modules/vitest/vitest.mjs --project=unit model/claims     (watches, and runs again)",
    "  node test/lab/enter.mjs -- node_modules/.bin/node node_modules/vitest/vitest.mjs --project=packets packets/claims",
  ].join("\n");
}

async function main(): Promise<void> {
  if (options.help) {
    console.log(help());
    return;
  }
  const selected = selectTiers();
  const preparing = selected.some(({ runs }) => runs === "in-namespaces") ? prepareShared() : undefined;
  const total = { passed: 0, failed: 0, skipped: 0 };
  const skippedIn: string[] = [];
  const notes: string[] = [];
  const lines: string[] = [];
  const add = (tier: Tier, outcome: Outcome): void => {
    const { passed, failed, skipped, seconds } = outcome;
    total.passed += passed;
    total.failed += failed;
    total.skipped += skipped;
    skippedIn.push(...outcome.skippedIn);
    notes.push(...outcome.notes);
    lines.push(
      `${tier.name.padEnd(12)} ${passed} passed, ${failed} failed, ${skipped} skipped in ${seconds.toFixed(1)} s`,
    );
  };
  for (const stage of stagesOf(selected)) {
    console.log(`\n=== ${stage.map(({ name, what }) => `${name}: ${what}`).join("\n    ")}`);
    if (stage[0].runs === "checks") add(stage[0], await runChecks());
    else {
      const failure = await preparing;
      if (failure !== undefined) throw new Error(failure);
      for (const [i, outcome] of (await runVitest(stage)).entries()) add(stage[i], outcome);
    }
    if (process.exitCode === 130) break;
  }
  console.log(`\n=== summary\n${lines.join("\n")}`);
  for (const note of [...notes, ...notCovered(selected)]) console.log(note);
  const where = skippedIn.length === 0 ? "" : `: ${skippedIn.join(", ")}`;
  console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped${where}`);
  process.exitCode ??= total.failed === 0 ? 0 : 1;
}

await main();
