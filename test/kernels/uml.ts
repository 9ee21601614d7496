/**
 * User Mode Linux, compiled from a Debian release's own sources: a kernel that runs as a program of this machine, without its
 * rights and at its processor's speed. Debian's packages of it have no nf_tables of the families that services need.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { mustRun, unpacked } from "../lab/debian.ts";
import { type DebianKernel, kernelCache, type UnpackedKernel } from "./debian-kernels.ts";

/** What compiling takes, and the packages of Debian that it comes with. */
const TOOLS = { make: "make", gcc: "gcc", flex: "flex", bison: "bison", bc: "bc", tar: "tar", xz: "xz-utils" };

/** Every option that is on; all else is off. */
const CONFIG = path.join(import.meta.dirname, "uml.config");

/** Most of a tree, which nothing here compiles: the sizes of sources decide how long a first run takes. */
const NOT_COMPILED = [
  ...["Documentation/*/*", "tools/testing", "drivers/net/*/*/*.[ch]"],
  ...["gpu", "media", "staging"].map((name) => `drivers/${name}/*.[ch]`),
  "sound/*.[ch]",
];

/** What sources before 7.x need in order to run on this machine's processors; where `from` is not found, nothing is changed. */
const FIXES = [
  {
    // The kernel below takes the registers of a traced program back in one piece alone, and with AMX that has 11 KiB: in less,
    // "ptrace set fp regs failed, errno = 14" ends the guest before its first program. Later sources ask for the size.
    file: "arch/x86/um/user-offsets.c",
    from: "DEFINE_LONGS(HOST_FP_SIZE, 2696)",
    to: "DEFINE_LONGS(HOST_FP_SIZE, 16384)",
  },
];

/** Names of packages that are missing for compiling. */
export function missingTools(isThere: (program: string) => boolean): readonly string[] {
  return Object.entries(TOOLS)
    .filter(([program]) => !isThere(program))
    .map(([, name]) => name);
}

/** Fetches, compiles and keeps a release's kernel. Takes minutes once a week, and says how far it is. Throws with make's last words. */
export async function buildUml(kernel: DebianKernel, say: (text: string) => void): Promise<UnpackedKernel> {
  const directory = path.join(kernelCache, `${kernel.suite}-uml`);
  const root = unpacked(directory, kernel.suite, "the kernel's sources", (archive) => {
    archive.download(archive.dependencies("linux-source").filter((name) => /^linux-source-\d/.test(name)));
  });
  const image = path.join(directory, "linux");
  const stamp = path.join(directory, "stamp");
  const key = createHash("sha256").update(readFileSync(CONFIG)).update(JSON.stringify(FIXES)).digest("hex");
  if (!existsSync(image) || !existsSync(stamp) || readFileSync(stamp, "utf8") !== key) {
    await compile(path.join(root, "usr", "src"), directory, say);
    writeFileSync(stamp, key);
  }
  return { machine: "uml", release: mustRun(image, ["--version"]).trim(), image };
}

async function compile(sources: string, directory: string, say: (text: string) => void): Promise<void> {
  const archive = readdirSync(sources).find((name) => name.endsWith(".tar.xz"));
  if (archive === undefined) throw new Error(`no sources in ${sources}`);
  const log = path.join(directory, "build.log");
  const tree = path.join(directory, "tree");
  const out = path.join(directory, "out");
  for (const each of [tree, out, log]) rmSync(each, { recursive: true, force: true });
  for (const each of [tree, out]) mkdirSync(each);
  say(`compiling ${archive.replace(/\.tar\.xz$/, "")} as User Mode Linux; the log is ${log}`);
  const leaveOut = NOT_COMPILED.map((pattern) => `--exclude=*/${pattern}`);
  await logged(log, say, [
    "tar",
    "-x",
    "--strip-components=1",
    "--wildcards",
    ...leaveOut,
    "-C",
    tree,
    "-f",
    path.join(sources, archive),
  ]);
  for (const { file, from, to } of FIXES) {
    const text = readFileSync(path.join(tree, file), "utf8");
    writeFileSync(path.join(tree, file), text.replaceAll(from, to));
  }
  const make = ["make", "-C", tree, `O=${out}`, "ARCH=um"];
  await logged(log, say, [...make, `KCONFIG_ALLCONFIG=${CONFIG}`, "allnoconfig"]);
  await logged(log, say, [...make, `-j${availableParallelism()}`, "linux"]);
  mustRun("cp", [path.join(out, "linux"), path.join(directory, "linux")]);
  for (const each of [tree, out]) rmSync(each, { recursive: true });
}

/** Runs to the end, with what it prints in `log`, and says each minute how long that has become. */
function logged(log: string, say: (text: string) => void, [command = "", ...args]: readonly string[]): Promise<void> {
  const lines = (): readonly string[] => readFileSync(log, "utf8").trimEnd().split("\n");
  return new Promise((resolve, reject) => {
    const output = openSync(log, "a");
    const child = spawn("nice", ["-n", "10", command, ...args], {
      stdio: ["ignore", output, output],
      // Where compilers are ccache, checkouts share what it keeps.
      env: { ...process.env, CCACHE_BASEDIR: path.dirname(log) },
    });
    closeSync(output);
    const timer = setInterval(
      () => say(`${command}: ${lines().filter((line) => /^ {2}CC /.test(line)).length} files compiled`),
      60_000,
    );
    child.on("error", reject);
    child.on("close", (code, signal) => {
      clearInterval(timer);
      if (code === 0) resolve();
      else
        reject(
          new Error(`${command} ended with ${signal ?? `code ${code}`}; ${log}:\n${lines().slice(-20).join("\n")}`),
        );
    });
  });
}
