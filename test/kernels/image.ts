/**
 * A guest's file system: files of this machine (the pinned Node, iproute2, nft, util-linux, with their libraries), BusyBox, and this built
 * checkout, all in one initramfs. There is no disk: the kernel unpacks everything into memory.
 */
import { existsSync, lstatSync, readdirSync, readlinkSync, realpathSync, statSync } from "node:fs";
import path from "node:path";
import { root } from "../checks.ts";
import { mustRun } from "../lab/debian.ts";
import { CpioWriter } from "./cpio.ts";
import { busybox, type UnpackedKernel } from "./debian-kernels.ts";

/** Directory of the checkout in the guest. */
const GUEST_ROOT = "repo";

/** This machine's programs that tests start; BusyBox provides the rest. */
const PROGRAMS = ["ip", "nft", "unshare", "nsenter", "mount", "flock", "setpriv", "script", "bash", "ss"];
/** Small tables that these programs read, if this machine has them. */
const DATA = ["etc/protocols", "etc/services", "etc/iproute2", "usr/share/iproute2", "etc/ssl/openssl.cnf"];
/** Directories below /usr. Whether or not the distribution has merged them, these are links to them in the guest. */
const MERGED = ["bin", "sbin", "lib", "lib32", "lib64"];

/** Parts of the checkout. */
const CHECKOUT = [
  "deploy",
  "dist",
  "src",
  "test",
  "native",
  "docs",
  "README.md",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
  "vitest.config.ts",
  "build/Release/nft_proxier.node",
  "build/Release/nft_proxier_test.node",
  "build/lab",
];

/** Packages that build, lint or describe, which no test loads; and in all packages, files that only compilers and people read. */
const NOT_LOADED =
  /^node_modules\/(typescript|@typescript|prettier|oxlint|oxlint-tsgolint|@oxlint|@oxlint-tsgolint|node-gyp|@types|\.cache|\.vite|\.vitest|node-linux-[^/]*\/(include|share|lib))(\/|$)/;
const NOT_READ = /\.(d\.[cm]?ts|map|md|flow)$/;

/**
 * The kernel calls this when it needs a module. One at a time: BusyBox considers a module loaded while another process is still loading it,
 * and the kernel would not find it.
 */
const MODPROBE = `#!/bin/busybox sh
exec flock /tmp/lock /bin/busybox modprobe "$@"
`;

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

/** Adds a file, or a directory with everything below it, to the archive, unless `leaveOut` excludes it. */
function copyTree(archive: CpioWriter, from: string, to: string, leaveOut = (_file: string): boolean => false): void {
  const stat = lstatSync(from);
  if (leaveOut(to)) return;
  if (stat.isSymbolicLink()) archive.link(to, readlinkSync(from));
  else if (stat.isDirectory()) {
    archive.directory(to);
    for (const name of readdirSync(from)) copyTree(archive, path.join(from, name), `${to}/${name}`, leaveOut);
  } else if (stat.isFile()) archive.copy(to, from, stat);
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
  return readdirSync(directory, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".node") && !musl(name))
    .map((name) => path.join(directory, name));
}

/**
 * Writes the part that all kernels share. The checkout must be built, including the lab's agent and helpers; `bundle` is the result of
 * bundleProgram().
 */
export function writeUserland(file: string, bundle: string): void {
  const archive = new CpioWriter(file);
  for (const name of ["dev", "proc", "sys", "run", "tmp", "root", "var", "etc"]) archive.directory(name);
  for (const name of MERGED) {
    archive.directory(`usr/${name}`);
    archive.link(name, `usr/${name}`);
  }
  archive.file("etc/passwd", Buffer.from("root:x:0:0:root:/root:/bin/sh\n"));
  archive.file("etc/group", Buffer.from("root:x:0:\n"));
  archive.file("etc/hosts", Buffer.from("127.0.0.1 localhost\n::1 localhost\n"));
  archive.file("etc/nsswitch.conf", Buffer.from("hosts: files\n"));
  for (const name of DATA.filter((name) => existsSync(`/${name}`))) copyTree(archive, realpathSync(`/${name}`), name);

  const programs = PROGRAMS.map(which);
  const node = path.join(root, "node_modules", `node-linux-${process.arch}`, "bin", "node");
  const agent = path.join(root, "build", "lab", "agent");
  const addons = [
    path.join(root, "build", "Release", "nft_proxier.node"),
    path.join(root, "build", "Release", "nft_proxier_test.node"),
    ...addonsIn(path.join(root, "node_modules")),
  ];
  const python = pythonFiles();
  const extensions = python.modules.filter((file) => file.endsWith(".so"));
  const linked = librariesOf([...programs, node, agent, ...addons, python.program, ...extensions]);
  for (const each of [...programs, ...linked, python.program, ...python.modules]) {
    archive.copy(inGuest(each), each, statSync(each));
  }
  archive.copy("usr/bin/busybox", busybox(), statSync(busybox()));
  // Not BusyBox's: its shell runs its own setpriv, ip and so on instead of the real ones, wherever those are.
  archive.link("usr/bin/sh", "bash");
  archive.link("usr/bin/python3", `/${inGuest(python.program)}`);
  archive.file("usr/sbin/modprobe", Buffer.from(MODPROBE), { executable: true });
  const init = path.join(import.meta.dirname, "init.sh");
  archive.copy("init", init, { ...statSync(init), mode: 0o755 });

  for (const name of CHECKOUT) copyTree(archive, path.join(root, name), `${GUEST_ROOT}/${name}`);
  copyTree(archive, bundle, `${GUEST_ROOT}/dist/bundle`);
  copyTree(archive, path.join(root, "node_modules"), `${GUEST_ROOT}/node_modules`, (to) => {
    const inside = to.slice(GUEST_ROOT.length + 1);
    return NOT_LOADED.test(inside) || NOT_READ.test(inside);
  });
  archive.close();
}

/** Writes a kernel's own part: its modules, except those in `without`, and the guest's job (init.sh reads it). */
export function writeJob(
  file: string,
  kernel: UnpackedKernel,
  job: Readonly<Record<string, string>>,
  without: readonly string[] = [],
): void {
  const archive = new CpioWriter(file);
  const leaveOut = (to: string): boolean => without.includes(path.basename(to, ".ko"));
  if (kernel.modules !== undefined) copyTree(archive, kernel.modules, `usr/lib/modules/${kernel.release}`, leaveOut);
  const quote = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;
  const lines = Object.entries(job).map(([name, value]) => `${name}=${quote(value)}\n`);
  archive.file("job", Buffer.from(lines.join("")));
  archive.close();
}
