/**
 * The published package from a user's view: packed, installed without a compiler, in a root that contains only the C library, Node and the
 * installed package. Needs the npm registry and Debian's archive, so it is made outside the tests' namespaces:
 *
 *   node test/library/clean-root.ts     writes build/package/
 */
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { mustRun, unpacked } from "../lab/debian.ts";

const checkout = path.resolve(import.meta.dirname, "..", "..");
export const directory = path.join(checkout, "build", "package");
/** The examples' `/`; the project is in /app. */
export const cleanRoot = path.join(directory, "root");
/** A project that has installed the library from the file for all platforms. */
export const allPlatforms = path.join(directory, "all-platforms");
export const reportFile = path.join(directory, "report.json");
export const muslRoot = path.join(directory, "musl", "root");

/** Observations during the installation. */
export interface Report {
  /** Size of the tarball, bytes; and unpacked. */
  readonly size: number;
  readonly unpackedSize: number;
  readonly files: readonly string[];
  /** All tarballs that were written. */
  readonly tarballs: readonly string[];
  /** Directories of packages after the installation, relative to the project. */
  readonly installed: readonly string[];
  /** npm's output during both installations. */
  readonly output: string;
}

/** This machine's npm on the pinned Node, with no other program in PATH: nothing can compile. */
function withoutCompiler(): Record<string, string> {
  const bin = path.join(directory, "bin");
  mkdirSync(bin, { recursive: true });
  symlinkSync(process.execPath, path.join(bin, "node"));
  symlinkSync("/bin/sh", path.join(bin, "sh"));
  return { PATH: bin };
}

/** Variables that npm sets for install scripts, so that node-gyp compiles without a download. */
export function compilers(): Record<string, string> {
  return {
    npm_config_node_gyp: path.resolve(npmScript(), "../../node_modules/node-gyp/bin/node-gyp.js"),
    npm_config_nodedir: path.join(checkout, "node_modules", `node-linux-${process.arch}`),
  };
}

function npmScript(): string {
  const npm = mustRun("sh", ["-c", 'readlink -f "$(command -v npm)"']).trim();
  if (!npm.endsWith(".js")) throw new Error(`npm is not one of Node's scripts: ${npm}`);
  return npm;
}

function pack(): Pick<Report, "size" | "unpackedSize" | "files" | "tarballs"> {
  for (const name of tarballs()) rmSync(path.join(directory, name));
  const output = mustRun(process.execPath, ["deploy/package/pack.mjs", directory], { cwd: checkout });
  const [packed] = JSON.parse(output) as { size: number; unpackedSize: number; files: { path: string }[] }[];
  const { size, unpackedSize, files } = packed;
  return { size, unpackedSize, files: files.map((file) => file.path), tarballs: tarballs() };
}

function tarballs(): string[] {
  return readdirSync(directory)
    .filter((name) => /^nft-proxier-nft-.*\.tgz$/.test(name))
    .toSorted();
}

const { version } = JSON.parse(readFileSync(path.join(checkout, "src/nft/package.json"), "utf8")) as {
  version: string;
};

/** Installs tarballs in an empty project, without a network, a compiler and npm's cache. Returns npm's output. */
function install(project: string, env: Readonly<Record<string, string>>, ...names: readonly string[]): string {
  mkdirSync(project, { recursive: true });
  writeFileSync(path.join(project, "package.json"), '{ "name": "stranger", "private": true, "type": "module" }\n');
  const files = names.map((name) => path.join(directory, `nft-proxier-nft-${name}.tgz`));
  const options = ["--offline", `--cache=${path.join(directory, "npm-cache")}`, "--foreground-scripts"];
  const result = spawnSync(
    process.execPath,
    [npmScript(), "install", ...options, "--no-audit", "--no-fund", ...files],
    {
      cwd: project,
      env: { ...process.env, ...env },
      encoding: "utf8",
      timeout: 300_000,
    },
  );
  const output = `${result.stdout}${result.stderr}`;
  if (result.status !== 0) throw new Error(`npm install ended with ${result.status}: ${output}`);
  return output;
}

function installedPackages(): string[] {
  const lock = readFileSync(path.join(cleanRoot, "app", "node_modules", ".package-lock.json"), "utf8");
  return Object.keys((JSON.parse(lock) as { packages: object }).packages);
}

