/** Compiles the lab's C++ programs. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));

const ROOT = join(HERE, "../..");
/** Headers of Node's C++ API, the same for all processors. */
const NODE_HEADERS = [`node_modules/node-linux-${process.arch}/include/node`, "node_modules/node-addon-api"];

/** A C++ compiler, and the directory of its programs. */
export interface Toolchain {
  readonly compiler: string;
  readonly directory: string;
}

const NATIVE: Toolchain = { compiler: "c++", directory: join(ROOT, "build/lab") };

/**
 * Compiles `name`.cc unless the program in the toolchain's directory is newer than its sources and headers. Returns the program's path.
 */
export function buildProgram(
  name: string,
  headers: readonly string[] = [],
  optimize = "-O1",
  toolchain = NATIVE,
): string {
  return build(toolchain, name, name, headers, [optimize, "-pthread"]);
}

/** Like `buildProgram`, but builds a library for LD_PRELOAD. */
function buildLibrary(name: string, toolchain: Toolchain): string {
  return build(toolchain, name, `${name}.so`, [], ["-O1", "-shared", "-fPIC"]);
}

/** Like `buildProgram`, but builds a module for `require`. */
export function buildAddon(name: string, toolchain = NATIVE): string {
  const includes = NODE_HEADERS.flatMap((directory) => ["-isystem", join(ROOT, directory)]);
  return build(toolchain, name, `${name}.node`, [], ["-shared", "-fPIC", ...includes]);
}

/**
 * Helpers of the test tiers that guests run (test/kernels/), besides the agent. A guest has no compiler, so its image contains all of
 * these.
 */
const HELPERS = {
  conntrack: (toolchain: Toolchain) => buildProgram("conntrack", [], "-O2", toolchain),
  fate: (toolchain: Toolchain) => buildProgram("fate", ["net.hpp"], "-O1", toolchain),
  flood: (toolchain: Toolchain) => buildProgram("flood", [], "-O2", toolchain),
  "netlink-faults": (toolchain: Toolchain) => buildAddon("netlink-faults", toolchain),
  "no-ctnetlink": (toolchain: Toolchain) => buildLibrary("no-ctnetlink", toolchain),
};

/** Returns its path. */
export function buildHelper(name: keyof typeof HELPERS): string {
  return HELPERS[name](NATIVE);
}

export function buildHelpers(toolchain = NATIVE): void {
  for (const helper of Object.values(HELPERS)) helper(toolchain);
}

function build(
  { compiler, directory }: Toolchain,
  name: string,
  target: string,
  headers: readonly string[],
  options: readonly string[],
): string {
  const source = join(HERE, `${name}.cc`);
  const binary = join(directory, target);
  const newest = Math.max(
    ...[source, ...headers.map((header) => join(HERE, header))].map((path) => statSync(path).mtimeMs),
  );
  if (existsSync(binary) && statSync(binary).mtimeMs >= newest) return binary;
  mkdirSync(dirname(binary), { recursive: true });
  // Rename it into place: test files run in parallel, and another may be starting it.
  const fresh = `${binary}.${process.pid}`;
  const flags = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", ...options];
  const done = spawnSync(compiler, [...flags, source, "-o", fresh], { encoding: "utf8" });
  if (done.error) throw new Error(`no C++ compiler: ${done.error.message}`);
  if (done.status !== 0) throw new Error(`${name}.cc does not compile:\n${done.stderr}`);
  renameSync(fresh, binary);
  return binary;
}
