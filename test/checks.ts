import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";

/** A check of the sources that does not run them: a type check, a linter, a formatter. */
export interface Check {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
}

export const root = path.resolve(import.meta.dirname, "..");
const bin = (name: string): string => path.join(root, "node_modules", ".bin", name);

/** Unchanged files are not checked again: the whole tree takes a minute. */
const PRETTIER = ["--log-level=warn", "--cache", "--cache-strategy=content"];

/** C++ sources, relative to the root. */
function cppFiles(extensions: readonly string[]): string[] {
  return ["native", "test/lab", "test/native/addon", "deploy/image"].flatMap((directory) =>
    readdirSync(path.join(root, directory), { recursive: true, encoding: "utf8" })
      .filter((name) => extensions.includes(path.extname(name)))
      .map((name) => `${directory}/${name}`)
      .sort(),
  );
}

/** The checks that take seconds: types that the build has not checked. */
export function quickChecks(): Check[] {
  return [
    { name: "types of the status page", command: bin("tsc"), args: ["-p", "src/daemon/page/browser"] },
    { name: "types of test/ and deploy/", command: bin("tsc"), args: ["--noEmit", "-p", "test"] },
  ];
}

/**
 * All checks of TypeScript and, on request, only the formatting or all checks of C++: the C++ linter takes minutes, and building does not
 * need it. With `fix`, formatters and linters fix what they can instead of complaining.
 */
export function checks(options: { cpp: "none" | "format" | "all"; fix: boolean }): Check[] {
  const { fix } = options;
  const list: Check[] = [
    { name: "types of src/", command: bin("tsc"), args: ["--noEmit", "-p", "."] },
    ...quickChecks(),
    { name: "prose", command: process.execPath, args: ["--no-warnings", "test/prose/prose.ts"] },
    {
      name: "spelling",
      command: bin("cspell"),
      args: ["lint", "--no-progress", "--no-summary", "--cache", "--cache-location=build/cspell-cache"],
    },
    { name: "oxlint", command: bin("oxlint"), args: ["--deny-warnings", ...(fix ? ["--fix"] : [])] },
    { name: "prettier", command: bin("prettier"), args: [...PRETTIER, fix ? "--write" : "--check", "."] },
  ];
  if (options.cpp === "none") return list;
  const everything = cppFiles([".cc", ".h", ".hpp"]);
  const format = fix ? ["-i"] : ["--dry-run", "--Werror"];
  list.push({ name: "clang-format", command: "clang-format", args: [...format, ...everything] });
  if (options.cpp === "format") return list;
  const headers = [`node_modules/node-linux-${process.arch}/include/node`, "node_modules/node-addon-api"];
  // A unit only includes files that are checked alone.
  for (const file of cppFiles([".cc"]).filter((name) => !/\/units?[/.]/.test(name))) {
    // System headers use -isystem, so that findings in foreign headers are ignored. The warnings are the addon's own, as clang has them: it
    // is also built with compilers other than gcc.
    const warnings = ["-Wall", "-Wextra", "-Wpedantic"];
    const compile = [
      "-std=c++17",
      ...warnings,
      "-D_GNU_SOURCE",
      "-DNAPI_CPP_EXCEPTIONS",
      "-Inative",
      ...headers.flatMap((dir) => ["-isystem", dir]),
    ];
    list.push({ name: `clang-tidy ${file}`, command: "clang-tidy", args: ["--quiet", file, "--", ...compile] });
  }
  return list;
}

/** Runs one check and prints its output if it fails. Returns whether it passed. */
function passes(check: Check): Promise<boolean> {
  const start = Date.now();
  return new Promise((resolve) => {
    execFile(check.command, [...check.args], { cwd: root, maxBuffer: 1 << 28 }, (error, stdout, stderr) => {
      if (error !== null) process.stdout.write(`${stdout}${stderr === "" ? error.message : stderr}\n`);
      console.log(` ${error === null ? "✓" : "✗"} ${check.name} (${Date.now() - start} ms)`);
      resolve(error === null);
    });
  });
}

/** Runs all checks, up to `atOnce` in parallel. Returns those that fail. */
export async function failing(list: readonly Check[], atOnce = availableParallelism()): Promise<readonly Check[]> {
  const failed: Check[] = [];
  const left = list.values();
  const work = async (): Promise<void> => {
    for (const check of left) if (!(await passes(check))) failed.push(check);
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return failed;
}
