import { readlinkSync } from "node:fs";
import { join } from "node:path";

/** Only for root. Must be a mount if the root file system is read-only. */
const DIRECTORY = "/run/nft-proxier";

/** Whether a file's name is that of some daemon's default socket. */
export function isDefaultName(name: string): boolean {
  return /^\d+\.sock$/.test(name);
}

/**
 * Returns the path of the daemon's socket in this network namespace. A namespace has one table, and so one daemon. The
 * namespace's inode number makes the path unique on the machine, and a command run in a namespace finds the daemon that
 * serves it.
 */
export function defaultSocketPath(directory = DIRECTORY): string {
  const inode = /\d+/.exec(readlinkSync("/proc/self/ns/net"))?.[0] ?? "0";
  return join(directory, `${inode}.sock`);
}
