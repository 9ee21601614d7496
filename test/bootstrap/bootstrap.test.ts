/**
 * The first commands in a new checkout, with releases of npm and Node that people have. The checkout has the real bootstrap, scripts and
 * pinned Node. Stand-ins replace the compilers, and the programs that the scripts start.
 */
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { beforeAll, beforeEach, expect, test } from "vitest";
import { mustRun } from "../lab/debian.ts";
import { isShort } from "../lab/length.ts";
import { putFile, temporaryDirectory } from "../support/temporary-directory.ts";

const ROOT = path.join(import.meta.dirname, "../..");
const NODE_PACKAGE = `node-linux-${process.arch}`;
/** An optional package of the status page's bundler. It does not support Node 18. */
const BUNDLER_PACKAGE = `@rolldown/binding-linux-${process.arch}-gnu`;
/** Each with the releases of Node that it supports. Debian 12 and 13 have npm 9.2; Node 20 and 22 bring npm 10. */
const NPM_RELEASES = {
  "9.2.0": [18, 20, 22, 24],
  "10.9.9": [18, 20, 22, 24],
  "11.19.1": [20, 22, 24],
};
const NODE_RELEASES: Readonly<Record<number, string>> = { 18: "18.20.8", 20: "20.20.2", 22: "22.23.5" };
const PAIRS = Object.entries(NPM_RELEASES).flatMap(([npm, nodes]) => nodes.map((node) => ({ npm, node })));
const pairs = isShort ? [{ npm: "10.9.9", node: 24 }] : PAIRS;

/** The releases, which are downloaded once. */
const releases = path.join(ROOT, "build", "npm-and-node");
const directoryOf = (name: string, version: string): string =>
  path.join(releases, "node_modules", `${name}-${version}`);
const npmScript = (version: string): string => path.join(directoryOf("npm", version), "bin", "npm-cli.js");
/** This process runs on the pinned Node 24. */
const nodeProgram = (major: number): string =>
  major === 24 ? realpathSync(process.execPath) : path.join(directoryOf("node", NODE_RELEASES[major]), "bin", "node");

beforeAll(() => {
  const wanted = pairs.flatMap(({ npm, node }) => [
    [npmScript(npm), `npm-${npm}@npm:npm@${npm}`],
    [nodeProgram(node), `node-${NODE_RELEASES[node]}@npm:${NODE_PACKAGE}@${NODE_RELEASES[node]}`],
  ]);
  const missing = wanted.flatMap(([file, name]) => (existsSync(file) ? [] : [name]));
  if (missing.length === 0) return;
  const options = ["--ignore-scripts", "--no-bin-links", "--no-audit", "--no-fund", `--prefix=${releases}`];
  mustRun("npm", ["install", ...options, ...new Set(missing)]);
});

interface Manifest {
  readonly scripts: Readonly<Record<string, string>>;
  readonly optionalDependencies: Readonly<Record<string, string>>;
}
const readJson = (name: string): unknown => JSON.parse(readFileSync(path.join(ROOT, name), "utf8"));
const { scripts, optionalDependencies } = readJson("package.json") as Manifest;
const version = optionalDependencies[NODE_PACKAGE];
const { packages } = readJson("package-lock.json") as { packages: Readonly<Record<string, { version: string }>> };

/** Stand-ins for both compilers, in one package. */
const COMPILERS = {
  "compilers/package.json": '{ "name": "node-gyp", "bin": { "tsc": "tsc.js" } }',
  "compilers/tsc.js": `#!/usr/bin/env node
    const fs = require("node:fs");
    fs.mkdirSync("dist");
    fs.writeFileSync("dist/main.js", "console.log(process.argv[2], process.version)");`,
  "compilers/bin/node-gyp.js": `const fs = require("node:fs");
    fs.mkdirSync("build/Release", { recursive: true });
    for (const name of ["nft_proxier", "nft_proxier_test"]) fs.writeFileSync("build/Release/" + name + ".node", "");`,
  "src/main.ts": "",
  "tsconfig.json": "",
  "deploy/page.mjs": `import.meta.resolve(${JSON.stringify(BUNDLER_PACKAGE)});`,
  "deploy/man.mjs": "",
};
const PROGRAMS = {
  "test/lab/enter.mjs": `import { spawnSync } from "node:child_process";
    const [command, ...args] = process.argv.slice(process.argv.indexOf("--") + 1);
    process.exitCode = spawnSync(command, args, { stdio: "inherit" }).status;`,
  "deploy/demo/demo.ts": 'console.log("the demo runs on", process.version, process.execPath);',
  "test/run.ts": 'console.log("the tests run on", process.version, process.execPath, ...process.argv.slice(2));',
};

