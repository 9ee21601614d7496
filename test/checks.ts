import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import path from "node:path";

/** A check of the sources that runs nothing of them: a type check, a linter, a formatter. */
export interface Check {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
}

export const root = path.resolve(import.meta.dirname, "..");
const bin = (name: string): string => path.join(root, "node_modules", ".bin", name);

/** Files that have not changed are not formatted again: the whole tree takes a minute. */
const PRETTIER = ["--log-level=warn", "--cache", "--cache-strategy=content"];

/** C++ sources, relative to the root. */
function cppFiles(extensions: readonly string[]): string[] {
  return ["native", "test/lab"].flatMap((directory) =>
    readdirSync(path.join(root, directory), { recursive: true, encoding: "utf8" })
      .filter((name) => extensions.includes(path.extname(name)))
      .map((name) => `${directory}/${name}`)
      .sort(),
  );
}

/**
 * All checks of TypeScript, and of C++ its formatting or all, where asked for: its linter takes minutes, and is not needed to build.
 * With `fix`, formatters and linters mend what they can instead of complaining.
 */
export function checks(options: { cpp: "none" | "format" | "all"; fix: boolean }): Check[] {
  const { fix } = options;
  const list: Check[] = [
    { name: "types of src/", command: bin("tsc"), args: ["--noEmit", "-p", "."] },
    { name: "types of the status page", command: bin("tsc"), args: ["-p", "src/page/browser"] },
    { name: "types of test/ and deploy/", command: bin("tsc"), args: ["--noEmit", "-p", "test"] },
    { name: "words", command: process.execPath, args: ["--no-warnings", "test/words.ts"] },
    { name: "oxlint", command: bin("oxlint"), args: ["--deny-warnings", ...(fix ? ["--fix"] : [])] },
    { name: "prettier", command: bin("prettier"), args: [...PRETTIER, fix ? "--write" : "--check", "."] },
  ];
  if (options.cpp === "none") return list;
  const everything = cppFiles([".cc", ".h", ".hpp"]);
  const format = fix ? ["-i"] : ["--dry-run", "--Werror"];
  list.push({ name: "clang-format", command: "clang-format", args: [...format, ...everything] });
  if (options.cpp === "format") return list;
  const headers = [`node_modules/node-linux-${process.arch}/include/node`, "node_modules/node-addon-api"];
  for (const file of cppFiles([".cc"])) {
    // System headers by -isystem: what is found in other people's headers is not ours to mend.
    // The addon's own warnings, as clang has them: it also builds with another compiler than gcc.
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

/** Runs one check, prints its output if it fails, and says whether it passed. */
export function passes(check: Check): boolean {
  const start = Date.now();
  const result = spawnSync(check.command, check.args, { cwd: root, encoding: "utf8", maxBuffer: 1 << 28 });
  const ok = result.status === 0;
  if (!ok) process.stdout.write(`${result.stdout ?? ""}${result.stderr ?? ""}${result.error?.message ?? ""}\n`);
  console.log(` ${ok ? "✓" : "✗"} ${check.name} (${Date.now() - start} ms)`);
  return ok;
}
