/** Older versions of the program, built from history with their own build, and kept under build/versions/. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync } from "node:fs";
import path from "node:path";
import { root } from "../checks.ts";

export interface OlderVersion {
  /** 12 digits. */
  readonly commit: string;
  /** "commit, date: title", for people. */
  readonly name: string;
  /** Path of its dist/main.js. */
  readonly main: string;
}

/** The variable that passes the versions to the tests, as JSON. */
export const VERSIONS_VARIABLE = "NFT_PROXIER_OLDER";

const directory = path.join(root, "build", "versions");

/** Each is the last commit before an addition to the table, or beside it: test/rollback/README.md. */
export const DEFAULT_COMMITS: readonly string[] = ["94812aa", "857a7fa", "f324091", "aa15746", "2f98861"];

function git(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync("git", args, { cwd: root, encoding: "utf8", maxBuffer: 1 << 28 });
  if (status !== 0) throw new Error(`git ${args.join(" ")}: ${stderr.trim()}`);
  return stdout.trim();
}

/** Checks the commit out and builds it, unless that has been done. Throws with the output of its build. */
export function prepareVersion(revision: string): OlderVersion {
  const commit = git("rev-parse", "--verify", "--short=12", `${revision}^{commit}`);
  const name = git("log", "-1", "--format=%h, %cs: %s", "--abbrev=12", commit);
  const checkout = path.join(directory, commit);
  if (!existsSync(checkout)) unpack(commit, checkout);
  shareNodeModules(checkout);
  console.log(`rollback: building ${name}`);
  const { status, stdout, stderr } = spawnSync("node", ["deploy/bootstrap.mjs"], { cwd: checkout, encoding: "utf8" });
  if (status !== 0) throw new Error(`${name}: could not be built in ${checkout}:\n${stdout}${stderr}`);
  return { commit, name, main: path.join(checkout, "dist", "main.js") };
}

/** Uses another name until it is complete: an interrupted run must not leave half a checkout. */
function unpack(commit: string, checkout: string): void {
  const partial = `${checkout}.partial`;
  rmSync(partial, { recursive: true, force: true });
  mkdirSync(partial, { recursive: true });
  const archive = path.join(directory, `${commit}.tar`);
  git("archive", "--output", archive, commit);
  const { status, stderr } = spawnSync("tar", ["-xf", archive, "-C", partial], { encoding: "utf8" });
  if (status !== 0) throw new Error(`tar: ${stderr}`);
  rmSync(archive);
  renameSync(partial, checkout);
}

/** Shares node_modules (420 MB) with a version that has the same packages. Others install their own. */
function shareNodeModules(checkout: string): void {
  const link = path.join(checkout, "node_modules");
  const lock = (where: string): string => readFileSync(path.join(where, "package-lock.json"), "utf8");
  if (!existsSync(link) && lock(checkout) === lock(root)) symlinkSync(path.join(root, "node_modules"), link);
}
