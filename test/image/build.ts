/**
 * Builds the image as a release does, in a clone of the current commit. Without registries, its base images are stand-ins
 * (deploy/release/image.ts). Runs outside the tests' namespaces, because it needs the network:
 *
 *   node test/image/build.ts     writes build/image-test/
 */
import { spawnSync } from "node:child_process";
import {
  appendFileSync,
  cpSync,
  globSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { type ImageConfig, inspectImage, whyNoBuildah, withArchive, withFiles } from "../../deploy/release/image.ts";
import { mustRun, unpacked } from "../lab/debian.ts";

const checkout = path.resolve(import.meta.dirname, "../..");
export const directory = path.join(checkout, "build", "image-test");
/** A clean checkout of the tested commit, with the result of `npm run release -- --dry-run` in build/release/. */
export const clone = path.join(directory, "clone");
export const dryRunOutput = path.join(directory, "dry-run.txt");
export const reportFile = path.join(directory, "report.json");

export interface Report {
  /** Reason why the image was not built; the other fields are then absent. */
  readonly skipped?: string;
  /** Directory with the image's files. */
  readonly root?: string;
  /** The image's configuration, as `buildah inspect` shows it. */
  readonly config?: ImageConfig;
  /** The built commit. */
  readonly revision?: string;
}

/** Clones the current commit, or one that also has the changes of tracked files that are not committed yet. */
function cloneTo(clone: string): void {
  const changed = mustRun("git", ["stash", "create"], { cwd: checkout }).trim();
  const commit = mustRun("git", ["rev-parse", "HEAD"], { cwd: checkout }).trim();
  mustRun("git", ["clone", "-q", "--no-checkout", checkout, clone]);
  if (changed !== "") {
    console.log("image: includes changes that are not committed");
    mustRun("git", ["fetch", "-q", checkout, changed], { cwd: clone });
  }
  mustRun("git", ["checkout", "-q", changed === "" ? commit : changed], { cwd: clone });
}

/** Runs the dry run of a release in the clone, as a user would, and shows its output. */
function dryRun(): void {
  const { status } = spawnSync("npm", ["run", "release", "--", "--dry-run", "--only=image", "--only=sbom"], {
    cwd: clone,
    stdio: ["ignore", openSync(dryRunOutput, "w"), "inherit"],
  });
  const output = readFileSync(dryRunOutput, "utf8");
  console.log(output);
  if (status !== 0) throw new Error("the dry run of the release failed");
}

function build(): Report {
  const skipped = whyNoBuildah();
  if (skipped !== undefined) return { skipped };
  cloneTo(clone);
  const revision = mustRun("git", ["rev-parse", "HEAD"], { cwd: clone }).trim();
  symlinkSync(path.join(checkout, "node_modules"), path.join(clone, "node_modules"));
  appendFileSync(path.join(clone, ".git/info/exclude"), "node_modules\n");
  dryRun();
  const [file] = globSync(path.join(clone, "build/release/*.oci.tar"));
  const root = path.join(directory, "root");
  const config = withArchive(file, (image) => {
    // A copy, so that a container can create its mount points there.
    withFiles(image, (files) =>
      cpSync(files, root, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true }),
    );
    return inspectImage(image).config;
  });
  unpacked(path.join(directory, "..", "registry"), "bookworm", "a registry of images", (archive) =>
    archive.downloadWithDependencies("docker-registry"),
  );
  return { root, config, revision };
}

if (import.meta.main) {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  writeFileSync(reportFile, JSON.stringify(build()));
}
