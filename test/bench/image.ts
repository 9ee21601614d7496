/**
 * The program as the image has it, which is what runs on nodes: a few files, and compiled code for the commands. Makes it in build/image;
 * `npm run bench` does so at its start.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const IMAGE = join(ROOT, "build/image");

export const MAIN = join(IMAGE, "dist/main.js");

/** As deploy/Dockerfile does it. */
export function makeImage(): void {
  rmSync(IMAGE, { recursive: true, force: true });
  const node = (...args: string[]): unknown =>
    execFileSync(process.execPath, args, { cwd: ROOT, stdio: ["ignore", "ignore", "pipe"] });
  node("deploy/image/bundle.mjs", IMAGE);
  mkdirSync(join(IMAGE, "build/Release"), { recursive: true });
  cpSync(join(ROOT, "build/Release/nft_proxier.node"), join(IMAGE, "build/Release/nft_proxier.node"));
  mkdirSync(join(IMAGE, "cache"));
  node(MAIN, "render", "--manifests", "deploy/examples/manifests", "--allow-incomplete");
}

if (import.meta.main) makeImage();
