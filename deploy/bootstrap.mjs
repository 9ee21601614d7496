#!/usr/bin/env node
/**
 * Prepares a new checkout: Debian packages, npm packages with the pinned Node, the addon, dist/.
 *
 *   node deploy/bootstrap.mjs [--format] [--lint] [--asan] [--browser] [--image] [--no-addon] [-- SCRIPT ARGS...]
 *
 * - `--format` also installs the C++ formatter.
 * - `--lint` also installs the C++ formatter and linter.
 * - `--browser` also installs Chromium, for the status page's tests.
 * - `--image` also installs the programs that build and run the image.
 * - `--asan` also compiles a second addon under AddressSanitizer and UBSan, in build-asan/.
 * - `--no-addon` does not compile the addon, for scripts that do not load it.
 * - `--` runs SCRIPT with the pinned Node when everything is ready, and exits with its code.
 *
 * Plain JavaScript without dependencies, because it runs with the machine's own Node (>= 18) before anything is
 * installed. Each step does nothing if its work is already done.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const nodePackage = path.join(root, "node_modules", `node-linux-${process.arch}`);
const binDirectory = path.join(root, "node_modules", ".bin");
const pinnedNode = path.join(nodePackage, "bin", "node");
/** The same for people and PATH, under one name for all architectures. */
const nodeLink = path.join(binDirectory, "node");
const stamps = path.join(root, "build", "stamps");

/** The commands that the machine must have, with their Debian packages and purposes. */
const requirements = [
  { package: "g++", command: "c++", for: "compiling the addon" },
  { package: "make", command: "make", for: "compiling the addon" },
  { package: "python3", command: "python3", for: "node-gyp" },
  { package: "libmnl-dev", file: "/usr/include/libmnl/libmnl.h", for: "the addon" },
  { package: "libnftnl-dev", file: "/usr/include/libnftnl/expr.h", for: "the addon" },
  { package: "iproute2", command: "ip", for: "the network lab of tests and demo" },
  { package: "util-linux", command: "unshare", for: "the network lab of tests and demo" },
  { package: "nftables", command: "nft", for: "checking what others see of our table" },
  { package: "iptables", command: "iptables-nft-restore", for: "loading other programs' rules in tests" },
];
const formatRequirements = [{ package: "clang-format", command: "clang-format", for: "formatting C++" }];
const lintRequirements = [...formatRequirements, { package: "clang-tidy", command: "clang-tidy", for: "linting C++" }];
const browserRequirements = [{ package: "chromium", command: "chromium", for: "the status page's tests" }];
const imageRequirements = [
  { package: "mmdebstrap", command: "mmdebstrap", for: "the base of the test's image" },
  { package: "buildah", command: "buildah", for: "building the image" },
  { package: "runc", command: "runc", for: "running the image" },
  { package: "golang-github-containers-common", file: "/usr/share/containers/seccomp.json", for: "running the image" },
  { package: "ca-certificates", file: "/etc/ssl/certs/ca-certificates.crt", for: "the base of the test's image" },
];

const known = ["--format", "--lint", "--asan", "--browser", "--image", "--no-addon"];

const onTerminal = process.stdout.isTTY;
/** Interval between two signs of life of a step. A terminal shows them in one line; a log gets a line each. */
const SIGN_OF_LIFE_MS = onTerminal ? 500 : 10_000;

/** The steps in progress, which are shown in the terminal's last line. */
const steps = new Set();

let worked = false;

const secondsSince = (start) => (Date.now() - start) / 1000;

function describe({ text, progress, start }) {
  const seconds = Math.round(secondsSince(start));
  return `${text}: ${progress === "" ? "" : `${progress}, `}${seconds} s`;
}

function showSteps() {
  if (!onTerminal) return;
  const line = steps.size === 0 ? "" : `bootstrap: ${[...steps].map(describe).join("; ")}`;
  process.stdout.write(`\r\x1b[K${line.slice(0, (process.stdout.columns || 80) - 1)}`);
}

/** Prints a line above the terminal's last one. */
function say(text) {
  worked = true;
  console.log(`${onTerminal ? "\r\x1b[K" : ""}bootstrap: ${text}`);
  showSteps();
}

