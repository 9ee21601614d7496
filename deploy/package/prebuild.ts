/**
 * Builds the addon for each platform that the package supports without a compiler:
 * prebuilds/linux-{x64,arm64}-{glibc,musl}/.
 *
 *   node deploy/package/prebuild.ts [PLATFORM...]
 *
 * The C++ compiler is Zig (deploy/package/zig, from the npm registry). It cross-compiles for all four with its C++
 * runtime linked in. The result needs no glibc newer than Node's own (2.28).
 * libnftnl and libmnl come from Debian and are placed beside the addon, where they are found first (RUNPATH $ORIGIN),
 * so an installation needs no libraries. They need no glibc newer than 2.14. musl's loader accepts libraries linked
 * against glibc; they only lack two checked printf functions, which musl.c provides.
 * A platform whose sources and tools are unchanged is not built again. Otherwise only the sources that a change affects
 * are compiled.
 */
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { unpacked } from "../../test/lab/debian.ts";
import { CrossCompiler, filesUnder, mirror } from "./cross-compiler.ts";

const root = path.resolve(import.meta.dirname, "..", "..");
const cache = path.join(root, "build", "prebuild");
/** Copies of everything that the compiler reads. */
const sources = path.join(cache, "sources");

interface Platform {
  readonly zig: string;
  /** Names that Debian uses. */
  readonly architecture: string;
  readonly triplet: string;
}

const DEBIAN = "bookworm";
const x64 = { architecture: "amd64", triplet: "x86_64-linux-gnu" };
const arm64 = { architecture: "arm64", triplet: "aarch64-linux-gnu" };

const platforms: Readonly<Record<string, Platform>> = {
  "linux-x64-glibc": { ...x64, zig: "x86_64-linux-gnu.2.28" },
  "linux-x64-musl": { ...x64, zig: "x86_64-linux-musl" },
  "linux-arm64-glibc": { ...arm64, zig: "aarch64-linux-gnu.2.28" },
  "linux-arm64-musl": { ...arm64, zig: "aarch64-linux-musl" },
};

/** Number of platforms to build at the same time. Each compiles on all cores and links on one. */
const AT_ONCE = 2;

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

const debianDirectory = (architecture: string): string => path.join(cache, "debian", architecture);
const debianRoot = ({ architecture }: Platform): string => path.join(debianDirectory(architecture), "root");
const debianLibraries = (platform: Platform): string => path.join(debianRoot(platform), "usr/lib", platform.triplet);

/**
 * The origins of headers and sources, with a pattern for the files to use. No other files from Debian are needed,
 * because the compiler has the C library's headers.
 */
