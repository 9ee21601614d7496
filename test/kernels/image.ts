/**
 * What a guest runs on: files of this machine (the pinned Node, iproute2, nft, util-linux, with their libraries), BusyBox,
 * and this checkout as it is built, all in one initramfs. There is no disk: the kernel unpacks everything into memory.
 */
import { existsSync, lstatSync, readdirSync, readlinkSync, realpathSync, statSync } from "node:fs";
import path from "node:path";
import { root } from "../checks.ts";
import { mustRun } from "../lab/debian.ts";
import { CpioWriter } from "./cpio.ts";
import { busybox, type UnpackedKernel } from "./debian-kernels.ts";

/** Where the checkout is in the guest. */
const GUEST_ROOT = "repo";

/** The programs that tests start, of this machine; BusyBox has the rest. */
const PROGRAMS = ["ip", "nft", "unshare", "nsenter", "mount", "flock", "setpriv", "script", "bash", "ss"];
/** Small tables that those programs read, where this machine has them. */
const DATA = ["etc/protocols", "etc/services", "etc/iproute2", "usr/share/iproute2", "etc/ssl/openssl.cnf"];
/** Of /usr: where distributions have it merged, and where they have not, these are links to its directories. */
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

/** Packages that build, lint or describe, and that no test loads; and of all packages what only compilers and people read. */
const NOT_LOADED =
  /^node_modules\/(typescript|@typescript|prettier|oxlint|oxlint-tsgolint|@oxlint|@oxlint-tsgolint|node-gyp|@types|\.cache|\.vite|\.vitest|node-linux-[^/]*\/(include|share|lib))(\/|$)/;
const NOT_READ = /\.(d\.[cm]?ts|map|md|flow)$/;

/**
 * What the kernel calls when it wants a module. One at a time: BusyBox takes a module that another is just loading for
 * loaded, and the kernel would not find what it asked for.
 */
const MODPROBE = `#!/bin/busybox sh
exec flock /tmp/lock /bin/busybox modprobe "$@"
`;

/** A path of this machine as the guest has it. */
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

/** Shared libraries of these programs, the loader among them, by the paths that they are looked for at. */
function librariesOf(files: readonly string[]): readonly string[] {
  const text = files.map((file) => mustRun("ldd", [file])).join("\n");
  return [...new Set([...text.matchAll(/(?:=> |^\s+)(\/\S+) \(0x/gm)].map(([, file = ""]) => file))];
}

/** Puts a file or a directory with all below it into the archive, unless `leaveOut` says otherwise. */
function copyTree(archive: CpioWriter, from: string, to: string, leaveOut = (_file: string): boolean => false): void {
  const stat = lstatSync(from);
  if (leaveOut(to)) return;
  if (stat.isSymbolicLink()) archive.link(to, readlinkSync(from));
  else if (stat.isDirectory()) {
    archive.directory(to);
    for (const name of readdirSync(from)) copyTree(archive, path.join(from, name), `${to}/${name}`, leaveOut);
  } else if (stat.isFile()) archive.copy(to, from, stat);
}

/** What Python reads to run test/lab/legacy-tables.py, and the program itself: it is on many machines a link or a script. */
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

/** The addons that packages bring for this platform. */
function addonsIn(directory: string): string[] {
  const musl = (name: string): boolean => name.includes("musl");
  return readdirSync(directory, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".node") && !musl(name))
    .map((name) => path.join(directory, name));
}

/** Writes the part that all kernels have in common. The checkout must be built, the lab's agent and helpers too; `bundle` is bundleProgram()'s. */
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
  // Not BusyBox's: its shell runs its own setpriv, ip and so on in place of the real ones, wherever those are.
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

/** Writes a kernel's own part: its modules, but for those of `without`, and what the guest is to do (init.sh reads it). */
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
