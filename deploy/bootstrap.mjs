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
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const nodePackage = path.join(root, "node_modules", `node-linux-${process.arch}`);
const binDirectory = path.join(root, "node_modules", ".bin");
const pinnedNode = path.join(binDirectory, "node");
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

let worked = false;

/** Prints a progress line. */
function say(text) {
  worked = true;
  console.log(`bootstrap: ${text}`);
}

/** Exits with a reason and, if there is one, the exact command to run instead. */
function fail(reason, command) {
  console.error(`bootstrap: ${reason}`);
  if (command !== undefined) console.error(`\nRun this, then start again:\n\n    ${command}\n`);
  process.exit(1);
}

/** Does the work of one step, and prints how long it took. */
function step(text, work) {
  say(`${text} ...`);
  const start = Date.now();
  work();
  say(`${text}: done in ${((Date.now() - start) / 1000).toFixed(1)} s`);
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

/** Runs a command, and shows its output only if it fails. */
function run(command, args, options = {}) {
  const result = spawnSync(command, args, {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 28,
    stdio: ["ignore", "pipe", "pipe"],
    ...options,
  });
  return { ok: result.status === 0, output: `${result.stdout ?? ""}${result.stderr ?? ""}${result.error ?? ""}` };
}

function runOrFail(what, command, args, options) {
  const { ok, output } = run(command, args, options);
  if (ok) return;
  process.stderr.write(output.endsWith("\n") ? output : `${output}\n`);
  fail(`${what} failed: ${[command, ...args].join(" ")}`);
}

function checkPlatform() {
  if (process.platform !== "linux") fail(`this runs on Linux only, not on ${process.platform}`);
  if (!["x64", "arm64"].includes(process.arch)) fail(`no pinned Node for ${process.arch}; x64 and arm64 are supported`);
  if (Number(process.versions.node.split(".")[0]) < 18) fail(`Node ${process.versions.node} is too old; 18 or newer`);
}

function missingRequirements(list) {
  return list.filter(({ command, file }) => (command ? !isCommand(command) : !fs.existsSync(file)));
}

/** Installs missing packages with apt-get, as root or through a sudo without password. */
function ensurePackages(list) {
  const missing = missingRequirements(list);
  if (missing.length === 0) return;
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
  if (!isRoot && !run("sudo", ["-n", "true"]).ok)
    fail("installing packages needs root (or a sudo without password)", byHand);
  // sudo drops the environment, so env(1) sets the variables that apt needs.
  const prefix = [...(isRoot ? [] : ["sudo", "-n"]), "env", "DEBIAN_FRONTEND=noninteractive"];
  const apt = (args) => run(prefix[0], [...prefix.slice(1), ...args]);
  step(`installing Debian packages: ${packages.join(" ")}`, () => {
    if (apt(install).ok) return;
    say("apt-get could not install from the lists it has; updating them");
    const update = apt(["apt-get", "update"]);
    const second = apt(install);
    if (!second.ok) {
      process.stderr.write(update.output + second.output);
      fail("apt-get could not install the packages", byHand);
    }
  });
  const still = missingRequirements(missing);
  if (still.length > 0) {
    fail(`still missing after the installation: ${still.map((item) => item.command ?? item.file).join(", ")}`, byHand);
  }
}

function readJson(file) {
  try {
    return JSON.parse(fs.readFileSync(file, "utf8"));
  } catch {
    return undefined;
  }
}

/**
 * Whether node_modules matches package-lock.json. npm writes a copy of what it installed there as its last step. Each
 * optional package is for one platform, so only the pinned Node is checked among those.
 */
function npmPackagesInPlace() {
  const wanted = readJson(path.join(root, "package-lock.json"))?.packages;
  const installed = readJson(path.join(root, "node_modules", ".package-lock.json"))?.packages;
  if (wanted === undefined) fail("package-lock.json is missing or damaged", "git checkout -- package-lock.json");
  if (installed === undefined || !fs.existsSync(pinnedNode)) return false;
  const nodeKey = `node_modules/${path.basename(nodePackage)}`;
  return Object.entries(wanted).every(([key, entry]) => {
    if (key === "" || (entry.optional && key !== nodeKey)) return true;
    return installed[key]?.version === entry.version && installed[key]?.integrity === entry.integrity;
  });
}

function ensureNpmPackages() {
  if (npmPackagesInPlace()) return;
  // npm tells its scripts where it is. Outside of npm, use the one on PATH.
  const npmScript = process.env.npm_execpath;
  const [command, prefix] = npmScript?.endsWith(".js") ? [process.execPath, [npmScript]] : ["npm", []];
  step("installing npm packages, with the pinned Node (npm ci)", () => {
    runOrFail("npm ci", command, [...prefix, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], {
      env: process.env,
    });
  });
  if (!fs.existsSync(pinnedNode)) {
    fail(
      `npm did not install ${path.basename(nodePackage)}; is it told to skip optional packages?`,
      "npm ci --include=optional",
    );
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
function unlessStamped(name, inputs, outputs, work) {
  const stamp = path.join(stamps, name);
  const missing = () => outputs.find((output) => !fs.existsSync(output));
  if (missing() === undefined && fs.existsSync(stamp) && fs.readFileSync(stamp, "utf8") === inputs) return;
  fs.rmSync(stamp, { force: true });
  work();
  if (missing() !== undefined) fail(`${path.relative(root, missing())} was not made`);
  fs.mkdirSync(stamps, { recursive: true });
  fs.writeFileSync(stamp, inputs);
}

/**
 * Compiles the addon, and the one that only tests load, in `directory`/build. Does not use `node-gyp rebuild`, which
 * removes all of build/ with our stamps.
 */
function buildAddon(directory, gypArguments) {
  const gyp = path.join(root, "node_modules", "node-gyp", "bin", "node-gyp.js");
  const common = [`--nodedir=${nodePackage}`, `--directory=${directory}`, "--loglevel=error"];
  const env = childEnvironment();
  const variables = ["-Dtests=1", ...gypArguments];
  runOrFail("configuring the addon", pinnedNode, [gyp, "configure", ...common, "--", ...variables], { env });
  const jobs = `--jobs=${os.cpus().length}`;
  runOrFail("compiling the addon", pinnedNode, [gyp, "build", ...common, jobs], { env });
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
  unlessStamped("addon", addonInputs(), addonsIn(root), () => {
    step("compiling the addon", () => buildAddon(root, []));
  });
}

/** node-gyp always builds in ./build, so the sanitized addon gets a directory that shares our sources. */
function ensureSanitizedAddon() {
  const directory = path.join(root, "build-asan");
  unlessStamped("addon-asan", addonInputs(), addonsIn(directory), () => {
    step("compiling the addon under AddressSanitizer and UBSan", () => {
      fs.mkdirSync(directory, { recursive: true });
      for (const name of ["binding.gyp", "native", "package.json", "test"]) {
        fs.rmSync(path.join(directory, name), { force: true });
        fs.symlinkSync(path.join("..", name), path.join(directory, name));
      }
      buildAddon(directory, ["-Dsanitize=1"]);
    });
  });
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
  unlessStamped("dist", inputs, [output], () => {
    step("compiling TypeScript to dist/", () => {
      runOrFail("compiling TypeScript", path.join(binDirectory, "tsc"), ["-p", "tsconfig.json"], {
        env: childEnvironment(),
      });
      runOrFail("building the status page", pinnedNode, ["deploy/page.mjs", "dist/daemon/page/page.html"]);
      removeOrphans("dist");
      runOrFail("writing the manual page", pinnedNode, ["deploy/man.mjs", "dist/man/nft-proxier.8"]);
      fs.chmodSync(output, 0o755);
    });
  });
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

function main() {
  const start = Date.now();
  const args = process.argv.slice(2);
  const separator = args.indexOf("--");
  const options = separator === -1 ? args : args.slice(0, separator);
  const script = separator === -1 ? [] : args.slice(separator + 1);
  const unknown = options.find((option) => !known.includes(option));
  if (unknown !== undefined) fail(`unknown option ${unknown}; there are ${known.join(", ")} and -- SCRIPT`);

  checkPlatform();
  ensurePackages([
    ...requirements,
    ...(options.includes("--format") ? formatRequirements : []),
    ...(options.includes("--lint") ? lintRequirements : []),
    ...(options.includes("--browser") ? browserRequirements : []),
    ...(options.includes("--image") ? imageRequirements : []),
  ]);
  ensureNpmPackages();
  if (!options.includes("--no-addon")) ensureAddon();
  if (options.includes("--asan")) ensureSanitizedAddon();
  ensureDist();
  console.log(`bootstrap: ${worked ? "ready" : "everything is in place"} (${Date.now() - start} ms)`);
  if (script.length > 0) become(script);
}

main();
