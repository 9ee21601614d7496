/** A directory of manifest files: what is in it. */
import type { BigIntStats } from "node:fs";
import { open, readdir, realpath, stat } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { isNoEntry, reasonOf } from "../base/unknown.js";
import { mebibytes } from "./documents.js";

/** Bytes of a file. JSON is in memory once, as it is: 50,000 services with ten endpoints each are 150 MB. YAML is a string of V8 besides. */
const MAX_BYTES = { json: 512 << 20, yaml: 64 << 20 } as const;

export interface FileContent {
  /** Differs after every write that the file system's clock can tell from the one before. */
  readonly signature: string;
  /** UTF-8. */
  readonly bytes: Buffer;
}

/** The file is there but is nothing that can be read. */
export class UnreadableFile extends Error {
  readonly code = "EUNREADABLE";
  /** What to do, where that is known. */
  readonly remedy: string | undefined;

  constructor(reason: string, options: ErrorOptions & { readonly remedy?: string } = {}) {
    super(reason, options);
    this.remedy = options.remedy;
  }
}

export function formatOf(file: string): "json" | "yaml" | undefined {
  switch (extname(file).toLowerCase()) {
    case ".json":
      return "json";
    case ".yaml":
    case ".yml":
      return "yaml";
    default:
      return undefined;
  }
}

/** Hidden files are editors' leavings. */
export function isManifest(file: string): boolean {
  return !file.startsWith(".") && formatOf(file) !== undefined;
}

export interface Listing {
  /** Manifest files by name, sorted. */
  readonly files: readonly string[];
  /** Directories outside this one that files here are links into. */
  readonly linked: ReadonlySet<string>;
}

/** Throws what readdir throws. */
export async function listDirectory(directory: string): Promise<Listing> {
  const files: string[] = [];
  const linked = new Set<string>();
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    if (!isManifest(entry.name)) continue;
    if (entry.isDirectory()) continue;
    files.push(entry.name);
    if (!entry.isSymbolicLink()) continue;
    const target = await realpath(join(directory, entry.name)).catch(() => undefined);
    if (target !== undefined) linked.add(dirname(target));
  }
  linked.delete(await realpath(directory));
  return { files: files.sort(), linked };
}

/** Signature of a file; undefined when there is no such file. Throws `UnreadableFile`. */
export async function fileVersion(path: string): Promise<string | undefined> {
  try {
    const stats = await stat(path, { bigint: true });
    if (!stats.isFile()) throw new UnreadableFile("is not a regular file");
    return signatureOf(stats);
  } catch (error) {
    return absentOrThrow(error);
  }
}

/** Undefined when there is no such file. Throws `UnreadableFile`. */
export async function readManifest(path: string): Promise<FileContent | undefined> {
  // Opening a pipe would wait for its writer.
  if ((await fileVersion(path)) === undefined) return undefined;
  try {
    const handle = await open(path);
    try {
      const stats = await handle.stat({ bigint: true });
      const signature = signatureOf(stats);
      checkSize(path, Number(stats.size));
      return { signature, bytes: await handle.readFile() };
    } finally {
      await handle.close();
    }
  } catch (error) {
    return absentOrThrow(error);
  }
}

function checkSize(path: string, size: number): void {
  const format = formatOf(path) ?? "yaml";
  if (size <= MAX_BYTES[format]) return;
  const remedy =
    format === "yaml" ? "divide it into several files, or write it as JSON" : "divide it into several files";
  const limit = `${mebibytes(MAX_BYTES[format])} of ${format === "yaml" ? "YAML" : "JSON"}`;
  throw new UnreadableFile(`has ${mebibytes(size)}, more than is read (${limit})`, { remedy });
}

function signatureOf(stats: BigIntStats): string {
  const { ino, dev, size, mtimeNs, ctimeNs } = stats;
  return [dev, ino, size, mtimeNs, ctimeNs].join(" ");
}

function absentOrThrow(error: unknown): undefined {
  if (error instanceof UnreadableFile) throw error;
  if (isNoEntry(error)) return undefined;
  throw new UnreadableFile(`cannot be read: ${reasonOf(error)}`, {
    cause: error,
  });
}
