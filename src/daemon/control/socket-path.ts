import { readlinkSync } from "node:fs";
import { join } from "node:path";

/** Of root alone; a mount where the root file system is read-only. */
const DIRECTORY = "/run/nft-proxier";

/** Whether a file's name is that of some daemon's default socket. */
export function isDefaultName(name: string): boolean {
  return /^\d+\.sock$/.test(name);
}

/**
 * Where the daemon of this network namespace answers. One namespace has one table, and so one daemon; the namespace's inode number tells
 * those of a machine apart, and a command that is run in a namespace finds the daemon that serves it.
 */
export function defaultSocketPath(directory = DIRECTORY): string {
  const inode = /\d+/.exec(readlinkSync("/proc/self/ns/net"))?.[0] ?? "0";
  return join(directory, `${inode}.sock`);
}
