/** The tiers that test/run.ts runs, and the commands that test. CONTRIBUTING.md has the same commands as a table. */

export interface Tier {
  readonly name: string;
  readonly what: string;
  /** How it runs: static checks in this process, plain vitest, or vitest in new network namespaces. */
  readonly runs: "checks" | "plain" | "in-namespaces";
  /** Runs only with `--only`. */
  readonly apart?: true;
  /** Not in a short run. */
  readonly long?: true;
  /** Changes its namespace, so it cannot share one. */
  readonly alone?: true;
}

export const tiers: readonly Tier[] = [
  { name: "lint", what: "type checks; linter and formatter too unless --short", runs: "checks" },
  { name: "unit", what: "pure functions and the fake kernel", runs: "plain" },
  { name: "bootstrap", what: "a new checkout's first commands, with releases of npm and Node", runs: "plain" },
  { name: "conformance", what: "one suite on the fake and on the real kernel", runs: "in-namespaces" },
  { name: "native", what: "the addon: codec, errors, dumps, events, fuzzing", runs: "in-namespaces" },
  { name: "leaks", what: "the addon under LeakSanitizer, in worker threads too", runs: "in-namespaces", long: true },
  { name: "packets", what: "real packets through the real kernel", runs: "in-namespaces" },
  { name: "library", what: "the package's entry points and examples/, on the real kernel", runs: "in-namespaces" },
  { name: "nft", what: "the output of nft for our table", runs: "in-namespaces", alone: true },
  {
    name: "image",
    what: "a release: its image, built and run, and how it is published",
    runs: "in-namespaces",
    long: true,
    alone: true,
  },
  {
    name: "page",
    what: "the status page in Chromium; dashboard, alerts, kustomizations, Helm chart",
    runs: "in-namespaces",
    long: true,
    alone: true,
  },
  { name: "rollback", what: "upgrade from older versions, rollback to them", runs: "in-namespaces", apart: true },
  {
    name: "package",
    what: "npm run pack, installed and run in a clean root, in Bun and in Deno",
    runs: "in-namespaces",
    apart: true,
  },
  { name: "kube-proxy", what: "together with kube-proxy itself ($KUBE_PROXY)", runs: "in-namespaces", apart: true },
];

/** How much of a command's work a run does. */
export type Share = "all" | "short" | "–";

export interface Command {
  /** After `npm run`. */
  readonly name: string;
  readonly what: string;
  /** On two idle cores. */
  readonly takes: string;
  /** Directory of the README that says more. */
  readonly readme?: string;
  /** Its share in `npm test`; in CI, which runs `npm test` and `npm run test:all`; and in `npm run test:nightly`. */
  readonly in: Readonly<Record<"test" | "ci" | "nightly", Share>>;
}

const NEVER = { test: "–", ci: "–", nightly: "–" } as const;
/** Commands that only the nightly run runs. */
const NIGHTLY = { test: "–", ci: "–", nightly: "all" } as const;

/** The command of one tier: all of its tests, and nothing else. */
function ofTier(name: string, takes: string, readme?: string): Command {
  const { what, apart, long } = tiers.find((tier) => tier.name === name)!;
  const shares = { test: long ? "–" : "short", ci: "all", nightly: "all" } as const;
  const ofApart = name === "kube-proxy" ? NEVER : NIGHTLY;
  return { name: `test:${name}`, what, takes, readme, in: apart ? ofApart : shares };
}

export const commands: readonly Command[] = [
  { name: "test", what: "every tier, shortened", takes: "6 min", in: { test: "all", ci: "all", nightly: "all" } },
  {
    name: "test:all",
    what: "every test of every tier",
    takes: "23 min",
    in: { test: "short", ci: "all", nightly: "all" },
  },
  {
    name: "test:nightly",
    what: "longer: 1,000,000 fuzz inputs, 200 kills, 240 random seeds; the linter of C++; what only this run runs, one of the other kernels in turns, and arm64",
    takes: "4 h",
    in: { test: "short", ci: "short", nightly: "all" },
  },
  {
    name: "lint:ts",
    what: "types, prose, spelling, linter and formatter",
    takes: "1 min",
    in: { test: "short", ci: "all", nightly: "all" },
  },
  {
    name: "lint",
    what: "what `lint:ts` checks, and linter and formatter of C++",
    takes: "3 min",
    in: { test: "short", ci: "short", nightly: "all" },
  },
  ofTier("unit", "1 min"),
  ofTier("bootstrap", "2 min, 1 more the first time"),
  ofTier("conformance", "2 min"),
  ofTier("native", "1 min"),
  ofTier("packets", "10 min"),
  ofTier("library", "1 min"),
  {
    name: "test:nft",
    what: "the output of nft for our table, with nft of each Debian release, which it downloads",
    takes: "1 min",
    in: { test: "short", ci: "short", nightly: "all" },
  },
  ofTier("image", "5 min, 3 more the first time"),
  {
    name: "test:leaks",
    what: "10,000 of everything under LeakSanitizer",
    takes: "30 min",
    in: { test: "–", ci: "short", nightly: "short" },
  },
  {
    name: "test:endurance",
    what: "two minutes of changes to 5,000 services under traffic",
    takes: "5 min",
    in: { test: "–", ci: "short", nightly: "short" },
  },
  { name: "test:asan", what: "the addon, built with AddressSanitizer and UBSan", takes: "20 min", in: NIGHTLY },
  ofTier("page", "3 min, 1 more the first time"),
  ofTier("package", "5 min, 8 the first time"),
  ofTier("rollback", "15 min, 25 the first time", "test/rollback"),
  ofTier("kube-proxy", "12 min", "test/kube-proxy"),
  {
    name: "test:kernels",
    what: "other kernels, and arm64 (`-- --arch arm64`), in guests; downloads them",
    takes: "minutes; an hour if emulated",
    readme: "test/kernels",
    in: { ...NIGHTLY, nightly: "short" },
  },
  { name: "bench", what: "figures, on a quiet machine", takes: "10 min", readme: "test/bench", in: NEVER },
];
