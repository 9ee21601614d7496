/** Reads a directory of manifest files. */
import { type BigIntStats, constants } from "node:fs";
import { open, readdir, realpath, stat } from "node:fs/promises";
import { basename, dirname, extname, join } from "node:path";
import { isNoEntry, reasonOf } from "../../base/unknown.js";
import { FileFault, mebibytes } from "./documents.js";

/**
 * Maximum size of a file. JSON is in memory once, as bytes: 50,000 services with ten endpoints each take 150 MB. YAML also
 * needs a V8 string.
 */
const MAX_BYTES = { json: 512 << 20, yaml: 64 << 20 } as const;

export interface FileContent {
  /** Differs after every write that the file system's clock can distinguish from the previous one. */
  readonly signature: string;
  /** UTF-8. */
  readonly bytes: Buffer;
}

export function formatOf(file: string): "json" | "yaml" | undefined {
  const extension = extname(file).toLowerCase();
  if (extension === ".json") return "json";
  return extension === ".yaml" || extension === ".yml" ? "yaml" : undefined;
}

/** Editors leave hidden files in the directory. */
export function isManifest(file: string): boolean {
  return !file.startsWith(".") && formatOf(file) !== undefined;
}

interface Listing {
  /** Names of manifest files, sorted. */
  readonly files: readonly string[];
  /** Files outside this directory that are targets of links in it: names by directory. */
  readonly linked: ReadonlyMap<string, ReadonlySet<string>>;
}

/** Throws the errors of readdir. */
export async function listDirectory(directory: string): Promise<Listing> {
  const entries = await readdir(directory, { withFileTypes: true });
  const files = entries.filter((entry) => isManifest(entry.name) && !entry.isDirectory());
  const linked = new Map<string, Set<string>>();
  for (const { name } of files.filter((entry) => entry.isSymbolicLink())) {
    const target = await realpath(join(directory, name)).catch(() => undefined);
    if (target === undefined) continue;
    const names = linked.get(dirname(target)) ?? new Set();
    linked.set(dirname(target), names.add(basename(target)));
  }
  linked.delete(await realpath(directory));
  return { files: files.map(({ name }) => name).sort(), linked };
}

/** Signature of a file. Returns undefined if the file does not exist or cannot be inspected. */
export async function fileVersion(path: string): Promise<string | undefined> {
  try {
    return signatureOf(await stat(path, { bigint: true }));
  } catch {
    return undefined;
  }
}

/** Returns undefined if the file does not exist. Throws `FileFault`. */
export async function readManifest(path: string): Promise<FileContent | undefined> {
  try {
    // O_NONBLOCK, because opening a pipe would otherwise wait for its writer.
    const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stats = await handle.stat({ bigint: true });
      if (!stats.isFile()) throw new FileFault("is not a regular file");
      checkSize(path, Number(stats.size));
      return { signature: signatureOf(stats), bytes: await handle.readFile() };
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof FileFault) throw error;
    if (isNoEntry(error)) return undefined;
    throw new FileFault(`cannot be read: ${reasonOf(error)}`);
  }
}

function checkSize(path: string, size: number): void {
  const format = formatOf(path) ?? "yaml";
  if (size <= MAX_BYTES[format]) return;
  const remedy = `split it into several files${format === "yaml" ? ", or write it as JSON" : ""}`;
  const limit = `${mebibytes(MAX_BYTES[format])} of ${format.toUpperCase()}`;
  throw new FileFault(`has ${mebibytes(size)}, more than the limit of ${limit}`, undefined, undefined, remedy);
}

function signatureOf({ ino, dev, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join(" ");
}
