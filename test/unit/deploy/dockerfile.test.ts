/**
 * deploy/Dockerfile without an image. The commands of each stage run on exactly the committed files that .dockerignore lets through. Then
 * the program starts in a root with only the resulting files. `npm run test:image` builds the real image.
 *
 * Each stage gets an overlay of this machine's file system as its root. Three commands are replaced, because they need the network or time:
 *
 * - `npm ci` links the checkout's packages.
 * - `apt-get` checks that its packages are installed.
 * - node-gyp configures, checks that every source is there, and takes the checkout's addon.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { patience } from "../../lab/patience.ts";
import { missingNotices } from "../../support/notices.ts";
import { parseDockerfile, quoted, readDockerignore, type Stage, stageScript } from "../../support/dockerfile.ts";

const ROOT = path.resolve(import.meta.dirname, "../../..");
const NODE = path.join(ROOT, "node_modules", `node-linux-${process.arch}`);
const read = (file: string): string => readFileSync(path.join(ROOT, file), "utf8");
const dockerfile = parseDockerfile(read("deploy/Dockerfile"));
const { version } = JSON.parse(read("package.json")) as { readonly version: string };

const NPM = `#!/bin/sh
set -e
test "$1" = ci
for file in .npmrc package.json package-lock.json; do cmp "$file" "${ROOT}/$file"; done
mkdir node_modules && ln -s ${ROOT}/node_modules/* ${ROOT}/node_modules/.bin node_modules/
rm node_modules/node-gyp && mkdir -p node_modules/node-gyp/bin && cp /usr/local/lib/node-gyp.js node_modules/node-gyp/bin/
`;
const APT_GET = `#!/bin/sh
if [ "$1" = install ]; then shift; for word; do case "$word" in -*) ;; *) dpkg-query --status "$word" > /dev/null || exit 1 ;; esac; done; fi
`;
const NODE_GYP = `
const { execFileSync } = require("node:child_process");
const run = (program, ...args) => execFileSync(program, args, { stdio: ["ignore", "ignore", "inherit"] });
if (process.argv[2] !== "rebuild") throw new Error("expected rebuild");
run(process.execPath, "${ROOT}/node_modules/node-gyp/bin/node-gyp.js", "configure", ...process.argv.slice(3), "--loglevel=error");
run("make", "--dry-run", "--directory=build", "BUILDTYPE=Release");
require("node:fs").cpSync("${ROOT}/build/Release/nft_proxier.node", "build/Release/nft_proxier.node");
`;

/** Ends only a stage that hangs: the commands take 20 s of two idle cores. */
const LIMIT_MS = patience(600_000);

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(path.join(tmpdir(), "dockerfile-"));
});
afterAll(() => rmSync(directory, { recursive: true }));

const upper = (stage: string): string => path.join(directory, stage, "upper");

/** Runs a shell script in its own mount namespace. Returns its output; throws with it if it fails. */
function inMounts(script: string): string {
  const limit = { timeout: LIMIT_MS, killSignal: "SIGKILL" } as const;
  const done = spawnSync("unshare", ["--mount", "sh", "-ec", script], { encoding: "utf8", ...limit });
  if (done.status !== 0) throw new Error(`exit ${done.status ?? done.signal}\n${done.stdout}${done.stderr}`);
  return done.stdout;
}

/** Runs a stage's commands; its files are then in upper(stage.name). */
function runStage(stage: Stage, context: string): void {
  const local = path.join(upper(stage.name), "usr/local");
  const merged = path.join(directory, stage.name, "merged");
  for (const name of ["bin", "include", "lib"]) mkdirSync(path.join(local, name), { recursive: true });
  for (const one of [merged, path.join(directory, stage.name, "work")]) mkdirSync(one);
  writeFileSync(path.join(local, "bin/npm"), NPM, { mode: 0o755 });
  writeFileSync(path.join(local, "bin/apt-get"), APT_GET, { mode: 0o755 });
  writeFileSync(path.join(local, "lib/node-gyp.js"), NODE_GYP);
  for (const name of ["bin/node", "include/node"]) symlinkSync(path.join(NODE, name), path.join(local, name));
  const options = `lowerdir=/,upperdir=${upper(stage.name)},workdir=${path.join(directory, stage.name, "work")}`;
  const binds = ["/proc", "/dev", ROOT, directory].map(
    (at) => `mkdir -p ${merged}${at} && mount --rbind ${at} ${merged}${at}`,
  );
  const script = stageScript(dockerfile, stage, context, upper);
  const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  const enter = `exec env -i HOME=/root PATH=${PATH} chroot ${merged} /bin/sh -c ${quoted(script)}`;
  inMounts([`mount -t overlay overlay -o ${options} ${merged}`, ...binds, enter].join("\n"));
}

/** Copies the committed files that .dockerignore lets through. */
function makeContext(isAllowed: (file: string) => boolean): string {
  const context = path.join(directory, "context");
  const tracked = execFileSync("git", ["ls-files", "-z"], { cwd: ROOT, encoding: "utf8" }).split("\0");
  for (const file of tracked.filter(isAllowed)) cpSync(path.join(ROOT, file), path.join(context, file));
  return context;
}

test("the Dockerfile needs nothing that only BuildKit has", () => {
  const text = read("deploy/Dockerfile");
  // Other builders leave the platforms of the build and the target empty.
  const inFrom = text.match(/^FROM .*$/gm)?.flatMap((line) => line.match(/(?<=\$\{?)\w+/g) ?? []) ?? [];
  expect(inFrom.filter((name) => !dockerfile.globals[name])).toEqual([]);
  expect(text.match(/^(?:RUN|COPY|ADD) --(?!from=)\S+|<<-?["']?\w+|^# *syntax=.*/gm)).toBeNull();
});

// Mounts of an overlay over the machine's files need real root.
describe.skipIf(process.getuid?.() !== 0)("deploy/Dockerfile", () => {
  test(
    "each stage's commands succeed, and the resulting files run the program alone",
    () => {
      const context = makeContext(readDockerignore(read(".dockerignore")));
      const stages = dockerfile.stages.filter(({ name }) => name !== "");
      for (const stage of stages) runStage(stage, context);
      const image = path.join(upper("native"), "image");
      mkdirSync(path.join(image, "proc"));
      const commands = [
        "nft-proxier --version",
        "kube-proxy --version",
        "nft-proxier services --help",
        "kube-proxy --help",
        // Loads the addon with its libraries.
        `node -e 'require("/opt/nft-proxier/build/Release/nft_proxier.node")'`,
      ];
      const run = commands.map((words) => `chroot ${image} /usr/local/bin/${words}`);
      const output = inMounts([`mount --rbind /proc ${image}/proc`, ...run].join("\n"));
      expect(output.match(new RegExp(`\\b${version.replaceAll(".", "\\.")}\\b`, "g"))).toHaveLength(2);
      expect(output).toContain("Usage: nft-proxier services");
      expect(output).toContain("Usage: kube-proxy");
      expect(readFileSync(path.join(image, "opt/nft-proxier/dist/chunks/page.html"), "utf8")).toContain("<style>");
      expect(readFileSync(path.join(image, "opt/nft-proxier/LICENSE"), "utf8")).toBe(read("LICENSE"));
      expect(missingNotices(image)).toEqual([]);
    },
    2 * LIMIT_MS,
  );
});
