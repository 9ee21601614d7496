import { readFile } from "node:fs/promises";
import { join } from "node:path";

/** A file of /proc below `root`; "" when it cannot be read: what it would list is then not there. */
export async function readText(root: string, file: string): Promise<string> {
  try {
    return await readFile(join(root, file), "utf8");
  } catch {
    return "";
  }
}
