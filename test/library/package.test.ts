/** The published package in a root that contains only Node, the C library and the result of `npm install`; see clean-root.ts. */
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { mustRun } from "../lab/debian.ts";
import { patience } from "../lab/patience.ts";
import { addonCalls } from "../support/addon-calls.ts";
import {
  allPlatforms,
  cleanRoot,
  compilers,
  directory,
  emulated,
  muslRoot,
  OLD_NODES,
  oldNode,
  OTHER_RUNTIMES,
  type Report,
  reportFile,
} from "./clean-root.ts";
import { documented } from "./documented.ts";
import { testExamples } from "./examples.ts";

const checkout = path.resolve(import.meta.dirname, "../..");
const installed = path.join(cleanRoot, "app", "node_modules/@nft-proxier/nft");
const inside = ["chroot", cleanRoot, "/usr/bin/node"];
/** The package with the addons of all platforms. */
const all = path.join(allPlatforms, "node_modules/@nft-proxier/nft");
const prebuilt = (platform: string): string => path.join(all, "prebuilds", platform, "nft_proxier.node");
const PLATFORMS = ["linux-arm64-glibc", "linux-arm64-musl", "linux-x64-glibc", "linux-x64-musl"];
let report: Report;

beforeAll(() => {
  report = JSON.parse(readFileSync(reportFile, "utf8")) as Report;
  // The mount namespace belongs to the tests.
  mustRun("mount", ["--rbind", "/proc", path.join(cleanRoot, "proc")]);
});