let checkout = "";

beforeEach(async () => {
  checkout = temporaryDirectory();
  for (const [name, text] of Object.entries({ ...COMPILERS, ...PROGRAMS })) await putFile(checkout, name, text);
  for (const name of [".npmrc", "deploy/bootstrap.mjs", "deploy/npm-node-version.cjs"])
    cpSync(path.join(ROOT, name), path.join(checkout, name));
  const dependencies = { "node-gyp": "file:compilers" };
  const bundler = { [BUNDLER_PACKAGE]: packages[`node_modules/${BUNDLER_PACKAGE}`].version };
  const needs = { dependencies, optionalDependencies: { ...optionalDependencies, ...bundler } };
  const manifest = { name: "checkout", scripts, ...needs };
  const keys = Object.keys(needs.optionalDependencies).map((name) => `node_modules/${name}`);
  const locked = {
    "": { name: "checkout", ...needs },
    compilers: { name: "node-gyp", bin: { tsc: "tsc.js" } },
    "node_modules/node-gyp": { resolved: "compilers", link: true },
    ...Object.fromEntries(keys.map((key) => [key, packages[key]])),
  };
  writeFileSync(path.join(checkout, "package.json"), JSON.stringify(manifest));
  writeFileSync(path.join(checkout, "package-lock.json"), JSON.stringify({ lockfileVersion: 3, packages: locked }));
});

/** Runs a command in the checkout. `before` is the first directory of PATH. */
function run(command: string, args: readonly string[], before?: string): { code: number | null; output: string } {
  const others = process.env["PATH"]!.split(":").filter((directory) => !directory.includes("node_modules"));
  const env = { ...process.env, PATH: [...(before === undefined ? [] : [before]), ...others].join(":") };
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: checkout, encoding: "utf8", env });
  return { code: status, output: stdout + stderr };
}

test.each(pairs)("npm run demo and npm test start on the pinned Node with npm $npm and Node $node", ({ npm, node }) => {
  const npmRun = (...args: string[]): ReturnType<typeof run> =>
    run(nodeProgram(node), [npmScript(npm), ...args], path.dirname(nodeProgram(node)));
  expect(npmRun("--version")).toEqual({ code: 0, output: `${npm}\n` });

  const pinned = path.join(realpathSync(checkout), "node_modules", NODE_PACKAGE, "bin", "node");
  const demo = npmRun("run", "demo");
  expect(demo).toEqual({ code: 0, output: expect.stringContaining(`the demo runs on v${version} ${pinned}\n`) });
  const tests = npmRun("test");
  expect(tests).toEqual({
    code: 0,
    output: expect.stringContaining(`the tests run on v${version} ${pinned} --short\n`),
  });
  expect(tests.output).toContain("bootstrap: everything is in place");

  // The command that documents name.
  expect(run("node_modules/.bin/node", ["dist/main.js", "run"])).toEqual({ code: 0, output: `run v${version}\n` });

  // As after any other use of this npm.
  rmSync(path.join(checkout, "node_modules/.bin/node"));
  expect(npmRun("run", "build").code).toBe(0);
  expect(realpathSync(path.join(checkout, "node_modules/.bin/node"))).toBe(pinned);
});

test("a user who cannot install Debian packages gets the command before npm installs anything", () => {
  // A user without sudo, on a machine that lacks a header.
  const asUser = 'exec unshare --user --map-user=1000 -- "$0" deploy/bootstrap.mjs';
  const inside = `mount -t tmpfs none /usr/include/libmnl && ${asUser}`;
  const { code, output } = run("unshare", [
    "--user",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    inside,
    process.execPath,
  ]);
  expect(output).toBe(`bootstrap: missing: /usr/include/libmnl/libmnl.h (package libmnl-dev, for the addon)
bootstrap: installing packages needs root (or a sudo without password)

Run this, then start again:

    sudo apt-get update && sudo apt-get install -y --no-install-recommends libmnl-dev

`);
  expect(code).toBe(1);
  expect(existsSync(path.join(checkout, "node_modules"))).toBe(false);
});
