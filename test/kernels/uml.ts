/**
 * User Mode Linux, compiled from a Debian release's own sources: a kernel that runs as a program of this machine, without its rights and at
 * its processor's speed. Debian's own packages of it lack nf_tables for the families that services need.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { mustRun, unpacked } from "../lab/debian.ts";
import { type DebianKernel, kernelCache, type UnpackedKernel } from "./debian-kernels.ts";

/** Programs needed for compiling, and their Debian packages. */
const TOOLS = { make: "make", gcc: "gcc", flex: "flex", bison: "bison", bc: "bc", tar: "tar", xz: "xz-utils" };

/** Every enabled option; all others are off. */
const CONFIG = path.join(import.meta.dirname, "uml.config");

/** Most of the source tree, which is not compiled: the size of the sources determines the time of a first run. */
const NOT_COMPILED = [
  ...["Documentation/*/*", "tools/testing", "drivers/net/*/*/*.[ch]"],
  ...["gpu", "media", "staging"].map((name) => `drivers/${name}/*.[ch]`),
  "sound/*.[ch]",
];

/** Fixes that sources before 7.x need to run on this machine's processors; if `from` is not found, nothing is changed. */
const FIXES = [
  {
    // The host kernel accepts the registers of a traced program only as a whole, and with AMX these have 11 KiB. With less space, "ptrace
    // set fp regs failed, errno = 14" ends the guest before its first program. Later sources ask for the size.
    file: "arch/x86/um/user-offsets.c",
    from: "DEFINE_LONGS(HOST_FP_SIZE, 2696)",
    to: "DEFINE_LONGS(HOST_FP_SIZE, 16384)",
  },
];

/** Names of missing packages for compiling. */
export function missingTools(isThere: (program: string) => boolean): readonly string[] {
  return Object.entries(TOOLS)
    .filter(([program]) => !isThere(program))
    .map(([, name]) => name);
}

/** Fetches, compiles and keeps a release's kernel. Takes minutes once a week, and reports progress. Throws with make's last lines. */
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
  return { machine: "uml", architecture: "amd64", release: mustRun(image, ["--version"]).trim(), image };
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

/** Runs a command to its end, with its output in `log`, and reports the elapsed time each minute. */
function logged(log: string, say: (text: string) => void, [command = "", ...args]: readonly string[]): Promise<void> {
  const lines = (): readonly string[] => readFileSync(log, "utf8").trimEnd().split("\n");
  return new Promise((resolve, reject) => {
    const output = openSync(log, "a");
    const child = spawn("nice", ["-n", "10", command, ...args], {
      stdio: ["ignore", output, output],
      // If the compilers are ccache, checkouts share its objects.
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
