import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { IpFamily } from "../base/ip.js";

/** Reads a file of /proc below `root`. Returns "" if it cannot be read, as if it listed nothing. */
export async function readText(root: string, file: string): Promise<string> {
  try {
    return await readFile(join(root, file), "utf8");
  } catch {
    return "";
  }
}

/** Names of the existing tables of the older iptables. A request for any other table would make the kernel create it. */
export async function legacyTableNames(family: IpFamily, root = "/"): Promise<string[]> {
  return (await readText(root, `proc/net/${family}_tables_names`)).split("\n").filter((name) => name !== "");
}
