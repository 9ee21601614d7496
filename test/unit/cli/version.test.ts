import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { beforeEach, expect, test } from "vitest";
import { temporaryDirectory } from "../../support/temporary-directory.ts";

const COMMIT = "0123456789abcdef0123456789abcdef01234567";

let root: string;
beforeEach(() => {
  root = temporaryDirectory();
  mkdirSync(join(root, "dist/cli"), { recursive: true });
  cpSync(join(import.meta.dirname, "../../../dist/cli/version.js"), join(root, "dist/cli/version.js"));
});
/** Prints the version of a program in `root` with this package.json. */
function printed(manifest: object, raw = false, env: NodeJS.ProcessEnv = process.env): string {
  writeFileSync(join(root, "package.json"), JSON.stringify({ type: "module", version: "9.8.7", ...manifest }));
  const module = JSON.stringify(pathToFileURL(join(root, "dist/cli/version.js")).href);
  const script = `import { printVersion } from ${module};\nawait printVersion(${raw});`;
  return execFileSync(process.execPath, ["--input-type=module", "-e", script], { encoding: "utf8", env });
}

function git(...args: readonly string[]): string {
  const identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
  const { stdout, stderr, status } = spawnSync("git", ["-C", root, ...identity, ...args], { encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
  return stdout.trim();
}

test("the commit that the build wrote to package.json is printed", () => {
  expect(printed({ gitHead: COMMIT })).toBe("9.8.7 (commit 0123456789ab)\n");
  expect(printed({ gitHead: COMMIT }, true)).toContain(`GitCommit:"${COMMIT}", GitTreeState:"clean"`);
  expect(printed({ gitHead: `${COMMIT}-dirty` })).toBe("9.8.7 (commit 0123456789ab-dirty)\n");
  expect(printed({ gitHead: `${COMMIT}-dirty` }, true)).toContain(`GitCommit:"${COMMIT}", GitTreeState:"dirty"`);
});

test("in a checkout git names the commit", () => {
  git("init", "--quiet");
  printed({});
  git("add", ".");
  git("commit", "--quiet", "--message=first");
  const head = git("rev-parse", "HEAD");
  expect(printed({})).toBe(`9.8.7 (commit ${head.slice(0, 12)})\n`);
  git("tag", "--annotate", "--message=release", "v9.8.7");
  expect(printed({})).toBe(`9.8.7 (commit ${head.slice(0, 12)})\n`);
  expect(printed({ private: true })).toBe(`9.8.7 (commit ${head.slice(0, 12)}-dirty)\n`);
});

test("an unknown commit is omitted", () => {
  expect(printed({})).toBe("9.8.7\n");
  expect(printed({}, true)).toContain('GitCommit:"", GitTreeState:""');
  git("init", "--quiet");
  // Without git, and in a checkout without a commit.
  expect(printed({}, false, { ...process.env, PATH: "" })).toBe("9.8.7\n");
  expect(printed({})).toBe("9.8.7\n");
});