/** Fetches packages of another Debian architecture, only for the C library. */
function fetchLibraries(name: string, packages: readonly string[], architecture?: string): void {
  const download = (archive: { download(names: readonly string[]): void }): void => archive.download(packages);
  unpacked(path.join(directory, name), "bookworm", `the C library for ${name}`, download, architecture);
}

/** Stands in for a machine of another architecture: Node for arm64, its C library, and an emulator of the processor. */
export const emulated = {
  emulator: path.join(directory, "qemu", "root", "usr/bin/qemu-aarch64-static"),
  root: path.join(directory, "arm64", "root"),
  node: path.join(directory, "node-arm64", "package", "bin", "node"),
};

function fetchArm64(): void {
  fetchLibraries("arm64", ["libc6", "libstdc++6", "libgcc-s1"], "arm64");
  fetchLibraries("qemu", ["qemu-user-static"]);
  fetchNode("arm64", process.versions.node, "node-arm64");
}

/** Unpacks a package of the registry into a directory beside the clean root. */
function fetchPackage(spec: string, name: string): void {
  const into = path.join(directory, name);
  if (existsSync(path.join(into, "package", "package.json"))) return;
  rmSync(into, { recursive: true, force: true });
  mkdirSync(into, { recursive: true });
  const tarball = mustRun("npm", ["pack", "--silent", spec], { cwd: into }).trim();
  mustRun("tar", ["-xzf", tarball], { cwd: into });
}

function fetchNode(arch: string, version: string, name: string): void {
  fetchPackage(`node-linux-${arch}@${version}`, name);
}

/** Other programs that run Node's modules: the packages that contain them, and the commands. */
export const OTHER_RUNTIMES = [
  {
    name: "Bun",
    spec: `@oven/bun-linux-${process.arch === "arm64" ? "aarch64" : process.arch}@1.4.5`,
    command: [path.join(directory, "Bun", "package", "bin", "bun")],
  },
  {
    name: "Deno",
    spec: `@deno/linux-${process.arch}-glibc@2.9.6`,
    command: [path.join(directory, "Deno", "package", "deno"), "run", "--allow-all", "--no-remote"],
  },
] as const;

/** Tests skip a runtime that the registry does not have for this machine. */
function fetchOtherRuntimes(): void {
  for (const { name, spec } of OTHER_RUNTIMES) {
    try {
      fetchPackage(spec, name);
    } catch (error) {
      console.log(`without ${name}: ${String(error)}`);
    }
  }
}

/** The oldest Node that may build a checkout according to README.md, one in between, and the oldest that runs the program. */
export const OLD_NODES = ["18.20.8", "20.20.2", "22.12.0"] as const;

export function oldNode(version: (typeof OLD_NODES)[number]): string {
  return path.join(directory, `node-${version}`, "package", "bin", "node");
}

function main(): void {
  for (const name of ["root", "bin", "all-platforms", "npm-cache"])
    rmSync(path.join(directory, name), { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  fetchLibraries("glibc", ["libc6", "libstdc++6", "libgcc-s1"]);
  fetchLibraries("musl", ["musl", "musl-dev"]);
  if (process.arch === "x64") fetchArm64();
  for (const version of OLD_NODES) fetchNode(process.arch, version, `node-${version}`);
  fetchOtherRuntimes();
  // Its links are absolute: the copy makes /lib/ld-linux… relative to the root.
  cpSync(path.join(directory, "glibc", "root"), cleanRoot, { recursive: true, verbatimSymlinks: true });
  const packed = pack();
  const env = withoutCompiler();
  const output = install(path.join(cleanRoot, "app"), env, version, `linux-${process.arch}-glibc-${version}`);
  const outputOfAll = install(allPlatforms, env, `${version}-all-platforms`);
  mkdirSync(path.join(cleanRoot, "usr/bin"), { recursive: true });
  mkdirSync(path.join(cleanRoot, "proc"), { recursive: true });
  cpSync(process.execPath, path.join(cleanRoot, "usr/bin/node"), { dereference: true });
  const report: Report = { ...packed, installed: installedPackages(), output: output + outputOfAll };
  writeFileSync(reportFile, `${JSON.stringify(report, undefined, 2)}\n`);
  if (!existsSync(path.join(cleanRoot, "usr/bin/node"))) throw new Error("there is no Node in the clean root");
}

if (import.meta.main) main();
