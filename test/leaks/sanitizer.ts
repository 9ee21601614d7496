/**
 * Runs programs under LeakSanitizer. AddressSanitizer's runtime is loaded before Node and provides malloc, so it knows every allocation:
 * the addon's, its libraries' and Node's own. Nothing needs to be compiled for that.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { root } from "../checks.ts";
import { buildAddon } from "../lab/build.ts";

const HERE = import.meta.dirname;
const BUILD = path.join(root, "build", "leaks");
/** Exit code of a program in which the sanitizer has found something. */
const FOUND = 23;

export interface Run {
  /** The program's last output, parsed as JSON; undefined if it printed nothing. */
  readonly result: unknown;
  /** The sanitizer's report; empty if there is nothing to report. */
  readonly report: string;
}

export interface Options {
  /** Files of suppressions, in this directory. */
  readonly suppressions?: readonly string[];
  /** Use the addon that is itself compiled under the sanitizers (build-asan/). */
  readonly instrumented?: boolean;
}

/** Returns the library to load before Node. */
function runtimeLibrary(): string {
  const found = spawnSync("c++", ["-print-file-name=libasan.so"], { encoding: "utf8" });
  const library = found.stdout?.trim() ?? "";
  if (path.isAbsolute(library)) return library;
  throw new Error("the compiler has no libasan.so; on Debian it is in g++ (libgcc-12-dev, libasan8)");
}

/** LSan accepts only one file. */
function joinSuppressions(names: readonly string[]): string {
  mkdirSync(BUILD, { recursive: true });
  const file = path.join(BUILD, names.join("+"));
  writeFileSync(file, names.map((name) => readFileSync(path.join(HERE, name), "utf8")).join("\n"));
  return file;
}

function environment({ suppressions = ["suppressions.txt"], instrumented = false }: Options): NodeJS.ProcessEnv {
  const twin = path.join(root, "build-asan", "build", "Release", "nft_proxier.node");
  return {
    ...process.env,
    LD_PRELOAD: runtimeLibrary(),
    ASAN_OPTIONS: `detect_leaks=1:exitcode=${FOUND}:disable_coredump=1`,
    LSAN_OPTIONS: `suppressions=${joinSuppressions(suppressions)}:print_suppressions=0`,
    UBSAN_OPTIONS: "halt_on_error=1:print_stacktrace=1",
    // The kernel makes each rejected transaction wait for all its cores: let many wait at the same time.
    UV_THREADPOOL_SIZE: "16",
    NFT_PROXIER_PROBE: buildAddon("leak-probe"),
    ...(instrumented && { NFT_PROXIER_ADDON: twin }),
  };
}

/**
 * Runs a program of child/ to its end under the sanitizer. Throws if it failed, or if leaks cannot be detected here. A leak or another
 * report of the sanitizer is left to the caller.
 */
export async function sanitized(script: string, args: readonly string[], options: Options = {}): Promise<Run> {
  const program = [process.execPath, "--expose-gc", path.join(HERE, "child", script), ...args] as const;
  const [command, ...rest] = program;
  const child = spawn(command, rest, { env: environment(options), stdio: ["ignore", "pipe", "pipe"] });
  let [out, err] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => (out += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (err += text));
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (...ended) => resolve(ended));
  });
  // The sanitizer stops all threads of the program with ptrace to search for pointers.
  if (/LeakSanitizer has encountered a fatal error/.test(err)) {
    throw new Error(
      "leaks cannot be looked for here: LeakSanitizer may not trace its own process. Run it as root or with CAP_SYS_PTRACE, " +
        `not under strace or gdb, and in a container whose seccomp profile allows ptrace.\n${err}`,
    );
  }
  const found = /^==\d+==\s?ERROR: (?:Leak|Address)Sanitizer|runtime error: /m.test(err);
  if (code !== 0 && !(code === FOUND && found)) {
    throw new Error(`${script} ended with ${code ?? signal}:\n${err}${out}`);
  }
  const last = out.trim().split("\n").at(-1) ?? "";
  return { result: last === "" ? undefined : (JSON.parse(last) as unknown), report: found ? err.trim() : "" };
}
