/**
 * Builds the addon for every platform that the package serves without a compiler: prebuilds/linux-{x64,arm64}-{glibc,musl}/.
 *
 *   node deploy/package/prebuild.ts [PLATFORM...]
 *
 * Zig (deploy/package/zig, from the npm registry) is the C++ compiler: it crosses to all four, with its C++ runtime linked in, and
 * needs no glibc newer than Node's own (2.28). libnftnl and libmnl are Debian's, beside the addon and found there first (RUNPATH $ORIGIN),
 * so that an installation needs no libraries: they ask for nothing newer than glibc 2.14. On musl, whose loader takes libraries that were linked
 * against glibc, two checked printf functions are all that they miss: musl.c has them.
 * A platform whose sources and tools are unchanged is not built again.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { mustRun, unpacked } from "../../test/lab/debian.ts";

const root = path.resolve(import.meta.dirname, "..", "..");
const cache = path.join(root, "build", "prebuild");
const recipe = path.join(import.meta.dirname, "zig");

interface Platform {
  readonly zig: string;
  /** Debian's names. */
  readonly architecture: string;
  readonly triplet: string;
}

const DEBIAN = "bookworm";
const x64 = { architecture: "amd64", triplet: "x86_64-linux-gnu" };
const arm64 = { architecture: "arm64", triplet: "aarch64-linux-gnu" };

export const platforms: Readonly<Record<string, Platform>> = {
  "linux-x64-glibc": { ...x64, zig: "x86_64-linux-gnu.2.28" },
  "linux-x64-musl": { ...x64, zig: "x86_64-linux-musl" },
  "linux-arm64-glibc": { ...arm64, zig: "aarch64-linux-gnu.2.28" },
  "linux-arm64-musl": { ...arm64, zig: "aarch64-linux-musl" },
};

/** As in binding.gyp. */
const DEFINES = [
  "NODE_GYP_MODULE_NAME=nft_proxier",
  "BUILDING_NODE_EXTENSION",
  "NAPI_CPP_EXCEPTIONS",
  "NAPI_VERSION=9",
  "NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS",
  "_GNU_SOURCE",
];

const LIBRARIES = ["libnftnl.so.11", "libmnl.so.0"];

/** Files under native/ with one of these endings, relative to the root. */
function nativeFiles(...endings: readonly string[]): readonly string[] {
  return readdirSync(path.join(root, "native"), { recursive: true, encoding: "utf8" })
    .filter((name) => endings.includes(path.extname(name)))
    .map((name) => `native/${name}`)
    .toSorted();
}

function digest(name: string): string {
  const hash = createHash("sha256").update(`${name} ${JSON.stringify(platforms[name])}`);
  const inputs = [...nativeFiles(".cc", ".h", ".hpp"), "deploy/package/prebuild.ts", "deploy/package/musl.c"];
  for (const file of [...inputs, "deploy/package/zig/package-lock.json"]) {
    hash.update(`${file}\0`).update(readFileSync(path.join(root, file)));
  }
  for (const module of ["node-addon-api", `node-linux-${process.arch}`]) {
    hash.update(readFileSync(path.join(root, "node_modules", module, "package.json")));
  }
  return hash.digest("hex");
}

/** The compiler, installed as its lock file says. */
function installZig(): string {
  const directory = path.join(cache, "zig");
  const zig = path.join(directory, "node_modules", "@oven", `zig-linux-${process.arch}`, "zig");
  if (existsSync(zig)) return zig;
  console.log("fetching the cross compiler (350 MB)");
  cpSync(recipe, directory, { recursive: true });
  mustRun("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: directory });
  if (!existsSync(zig)) throw new Error(`npm ci did not bring ${zig}`);
  return zig;
}

/** Debian's libraries and headers for the architecture. */
function debianRoot({ architecture }: Platform): string {
  const packages = ["libnftnl11", "libmnl0", "libnftnl-dev", "libmnl-dev"];
  const download = (archive: { download(names: readonly string[]): void }): void => archive.download(packages);
  return unpacked(path.join(cache, architecture), DEBIAN, `libnftnl for ${architecture}`, download, architecture);
}

/** Only these headers: the C library's own are the compiler's. */
function headersOf(debian: string): string {
  const headers = path.join(debian, "headers");
  for (const library of ["libnftnl", "libmnl"]) {
    cpSync(path.join(debian, "usr/include", library), path.join(headers, library), { recursive: true });
  }
  return headers;
}

/** Runs to the end and shows what it says. */
function run(command: string, args: readonly string[]): Promise<void> {
  // Formatters and linters, which know no .gitignore, do not go into node_modules.
  const zigCache = path.join(cache, "zig", "node_modules", ".cache");
  const env = { ...process.env, ZIG_GLOBAL_CACHE_DIR: zigCache, ZIG_LOCAL_CACHE_DIR: zigCache };
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: root, stdio: ["ignore", "inherit", "inherit"], env });
    child.on("error", reject);
    child.on("exit", (code) => {
      if (code === 0) resolve();
      else reject(new Error(`${command} ended with ${code}`));
    });
  });
}

async function build(name: string, platform: Platform): Promise<void> {
  const directory = path.join(root, "prebuilds", name);
  const stamp = path.join(cache, `${name}.stamp`);
  const inputs = digest(name);
  const addon = path.join(directory, "nft_proxier.node");
  if (existsSync(addon) && existsSync(stamp) && readFileSync(stamp, "utf8") === inputs) return;
  const zig = installZig();
  const debian = debianRoot(platform);
  console.log(`compiling the addon for ${name}`);
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  const libraries = path.join(debian, "usr/lib", platform.triplet);
  for (const library of LIBRARIES) copyFileSync(path.join(libraries, library), path.join(directory, library));
  const compile = [
    ...["-target", platform.zig, "-shared", "-fPIC", "-O2", "-s", "-fvisibility=hidden"],
    ...DEFINES.map((define) => `-D${define}`),
    ...["-Inative", "-isystem", "node_modules/node-addon-api"],
    ...["-isystem", `node_modules/node-linux-${process.arch}/include/node`, "-isystem", headersOf(debian)],
  ];
  const objects: string[] = [];
  if (name.endsWith("musl")) {
    const object = path.join(cache, `${name}.o`);
    await run(zig, ["cc", "-target", platform.zig, "-c", "-fPIC", "-O2", "deploy/package/musl.c", "-o", object]);
    objects.push(object);
  }
  const link = ["-Wl,-rpath,$ORIGIN", ...LIBRARIES.map((library) => path.join(directory, library)), ...objects];
  await run(zig, ["c++", ...compile, "-std=c++17", ...nativeFiles(".cc"), ...link, "-o", addon]);
  for (const library of ["libnftnl11", "libmnl0"]) {
    const notice = path.join(debian, "usr/share/doc", library, "copyright");
    copyFileSync(notice, path.join(root, "prebuilds", `${library}.copyright`));
  }
  writeFileSync(stamp, inputs);
}

const asked = process.argv.slice(2);
for (const name of asked.length === 0 ? Object.keys(platforms) : asked) {
  if (!(name in platforms)) throw new Error(`no platform ${name}; there are ${Object.keys(platforms).join(", ")}`);
  await build(name, platforms[name]);
}
