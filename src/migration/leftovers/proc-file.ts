import { readFile } from "node:fs/promises";
import { join } from "node:path";

/** Reads a file of /proc below `root`. Returns "" if it cannot be read, as if it listed nothing. */
export async function readText(root: string, file: string): Promise<string> {
  try {
    return await readFile(join(root, file), "utf8");
  } catch {
    return "";
  }
}