interface Manifest {
  readonly version: string;
  readonly gitHead: string;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

function readManifest(packageDirectory: string): Manifest {
  return JSON.parse(readFileSync(path.join(packageDirectory, "package.json"), "utf8")) as Manifest;
}

const OPEN =
  'import("@nft-proxier/nft").then(async (m) => { await (await m.openKernel()).close(); console.log("open"); })';

/** Runs a module of the project, given as text, in the clean root. */
function runInside(text: string, name = "program.mjs"): { readonly code: number | null; readonly output: string } {
  writeFileSync(path.join(cleanRoot, "app", name), text);
  const { status, stdout, stderr } = spawnSync(inside[0], [...inside.slice(1), `/app/${name}`], {
    encoding: "utf8",
  });
  return { code: status, output: `${stdout}${stderr}` };
}

describe("the tarball", () => {
  test("has less than 1 MB, and contains only the library", () => {
    console.log(`tarball ${report.size} bytes, ${report.unpackedSize} unpacked, ${report.files.length} files`);
    expect(report.size).toBeLessThan(2 ** 20);
    const ofProgram = /^dist\/(main|cli|config|daemon|node|observe|proxier|ruleset|source)\b|\.map$/;
    expect(report.files.filter((file) => ofProgram.test(file))).toEqual([]);
    expect(report.files).toEqual(
      expect.arrayContaining(["dist/nft/nft-exports.js", "dist/nft/conntrack/connections.d.ts"]),
    );
    const tops = new Set(report.files.map((file) => file.split("/")[0]));
    expect([...tops].toSorted()).toEqual(
      [
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "binding.gyp",
        "deploy",
        "dist",
        "docs",
        "examples",
        "native",
        "node_modules",
        "package.json",
      ].toSorted(),
    );
  });

  test("begins with the library's front page, whose links lead to files of the package", () => {
    const page = readFileSync(path.join(installed, "README.md"), "utf8");
    expect(page).toMatch(/^# nf_tables and connection tracking for Node programs$/m);
    const links = [...page.matchAll(/\]\((?!https?:)([^)#\s]+)/g)].map(([, link]) => link);
    expect(links.length).toBeGreaterThan(5);
    expect(links.filter((link) => !existsSync(path.join(installed, link)))).toEqual([]);
  });

  test("has the addons in packages of their own, and one file with all of them", () => {
    const { version, optionalDependencies } = readManifest(installed);
    const names = ["", ...PLATFORMS.map((platform) => `-${platform}`)].map(
      (name) => `nft-proxier-nft${name}-${version}.tgz`,
    );
    expect(report.tarballs).toEqual([...names, `nft-proxier-nft-${version}-all-platforms.tgz`].toSorted());
    expect(optionalDependencies).toEqual(
      Object.fromEntries(PLATFORMS.map((platform) => [`@nft-proxier/nft-${platform}`, version])),
    );
    expect(readdirSync(path.join(all, "prebuilds")).toSorted()).toEqual(PLATFORMS);
    expect(report.files.filter((file) => /\.(node|so)\b/.test(file))).toEqual([]);
  });

  test.each(PLATFORMS)("the package for %s is installed only there, and describes what it contains", (platform) => {
    const directoryOf = path.dirname(prebuilt(platform));
    const [os, cpu, libc] = platform.split("-");
    expect(readManifest(directoryOf)).toMatchObject({
      os: [os],
      cpu: [cpu],
      libc: [libc],
      license: "GPL-2.0-or-later",
    });
    const description = readFileSync(path.join(directoryOf, "status.d/libnftnl11"), "utf8");
    expect(description).toMatch(/^Version: \d/m);
    expect(description).toContain(`Architecture: ${cpu === "x64" ? "amd64" : "arm64"}\n`);
    expect(readdirSync(directoryOf)).toEqual(
      expect.arrayContaining(["LICENSE", "libmnl0.copyright", "libnftnl11.copyright"]),
    );
  });

  test("has no function in the addon that only tests call", () => {
    const addon = prebuilt(`linux-${process.arch}-glibc`);
    const exported = Object.keys(createRequire(import.meta.url)(addon) as object);
    expect(exported.toSorted()).toEqual(addonCalls());
    expect(report.files.filter((file) => /test(?!ing)/.test(file))).toEqual([]);
  });

  test.each(["x64", "arm64"])("needs no glibc newer than 2.28 on %s", (arch) => {
    const addon = prebuilt(`linux-${arch}-glibc`);
    const undefinedSymbols = [...mustRun("nm", ["-D", "--undefined-only", addon]).matchAll(/ U (\S+)/g)];
    // The linker leaves a function that is missing in this glibc without a version.
    const unversioned = undefinedSymbols.filter(([, name]) => !/^(napi|node_api|uv|nftnl|mnl)_|@/.test(name));
    expect(unversioned.map(([, name]) => name)).toEqual([]);
    const newer = undefinedSymbols.filter(([, name]) => Number(/@GLIBC_2\.(\d+)/.exec(name)?.[1] ?? 0) > 28);
    expect(newer.map(([, name]) => name)).toEqual([]);
  });

  test("names the commit that it was built from", () => {
    const { gitHead } = readManifest(installed);
    expect(gitHead).toMatch(/^[0-9a-f]{40}(-dirty)?$/);
    expect(PLATFORMS.map((platform) => readManifest(path.dirname(prebuilt(platform))).gitHead)).toEqual(
      PLATFORMS.map(() => gitHead),
    );
  });

  test("has the library's own front page and changelog", () => {
    const read = (from: string, file: string): string => readFileSync(path.join(from, file), "utf8");
    expect(read(installed, "README.md").split("\n")[0]).toBe(read(checkout, "src/nft/README.md").split("\n")[0]);
    expect(read(installed, "CHANGELOG.md")).toBe(read(checkout, "src/nft/CHANGELOG.md"));
    const links = [...read(installed, "README.md").matchAll(/\]\(([^)#]+)[^)]*\)/g)].map(([, link = ""]) => link);
    const files = links.filter((link) => !/^https?:/.test(link));
    expect(files.filter((link) => !existsSync(path.join(installed, link)))).toEqual([]);
  });
});

describe("npm install", () => {
  test("needs no network, and compiles nothing", () => {
    expect(report.installed.toSorted()).toEqual([
      "node_modules/@nft-proxier/nft",
      `node_modules/@nft-proxier/nft-linux-${process.arch}-glibc`,
      "node_modules/@nft-proxier/nft/node_modules/node-addon-api",
    ]);
    expect(report.output).not.toContain("compiling");
    for (const from of [installed, all]) expect(existsSync(path.join(from, "build"))).toBe(false);
  });

  test("the file for all platforms works alone", () => {
    expect(mustRun(process.execPath, ["-e", OPEN], { cwd: allPlatforms })).toBe("open\n");
  });

  test("says what is missing if it has to compile and cannot", () => {
    const copy = path.join(directory, "without-prebuilds");
    rmSync(copy, { recursive: true, force: true });
    cpSync(installed, copy, { recursive: true });
    const env = { PATH: path.join(directory, "bin") };
    const done = spawnSync(process.execPath, ["deploy/package/install.mjs"], { cwd: copy, env, encoding: "utf8" });
    expect(done.status).toBe(1);
    expect(done.stderr).toContain(`there is no prebuilt addon for linux-${process.arch}-glibc; compiling it`);
    expect(done.stderr).toContain("apt-get install g++ make python3 libnftnl-dev libmnl-dev");
  });

  test("compiles the addon if there is no prebuilt one", { timeout: patience(900_000) }, () => {
    const copy = path.join(directory, "compiled", "node_modules/@nft-proxier/nft");
    rmSync(path.join(directory, "compiled"), { recursive: true, force: true });
    cpSync(installed, copy, { recursive: true });
    const env = { ...process.env, ...compilers() };
    const done = spawnSync(process.execPath, ["deploy/package/install.mjs"], { cwd: copy, env, encoding: "utf8" });
    expect(`${done.status} ${done.status === 0 ? "" : done.stdout + done.stderr}`).toBe("0 ");
    const cwd = path.join(directory, "compiled");
    expect(mustRun(process.execPath, ["-e", OPEN], { cwd })).toBe("open\n");
  });
});

describe("in the clean root", () => {
  test("there is no compiler and no netfilter library", () => {
    expect(readdirSync(path.join(cleanRoot, "usr/bin"))).toEqual(["node"]);
    const libraries = ["app", "lib", "usr"].flatMap((top) =>
      readdirSync(path.join(cleanRoot, top), { recursive: true, encoding: "utf8" })
        .filter((file) => /lib(nftnl|mnl)\./.test(file))
        .map((file) => `${top}/${file}`),
    );
    expect(libraries.filter((file) => !file.startsWith("app/node_modules/@nft-proxier/nft-linux-"))).toEqual([]);
  });

  test("package.json can be imported", () => {
    const text = `const { default: it } = await import("@nft-proxier/nft/package.json", { with: { type: "json" } });
      console.log(it.name);`;
    expect(runInside(text)).toEqual({ code: 0, output: "@nft-proxier/nft\n" });
  });

  test("deeper paths are refused", () => {
    const text = 'await import("@nft-proxier/nft/dist/nft/sync/plan.js").catch((error) => console.log(error.code));';
    expect(runInside(text)).toEqual({ code: 0, output: "ERR_PACKAGE_PATH_NOT_EXPORTED\n" });
  });

  test("a program is type-checked with the package's declarations alone", () => {
    const project = path.join(cleanRoot, "app");
    writeFileSync(
      path.join(project, "typed.ts"),
      `import { openKernel, Table } from "@nft-proxier/nft";
import { openConntrack } from "@nft-proxier/nft/conntrack";
const table = new Table(await openKernel(), { family: "ip", name: "typed" });
const map = table.set({ set: "m", key: ["ipv4_addr", "inet_service"], data: ["ipv4_addr"] });
map.put(["192.0.2.1", 80], "192.0.2.2");
// @ts-expect-error a port is a number
map.put(["192.0.2.1", "80"], "192.0.2.2");
export const entries: number = await (await openConntrack()).count();
`,
    );
    const options = [
      "--ignoreConfig",
      "--noEmit",
      "--strict",
      "--module",
      "nodenext",
      "--target",
      "es2023",
      "--types",
      "",
    ];
    const tsc = path.join(checkout, "node_modules", ".bin", "tsc");
    expect(spawnSync(tsc, [...options, "typed.ts"], { cwd: project, encoding: "utf8" }).stdout).toBe("");
  });

  test.each(documented())("the documented program runs: $section", ({ program, output }) => {
    expect(runInside(program, "program.mts")).toEqual({ code: 0, output });
  });

  test("the package's version can be read", () => {
    const text = `import manifest from "@nft-proxier/nft/package.json" with { type: "json" };
      console.log(manifest.name, manifest.license);`;
    expect(runInside(text)).toEqual({ code: 0, output: "@nft-proxier/nft GPL-2.0-or-later\n" });
  });

  describe("the examples run where they are installed:", () => {
    testExamples({
      node: inside,
      examples: "/app/node_modules/@nft-proxier/nft/examples",
      files: "/app/files",
      root: cleanRoot,
    });
  });
});

describe.each(OTHER_RUNTIMES)("in $name", ({ command }) => {
  describe.skipIf(!existsSync(command[0]))("the examples run where they are installed:", () => {
    testExamples({
      node: command,
      examples: path.join(installed, "examples"),
      files: path.join(directory, "files"),
      root: "/",
    });
  });
});

describe("on musl", () => {
  // napi_create_function fails, so the addon throws. If the exception does not reach its handler, the program ends or
  // calls the function again.
  const STUBS: Readonly<Record<string, string>> = {
    napi_create_function: "(void) { calls++; return 9; }",
    napi_get_last_error_info: "(void *env, const void **info) { *info = &error; return 0; }",
  };

  // There is no Node for musl in the registries: our own program provides Node's and libuv's functions as stubs.
  test("the prebuilt addon and its libraries load, and exceptions reach their handler", () => {
    const addon = prebuilt(`linux-${process.arch}-musl`);
    const symbols = mustRun("nm", ["-D", "--undefined-only", addon]).matchAll(/ U ((?:napi|node_api|uv)_\w+)/g);
    const work = path.join(directory, "musl-check");
    mkdirSync(work, { recursive: true });
    const source = `#include <dlfcn.h>
#include <stdio.h>
int calls = 0;
const struct { const char *message; void *reserved; unsigned engine; int code; } error = { "failed", NULL, 0, 9 };
${[...symbols].map(([, name]) => `int ${name}${STUBS[name] ?? "(void) { return 0; }"}`).join("\n")}
int main(int argc, char **argv) {
  void *addon = dlopen(argv[1], RTLD_NOW);
  if (addon == NULL) return puts(dlerror()), 1;
  void *(*start)(void *, void *) = dlsym(addon, "napi_register_module_v1");
  if (start == NULL) return puts("no entry point"), 1;
  start("environment", "exports");
  return printf("%d\\n", calls), 0;
}
`;
    writeFileSync(path.join(work, "check.c"), source);
    const triplet = `${process.arch === "arm64" ? "aarch64" : "x86_64"}-linux-musl`;
    const libraries = path.join(muslRoot, "usr/lib", triplet);
    // The C library is its own loader.
    const loader = path.join("lib", triplet, "libc.so");
    const [start, prologue, epilogue] = ["crt1.o", "crti.o", "crtn.o"].map((name) => path.join(libraries, name));
    const program = path.join(work, "check");
    const headers = ["-nostdinc", "-isystem", path.join(muslRoot, "usr/include", triplet)];
    const objects = [start, prologue, path.join(work, "check.c"), path.join(muslRoot, loader), epilogue];
    mustRun("cc", ["-no-pie", "-fno-pie", ...headers, "-nostdlib", "-rdynamic", ...objects, "-o", program]);
    expect(spawnSync(path.join(muslRoot, loader), [program, addon], { encoding: "utf8" }).stdout).toBe("1\n");
  });
});

// On arm64, the rest of this file tests arm64. An emulated process cannot use netfilter's netlink, so only the pure functions are tested.
if (process.arch === "x64") {
  describe("on arm64, emulated", () => {
    test("the prebuilt addon loads and reads a transaction", () => {
      const addon = prebuilt("linux-arm64-glibc");
      const program = `const addon = require(${JSON.stringify(addon)});
        const prepare = (ops) => addon.prepareBatch(addon.createBatch(ops), 1000);
        console.log(process.arch, prepare([{ op: "add", kind: "table", family: "ip", table: "t" }]));
        try { prepare([{ op: "add", kind: "table", family: "ip" }]); } catch (error) { console.log(error.code, error.message); }`;
      const { emulator, root, node } = emulated;
      expect(mustRun(emulator, ["-L", root, node, "-e", program])).toMatch(/^arm64 true\ninvalid .*table/);
    });
  });
}

test.each(OLD_NODES)("Node %s runs the program, or names the required version", (version) => {
  const main = path.join(checkout, "dist", "main.js");
  const { status, stdout, stderr } = spawnSync(oldNode(version), [main, "--version"], { encoding: "utf8" });
  if (version === "22.12.0") expect([status, stderr]).toEqual([0, ""]);
  else {
    expect([status, stdout]).toEqual([1, ""]);
    expect(stderr).toMatch(/^nft-proxier: this is Node \d+\.\d+\.\d+, but Node 22\.12 or later is required\. .*\n$/);
  }
});