class Failure extends Error {
  constructor(reason, command, output) {
    super(reason);
    this.command = command;
    this.output = output;
  }
}

/**
 * Ends the program with a reason and, if there are any, the exact command to run instead and the output of the command
 * that failed.
 */
function fail(reason, command, output) {
  throw new Failure(reason, command, output);
}

function explain({ message, command, output = "" }) {
  process.stderr.write(output === "" || output.endsWith("\n") ? output : `${output}\n`);
  console.error(`bootstrap: ${message}`);
  if (command !== undefined) console.error(`\nRun this, then start again:\n\n    ${command}\n`);
}

/**
 * Does the work of one step, and prints how long it took. Meanwhile it prints at intervals, and when `work` reports
 * progress, that the step lives.
 */
async function step(text, work) {
  const current = { text, progress: "", start: Date.now() };
  const show = () => (onTerminal ? showSteps() : say(describe(current)));
  steps.add(current);
  if (onTerminal) showSteps();
  else say(`${text} ...`);
  const timer = setInterval(show, SIGN_OF_LIFE_MS);
  try {
    await work((progress) => {
      if (progress === current.progress) return;
      current.progress = progress;
      show();
    });
  } finally {
    clearInterval(timer);
    steps.delete(current);
    showSteps();
  }
  say(`${text}: done in ${secondsSince(current.start).toFixed(1)} s`);
}

