/**
 * The program in the form of the image, which nodes run: a few files, compiled code for the commands, the startup snapshot for daemons, and
 * a launcher. `npm run bench` builds it in build/image first.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const IMAGE = join(ROOT, "build/image");

const WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

export const MAIN = join(IMAGE, "dist/main.js");

/** Node's flags and file, with which the launcher starts a daemon. */
export const DAEMON = ["--snapshot-blob", join(IMAGE, "daemon.blob"), MAIN] as const;

/**
 * Builds it in `image`, like deploy/Dockerfile, and returns the launcher's path: `nft-proxier`, with `kube-proxy` beside it. Needs a C++
 * compiler.
 */
export function makeImage(image = IMAGE): string {
  rmSync(image, { recursive: true, force: true });
  const run = (program: string, ...args: string[]): unknown =>
    execFileSync(program, args, { cwd: ROOT, stdio: ["ignore", "ignore", "pipe"] });
  run(process.execPath, "deploy/image/bundle.mjs", image);
  mkdirSync(join(image, "build/Release"), { recursive: true });
  cpSync(join(ROOT, "build/Release/nft_proxier.node"), join(image, "build/Release/nft_proxier.node"));
  mkdirSync(join(image, "cache"));
  run(process.execPath, "deploy/image/snapshot.mjs", image);
  mkdirSync(join(image, "bin"));
  for (const name of ["nft-proxier", "kube-proxy"]) symlinkSync("../dist/main.js", join(image, "bin", name));
  const launcher = join(image, "nft-proxier");
  const places = [`-DROOT="${image}"`, `-DNODE="${process.execPath}"`];
  run("c++", "-std=c++17", "-Os", ...WARNINGS, ...places, "-o", launcher, "deploy/image/launcher.cc");
  symlinkSync("nft-proxier", join(image, "kube-proxy"));
  run(launcher, "render", "--manifests", "deploy/examples/manifests", "--allow-incomplete");
  return launcher;
}

if (import.meta.main) makeImage();