function origins(platform: Platform): readonly (readonly [from: string, to: string, wanted: RegExp])[] {
  const { architecture } = platform;
  return [
    [path.join(root, "native"), "native", /\.(cc|h|hpp)$/],
    [import.meta.dirname, "package", /^musl\.c$/],
    [path.join(root, "node_modules/node-addon-api"), "node-addon-api", /^[^/]*\.h$/],
    [
      path.join(root, `node_modules/node-linux-${process.arch}/include/node`),
      "node",
      /^((js_native|node)_api.*|uv|uv\/.*)\.h$/,
    ],
    [path.join(debianRoot(platform), "usr/include"), architecture, /^lib(nftnl|mnl)\//],
  ];
}

/** Returns a digest of everything that affects the addon: of the current files, or of the copies that are compiled. */
function digest(name: string, platform: Platform, of: "origins" | "copies"): string {
  const hash = createHash("sha256").update(`${name} ${JSON.stringify(platform)}`);
  const add = (label: string, file: string): unknown =>
    hash.update(`${label}\0`).update(readFileSync(file)).update("\0");
  for (const tool of ["prebuild.ts", "cross-compiler.ts", "zig/package-lock.json"]) {
    add(tool, path.join(import.meta.dirname, tool));
  }
  for (const [from, to, wanted] of origins(platform)) {
    const directory = of === "origins" ? from : path.join(sources, to);
    for (const file of filesUnder(directory)) if (wanted.test(file)) add(`${to}/${file}`, path.join(directory, file));
  }
  for (const library of LIBRARIES) {
    const file = path.join(debianLibraries(platform), library);
    if (existsSync(file)) add(library, file);
  }
  return hash.digest("hex");
}

const addonOf = (name: string): string => path.join(root, "prebuilds", name, "nft_proxier.node");
const stampOf = (name: string): string => path.join(cache, `${name}.stamp`);

function isBuilt(name: string): boolean {
  const stamp = stampOf(name);
  if (!existsSync(addonOf(name)) || !existsSync(stamp)) return false;
  return readFileSync(stamp, "utf8") === digest(name, platforms[name], "origins");
}

/** Fetches Debian's libraries and headers for the architecture, and copies everything that is compiled. */
function prepareSources(platform: Platform): void {
  const packages = ["libnftnl11", "libmnl0", "libnftnl-dev", "libmnl-dev"];
  const download = (archive: { download(names: readonly string[]): void }): void => archive.download(packages);
  const { architecture } = platform;
  unpacked(debianDirectory(architecture), DEBIAN, `libnftnl for ${architecture}`, download, architecture);
  for (const [from, to, wanted] of origins(platform)) {
    mirror(from, path.join(sources, to), (file) => wanted.test(file));
  }
}

async function build(name: string, zig: CrossCompiler): Promise<void> {
  const platform = platforms[name];
  const addon = addonOf(name);
  const directory = path.dirname(addon);
  console.log(`compiling the addon for ${name}`);
  // If this build ends early, its remains must not look like the result of an earlier one.
  rmSync(stampOf(name), { force: true });
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  for (const library of LIBRARIES) {
    copyFileSync(path.join(debianLibraries(platform), library), path.join(directory, library));
  }
  const common = ["-target", platform.zig, "-fPIC", "-O2"];
  const compile = [
    ...["-shared", "-s", "-fvisibility=hidden", "-std=c++17"],
    ...DEFINES.map((define) => `-D${define}`),
    ...["-Inative", ...["node-addon-api", "node", platform.architecture].flatMap((headers) => ["-isystem", headers])],
  ];
  const objects: string[] = [];
  if (name.endsWith("musl")) {
    const object = path.join(cache, `${name}.o`);
    await zig.run(sources, ["cc", ...common, "-c", "package/musl.c", "-o", object]);
    objects.push(object);
  }
  const units = filesUnder(path.join(sources, "native", "units")).map((file) => `native/units/${file}`);
  const link = ["-Wl,-rpath,$ORIGIN", ...LIBRARIES.map((library) => path.join(directory, library)), ...objects];
  await zig.run(sources, ["c++", ...common, ...compile, ...units, "native/js/addon.cc", ...link, "-o", addon]);
  mkdirSync(path.join(root, "prebuilds/status.d"), { recursive: true });
  for (const library of ["libnftnl11", "libmnl0"]) {
    const notice = path.join(debianRoot(platform), "usr/share/doc", library, "copyright");
    copyFileSync(notice, path.join(root, "prebuilds", `${library}.copyright`));
    const description = path.join(debianRoot(platform), "var/lib/dpkg/status.d", library);
    copyFileSync(description, path.join(root, "prebuilds/status.d", `${library}.${platform.architecture}`));
  }
  // The stamp describes the copies, because the checkout may have changed meanwhile.
  writeFileSync(stampOf(name), digest(name, platform, "copies"));
}

const asked = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(platforms);
const unknown = asked.find((name) => !(name in platforms));
if (unknown !== undefined) throw new Error(`no platform ${unknown}; there are ${Object.keys(platforms).join(", ")}`);
const changed = asked.filter((name) => !isBuilt(name));
if (changed.length > 0) {
  const zig = new CrossCompiler(cache);
  for (const name of changed) prepareSources(platforms[name]);
  const left = changed.values();
  const work = async (): Promise<void> => {
    for (const name of left) await build(name, zig);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}