/** Waits for all, and then fails if one has failed: a command that another one left behind would disturb the next run. */
async function all(promises) {
  const failed = (await Promise.allSettled(promises)).find(({ status }) => status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

/** Adds the directories of administrators' commands, which are not on every user's PATH. */
function searchPath() {
  const directories = (process.env.PATH ?? "").split(path.delimiter).filter((directory) => directory !== "");
  return [...directories, "/usr/local/sbin", "/usr/sbin", "/sbin"];
}

function isCommand(name) {
  return searchPath().some((directory) => {
    try {
      fs.accessSync(path.join(directory, name), fs.constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/**
 * The environment of all child processes. The pinned Node is first on PATH, and npm's own configuration is removed.
 * node-gyp would treat that as its options, and a configured `nodedir` overrides the one on the command line.
 */
function childEnvironment() {
  const environment = {};
  for (const [name, value] of Object.entries(process.env)) {
    if (!name.toLowerCase().startsWith("npm_config_")) environment[name] = value;
  }
  const inherited = searchPath().filter((directory) => directory !== binDirectory);
  environment.PATH = [binDirectory, ...new Set(inherited)].join(path.delimiter);
  return environment;
}

/** Runs a command. `onOutput` gets its output so far whenever there is more. */
function run(command, args, { env, onOutput } = {}) {
  return new Promise((resolve) => {
    let output = "";
    const child = spawn(command, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"], env });
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => {
        output += text;
        onOutput?.(output);
      });
    }
    child.on("error", (error) => resolve({ ok: false, output: `${output}${error}` }));
    child.on("close", (code) => resolve({ ok: code === 0, output }));
  });
}

async function runOrFail(what, command, args, options) {
  const { ok, output } = await run(command, args, options);
  if (!ok) fail(`${what} failed: ${[command, ...args].join(" ")}`, undefined, output);
}

function checkPlatform() {
  if (process.platform !== "linux") fail(`this runs on Linux only, not on ${process.platform}`);
  if (!["x64", "arm64"].includes(process.arch)) fail(`no pinned Node for ${process.arch}; x64 and arm64 are supported`);
  if (Number(process.versions.node.split(".")[0]) < 18) fail(`Node ${process.versions.node} is too old; 18 or newer`);
}

function missingRequirements(list) {
  return list.filter(({ command, file }) => (command ? !isCommand(command) : !fs.existsSync(file)));
}

/**
 * Finds out which packages are missing, and fails at once if they cannot be installed: before npm starts its work, which
 * takes minutes. Returns the installation with apt-get, as root or through a sudo without password.
 */
async function planPackages(list) {
  const missing = missingRequirements(list);
  if (missing.length === 0) return () => undefined;
  const packages = missing.map((requirement) => requirement.package);
  for (const requirement of missing) {
    say(`missing: ${requirement.command ?? requirement.file} (package ${requirement.package}, for ${requirement.for})`);
  }
  const install = ["apt-get", "install", "-y", "--no-install-recommends", ...packages];
  const byHand = `sudo apt-get update && sudo ${install.join(" ")}`;
  if (!isCommand("apt-get")) {
    fail(
      `this machine has no apt-get; install what gives ${packages.join(", ")} on Debian with its own package manager`,
    );
  }
  const isRoot = process.getuid() === 0;
  if (!isRoot && !(await run("sudo", ["-n", "true"])).ok)
    fail("installing packages needs root (or a sudo without password)", byHand);
  // sudo drops the environment, so env(1) sets the variables that apt needs.
  const prefix = [...(isRoot ? [] : ["sudo", "-n"]), "env", "DEBIAN_FRONTEND=noninteractive"];
  const apt = (args) => run(prefix[0], [...prefix.slice(1), ...args]);
  return async () => {
    await step(`installing Debian packages: ${packages.join(" ")}`, async () => {
      if ((await apt(install)).ok) return;
      say("apt-get could not install from the lists it has; updating them");
      const update = await apt(["apt-get", "update"]);
      const second = await apt(install);
      if (!second.ok) fail("apt-get could not install the packages", byHand, update.output + second.output);
    });
    const still = missingRequirements(missing);
    if (still.length > 0) {
      fail(
        `still missing after the installation: ${still.map((item) => item.command ?? item.file).join(", ")}`,
        byHand,
      );
    }
  };
}

function readJson(file) {
  try {
    return JSON.parse(fs.readFileSync(file, "utf8"));
  } catch {
    return undefined;
  }
}

/** Whether an optional package is a build for this machine. The others belong to builds for other platforms. */
function isForThisMachine({ os: systems = [], cpu = [], libc = ["glibc"] }) {
  return systems.includes("linux") && cpu.includes(process.arch) && libc.includes("glibc");
}

/**
 * Returns the packages of package-lock.json that node_modules does not have. npm writes a copy of what it installed there
 * as its last step.
 */
function missingNpmPackages() {
  const wanted = readJson(path.join(root, "package-lock.json"))?.packages;
  const installed = readJson(path.join(root, "node_modules", ".package-lock.json"))?.packages ?? {};
  if (wanted === undefined) fail("package-lock.json is missing or damaged", "git checkout -- package-lock.json");
  const missing = Object.entries(wanted).filter(([key, entry]) => {
    if (key === "" || (entry.optional && !isForThisMachine(entry))) return false;
    return installed[key]?.version !== entry.version || installed[key]?.integrity !== entry.integrity;
  });
  return missing.map(([key]) => key.replace(/^node_modules\//, ""));
}

async function ensureNpmPackages() {
  if (missingNpmPackages().length === 0 && fs.existsSync(pinnedNode)) return;
  // npm tells its scripts where it is. Outside of npm, use the one on PATH.
  const npmScript = process.env.npm_execpath;
  const [command, prefix] = npmScript?.endsWith(".js") ? [process.execPath, [npmScript]] : ["npm", []];
  const options = ["--ignore-scripts", "--include=optional", "--no-audit", "--no-fund", "--loglevel=error"];
  const preload = `--require=${JSON.stringify(path.join(root, "deploy", "npm-node-version.cjs"))}`;
  const env = { ...process.env, NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ""} ${preload}` };
  await step("installing npm packages, with the pinned Node (npm ci)", () =>
    runOrFail("npm ci", command, [...prefix, "ci", ...options], { env }),
  );
  const missing = missingNpmPackages();
  if (missing.length > 0) fail(`npm ci succeeded, but did not install ${missing.join(", ")}`);
}

/**
 * Makes the link that documents name. The pinned Node has a package per architecture, each with the command `node`. When
 * npm before 11 leaves one out, it also removes the other one's link.
 */
function ensureNodeLink() {
  if (fs.existsSync(nodeLink)) return;
  fs.rmSync(nodeLink, { force: true });
  fs.symlinkSync(path.relative(binDirectory, pinnedNode), nodeLink);
}

/**
 * Makes the library's package out of dist/, under the name that its users import: examples and tests import it as they do.
 */
function ensureLibraryPackage() {
  const directory = path.join(root, "node_modules", "@nft-proxier", "nft");
  for (const [name, target] of [
    ["package.json", "src/nft/package.json"],
    ["dist", "dist"],
  ]) {
    const link = path.join(directory, name);
    if (fs.existsSync(link)) continue;
    fs.mkdirSync(directory, { recursive: true });
    fs.rmSync(link, { force: true });
    fs.symlinkSync(path.relative(directory, path.join(root, target)), link);
  }
}

/** Returns all files under the given paths, relative to the root, sorted. */
function filesUnder(...paths) {
  const found = [];
  const visit = (relative) => {
    const stat = fs.statSync(path.join(root, relative), { throwIfNoEntry: false });
    if (stat?.isDirectory()) for (const name of fs.readdirSync(path.join(root, relative))) visit(`${relative}/${name}`);
    else if (stat !== undefined) found.push(relative);
  };
  for (const start of paths) visit(start);
  return found.sort((a, b) => (a < b ? -1 : 1));
}

/** Returns a digest of files' names and contents, and of anything else that affects the outcome of a step. */
function digest(files, ...extra) {
  const hash = createHash("sha256");
  for (const file of files)
    hash
      .update(`${file}\0`)
      .update(fs.readFileSync(path.join(root, file)))
      .update("\0");
  for (const text of extra) hash.update(`${text}\0`);
  return hash.digest("hex");
}

function packageVersion(name) {
  return readJson(path.join(root, "node_modules", name, "package.json"))?.version;
}

/** Does a step, unless its stamp has the digest of these inputs and its outputs exist. */
async function unlessStamped(name, inputs, outputs, work) {
  const stamp = path.join(stamps, name);
  const missing = () => outputs.find((output) => !fs.existsSync(output));
  if (missing() === undefined && fs.existsSync(stamp) && fs.readFileSync(stamp, "utf8") === inputs) return;
  fs.rmSync(stamp, { force: true });
  await work();
  if (missing() !== undefined) fail(`${path.relative(root, missing())} was not made`);
  fs.mkdirSync(stamps, { recursive: true });
  fs.writeFileSync(stamp, inputs);
}

/** Counts the files that make starts to compile, or would start in a dry run, according to its output. */
const compilationsIn = (output) => output.match(/CXX\(target\)/g)?.length ?? 0;

/**
 * Compiles the addon, and the one that only tests load, in `directory`/build. Does not use `node-gyp rebuild`, which
 * removes all of build/ with our stamps.
 */
async function buildAddon(directory, gypArguments, report) {
  const gyp = path.join(root, "node_modules", "node-gyp", "bin", "node-gyp.js");
  const common = [`--nodedir=${nodePackage}`, `--directory=${directory}`, "--loglevel=error"];
  const env = childEnvironment();
  const variables = ["-Dtests=1", ...gypArguments];
  await runOrFail("configuring the addon", pinnedNode, [gyp, "configure", ...common, "--", ...variables], { env });
  const jobs = `--jobs=${os.cpus().length}`;
  const plan = await run("make", ["--dry-run", "BUILDTYPE=Release", "-C", path.join(directory, "build")], { env });
  const total = compilationsIn(plan.output);
  const onOutput = (output) => {
    const started = compilationsIn(output);
    if (started > 0) report(`file ${started} of ${total}`);
  };
  await runOrFail("compiling the addon", pinnedNode, [gyp, "build", ...common, jobs], { env, onOutput });
}

function addonInputs() {
  return digest(
    filesUnder("binding.gyp", "native", "test/native/addon").filter((file) => !file.endsWith(".md")),
    packageVersion("node-addon-api"),
    packageVersion("node-gyp"),
    packageVersion(path.basename(nodePackage)),
  );
}

/** The paths of the shipped addon and of the tests' own, as node-gyp creates them in a directory. */
function addonsIn(directory) {
  return ["nft_proxier.node", "nft_proxier_test.node"].map((file) => path.join(directory, "build", "Release", file));
}

function ensureAddon() {
  return unlessStamped("addon", addonInputs(), addonsIn(root), () =>
    step("compiling the addon", (report) => buildAddon(root, [], report)),
  );
}

/** node-gyp always builds in ./build, so the sanitized addon gets a directory that shares our sources. */
function ensureSanitizedAddon() {
  const directory = path.join(root, "build-asan");
  return unlessStamped("addon-asan", addonInputs(), addonsIn(directory), () =>
    step("compiling the addon under AddressSanitizer and UBSan", (report) => {
      fs.mkdirSync(directory, { recursive: true });
      for (const name of ["binding.gyp", "native", "package.json", "test"]) {
        fs.rmSync(path.join(directory, name), { force: true });
        fs.symlinkSync(path.join("..", name), path.join(directory, name));
      }
      return buildAddon(directory, ["-Dsanitize=1"], report);
    }),
  );
}

/** tsc keeps the output of deleted sources, but a stale module must not remain importable. */
function removeOrphans(dist) {
  for (const file of filesUnder(dist)) {
    const source = file.replace(/^dist\//, "src/").replace(/(\.d\.ts|\.js|\.js\.map)$/, ".ts");
    if (!fs.existsSync(path.join(root, source))) fs.rmSync(path.join(root, file));
  }
}

function ensureDist() {
  const output = path.join(root, "dist", "main.js");
  const inputs = digest(
    [...filesUnder("src"), "tsconfig.json", "deploy/page.mjs", "deploy/man.mjs"],
    packageVersion("typescript"),
    packageVersion("rolldown"),
  );
  return unlessStamped("dist", inputs, [output], () =>
    step("compiling TypeScript to dist/", async () => {
      await runOrFail("compiling TypeScript", path.join(binDirectory, "tsc"), ["-p", "tsconfig.json"], {
        env: childEnvironment(),
      });
      await runOrFail("building the status page", pinnedNode, ["deploy/page.mjs", "dist/daemon/page/page.html"]);
      removeOrphans("dist");
      await runOrFail("writing the manual page", pinnedNode, ["deploy/man.mjs", "dist/man/nft-proxier.8"]);
      fs.chmodSync(output, 0o755);
    }),
  );
}

/**
 * Runs the given script in place of this process, as far as Node can: same terminal, forwarded signals, same exit code.
 */
function become(args) {
  const child = spawn(pinnedNode, args, { cwd: root, stdio: "inherit", env: childEnvironment() });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) =>
    fail(`the pinned Node does not start: ${error.message}`, "rm -rf node_modules && npm ci"),
  );
  child.on("exit", (code, signal) => process.exit(code ?? 128 + (os.constants.signals[signal] ?? 0)));
}

async function main() {
  const start = Date.now();
  const args = process.argv.slice(2);
  const separator = args.indexOf("--");
  const options = separator === -1 ? args : args.slice(0, separator);
  const script = separator === -1 ? [] : args.slice(separator + 1);
  const unknown = options.find((option) => !known.includes(option));
  if (unknown !== undefined) fail(`unknown option ${unknown}; there are ${known.join(", ")} and -- SCRIPT`);

  checkPlatform();
  const packages = [
    ...requirements,
    ...(options.includes("--format") ? formatRequirements : []),
    ...(options.includes("--lint") ? lintRequirements : []),
    ...(options.includes("--browser") ? browserRequirements : []),
    ...(options.includes("--image") ? imageRequirements : []),
  ];
  const installPackages = await planPackages(packages);
  await all([installPackages(), ensureNpmPackages()]);
  ensureNodeLink();
  await all([
    ...(options.includes("--no-addon") ? [] : [ensureAddon()]),
    ...(options.includes("--asan") ? [ensureSanitizedAddon()] : []),
    ensureDist(),
  ]);
  ensureLibraryPackage();
  console.log(`bootstrap: ${worked ? "ready" : "everything is in place"} (${secondsSince(start).toFixed(1)} s)`);
  if (script.length > 0) become(script);
}

try {
  await main();
} catch (error) {
  if (!(error instanceof Failure)) throw error;
  explain(error);
  process.exitCode = 1;
}
