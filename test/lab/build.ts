/** Compiles the lab's C++ programs. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));

const ROOT = join(HERE, "../..");
/** Headers of Node's C++ API. */
const NODE_HEADERS = [`node_modules/node-linux-${process.arch}/include/node`, "node_modules/node-addon-api"];

/**
 * Compiles `name`.cc unless the program in build/lab is newer than its sources and headers. Returns the program's path.
 */
export function buildProgram(name: string, headers: readonly string[] = [], optimize = "-O1"): string {
  return build(name, name, headers, [optimize, "-pthread"]);
}

/** Like `buildProgram`, but builds a library for LD_PRELOAD. */
function buildLibrary(name: string): string {
  return build(name, `${name}.so`, [], ["-O1", "-shared", "-fPIC"]);
}

/** Like `buildProgram`, but builds a module for `require`. */
export function buildAddon(name: string): string {
  const includes = NODE_HEADERS.flatMap((directory) => ["-isystem", join(ROOT, directory)]);
  return build(name, `${name}.node`, [], ["-shared", "-fPIC", ...includes]);
}

/**
 * Helpers of the test tiers that guests run (test/kernels/), besides the agent. A guest has no compiler, so its image contains all of
 * these.
 */
const HELPERS = {
  conntrack: () => buildProgram("conntrack", [], "-O2"),
  fate: () => buildProgram("fate", ["net.hpp"]),
  flood: () => buildProgram("flood", [], "-O2"),
  "netlink-faults": () => buildAddon("netlink-faults"),
  "no-ctnetlink": () => buildLibrary("no-ctnetlink"),
};

/** Returns its path. */
export function buildHelper(name: keyof typeof HELPERS): string {
  return HELPERS[name]();
}

export function buildHelpers(): void {
  for (const helper of Object.values(HELPERS)) helper();
}

function build(name: string, target: string, headers: readonly string[], options: readonly string[]): string {
  const source = join(HERE, `${name}.cc`);
  const binary = join(ROOT, "build/lab", target);
  const newest = Math.max(
    ...[source, ...headers.map((header) => join(HERE, header))].map((path) => statSync(path).mtimeMs),
  );
  if (existsSync(binary) && statSync(binary).mtimeMs >= newest) return binary;
  mkdirSync(dirname(binary), { recursive: true });
  // Rename it into place: test files run in parallel, and another may be starting it.
  const fresh = `${binary}.${process.pid}`;
  const flags = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", ...options];
  const done = spawnSync("c++", [...flags, source, "-o", fresh], { encoding: "utf8" });
  if (done.error) throw new Error(`no C++ compiler: ${done.error.message}`);
  if (done.status !== 0) throw new Error(`${name}.cc does not compile:\n${done.stderr}`);
  renameSync(fresh, binary);
  return binary;
}
