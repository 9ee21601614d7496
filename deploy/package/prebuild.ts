/**
 * Builds the addon for each platform that the package supports without a compiler:
 * prebuilds/linux-{x64,arm64}-{glibc,musl}/.
 *
 *   node deploy/package/prebuild.ts [PLATFORM...]
 *
 * The C++ compiler is Zig (deploy/package/zig, from the npm registry). The result needs no glibc newer than Node's own
 * (2.28), and no C++ library: the parts that the addon needs are linked in (runtime.cc). Zig would compile the whole
 * library for each platform, which takes longer than everything else.
 * libnftnl and libmnl come from Debian and are placed beside the addon, where they are found first (RUNPATH $ORIGIN),
 * so an installation needs no libraries. They need no glibc newer than 2.14. musl's loader accepts libraries linked
 * against glibc; they only lack two checked printf functions, which musl.c provides.
 * A platform whose sources and tools are unchanged is not built again. Otherwise only the sources that a change affects
 * are compiled.
 */
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
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

/** As in binding.gyp. */
const DEFINES = [
  "NODE_GYP_MODULE_NAME=nft_proxier",
  "BUILDING_NODE_EXTENSION",
  "NAPI_CPP_EXCEPTIONS",
  "NAPI_VERSION=9",
  "NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS",
  "_GNU_SOURCE",
];

/** As Zig compiles its C++ library. The last one omits the decoding of type names for a message before the process ends. */
const RUNTIME_DEFINES = [
  "_LIBCPP_BUILDING_LIBRARY",
  "_LIBCXXABI_BUILDING_LIBRARY",
  "LIBCXX_BUILDING_LIBCXXABI",
  "LIBCXXABI_NON_DEMANGLING_TERMINATE",
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
    [import.meta.dirname, "package", /^(musl\.c|runtime\.cc)$/],
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

/** A source with the words of the command that compiles it. */
interface Unit {
  readonly source: string;
  readonly words: readonly string[];
}

/** Returns the addon's own sources and those of its C++ runtime. Paths are relative to the copies. */
function unitsOf(name: string, zig: CrossCompiler): readonly Unit[] {
  const library = path.relative(sources, zig.library);
  const headers = ["node-addon-api", "node", platforms[name].architecture].flatMap((from) => ["-isystem", from]);
  const own = ["c++", "-std=c++17", ...DEFINES.map((define) => `-D${define}`), "-Inative", ...headers];
  const unwind = ["include", "src"].map((from) => `-I${library}/libunwind/${from}`);
  const unwinder = (file: string, ...words: readonly string[]): Unit => ({
    source: `${library}/libunwind/src/${file}`,
    words: [...words, "-D_LIBUNWIND_IS_NATIVE_ONLY", "-D_LIBUNWIND_HIDE_SYMBOLS", ...unwind],
  });
  const runtime = [
    "c++",
    "-std=c++20",
    `-I${library}`,
    `-I${library}/libcxx/src`,
    ...RUNTIME_DEFINES.map((define) => `-D${define}`),
  ];
  return [
    ...filesUnder(path.join(sources, "native", "units")).map((file) => ({
      source: `native/units/${file}`,
      words: own,
    })),
    { source: "native/js/addon.cc", words: own },
    { source: "package/runtime.cc", words: runtime },
    // These two define a class of the library again, so they are units of their own.
    ...["mutex", "condition_variable"].map((type) => ({
      source: `${library}/libcxx/src/${type}_destructor.cpp`,
      words: runtime,
    })),
    unwinder("libunwind.cpp", "c++", "-std=c++17", "-fno-exceptions", "-fno-rtti"),
    unwinder("UnwindLevel1.c", "cc", "-fexceptions"),
    unwinder("UnwindRegistersSave.S", "cc"),
    unwinder("UnwindRegistersRestore.S", "cc"),
    ...(name.endsWith("musl") ? [{ source: "package/musl.c", words: ["cc"] }] : []),
  ];
}

const objectOf = (name: string, { source }: Unit): string => path.join(cache, name, `${path.basename(source)}.o`);

function compile(name: string, unit: Unit, zig: CrossCompiler): Promise<void> {
  const [command, ...words] = unit.words;
  // Without -g0, the compiler writes the debugger's information, only to be stripped.
  const common = ["-target", platforms[name].zig, "-fPIC", "-O2", "-g0", "-fvisibility=hidden"];
  const visibility = command === "c++" ? ["-fvisibility-global-new-delete-hidden"] : [];
  const output = ["-c", unit.source, "-o", objectOf(name, unit)];
  return zig.run(sources, [command, ...common, ...visibility, ...words, ...output]);
}

async function link(name: string, zig: CrossCompiler): Promise<void> {
  const platform = platforms[name];
  const addon = addonOf(name);
  const directory = path.dirname(addon);
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  for (const library of LIBRARIES) {
    copyFileSync(path.join(debianLibraries(platform), library), path.join(directory, library));
  }
  const objects = unitsOf(name, zig).map((unit) => objectOf(name, unit));
  const libraries = LIBRARIES.map((library) => path.join(directory, library));
  const words = ["-target", platform.zig, "-O2", "-shared", "-s", "-Wl,-rpath,$ORIGIN"];
  await zig.run(sources, ["cc", ...words, ...objects, ...libraries, "-o", addon]);
  mkdirSync(path.join(directory, "status.d"));
  for (const library of ["libnftnl11", "libmnl0"]) {
    const copy = (from: string, to: string): void =>
      copyFileSync(path.join(debianRoot(platform), from), path.join(directory, to));
    copy(`usr/share/doc/${library}/copyright`, `${library}.copyright`);
    copy(`var/lib/dpkg/status.d/${library}`, `status.d/${library}`);
  }
  // The stamp describes the copies, because the checkout may have changed meanwhile.
  writeFileSync(stampOf(name), digest(name, platform, "copies"));
}

/** Runs all jobs, as many at the same time as there are cores. */
async function run(jobs: readonly (() => Promise<void>)[]): Promise<void> {
  const left = jobs.values();
  const work = async (): Promise<void> => {
    for (const job of left) await job();
  };
  await Promise.all(Array.from({ length: availableParallelism() }, work));
}

const asked = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(platforms);
const unknown = asked.find((name) => !(name in platforms));
if (unknown !== undefined) throw new Error(`no platform ${unknown}; there are ${Object.keys(platforms).join(", ")}`);
const changed = asked.filter((name) => !isBuilt(name));
if (changed.length > 0) {
  const zig = new CrossCompiler(cache);
  for (const name of changed) {
    prepareSources(platforms[name]);
    // If this build ends early, its remains must not look like the result of an earlier one.
    rmSync(stampOf(name), { force: true });
    mkdirSync(path.join(cache, name), { recursive: true });
  }
  console.log(`compiling the addon for ${changed.join(", ")}`);
  await run(changed.flatMap((name) => unitsOf(name, zig).map((unit) => () => compile(name, unit, zig))));
  await run(changed.map((name) => () => link(name, zig)));
}
