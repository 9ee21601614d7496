import { readlinkSync } from "node:fs";
import { join } from "node:path";

/** Accessible only to root. Must be a mount if the root file system is read-only. */
const DIRECTORY = "/run/nft-proxier";

/** Whether a file's name is the default name of a daemon's socket. */
export function isDefaultName(name: string): boolean {
  return /^\d+\.sock$/.test(name);
}

/**
 * Returns the path of the daemon's socket in this network namespace. A namespace has one table, and so one daemon. The path has the namespace's
 * inode number, so it is unique on the machine, and a command run in a namespace finds the daemon that serves it.
 */
export function defaultSocketPath(directory = DIRECTORY): string {
  const inode = /\d+/.exec(readlinkSync("/proc/self/ns/net"))?.[0] ?? "0";
  return join(directory, `${inode}.sock`);
}
