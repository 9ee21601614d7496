/** One number that the kernel keeps in a file of /proc or /sys. */
import { constants } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { reasonOf } from "../base/unknown.js";
import type { Logger } from "../base/logger.js";

/** Where the tree of the kernel's files begins, and the log for what could not be done. */
export interface KernelFiles {
  /** "/", or the root of a tree that stands for it. */
  readonly root: string;
  readonly log: Logger;
}

export interface DesiredNumber {
  /** Below the root: "proc/sys/net/netfilter/nf_conntrack_max". */
  readonly file: string;
  readonly desired: number;
  /** A number that is larger already stays. */
  readonly onlyUpwards?: boolean;
  /** What a person can do where the kernel forbids it. */
  readonly remedy: string;
}

/** What the file says; undefined when it cannot be read or says something else than a number. */
export async function readNumber({ root }: Pick<KernelFiles, "root">, file: string): Promise<number | undefined> {
  try {
    const text = (await readFile(join(root, file), "utf8")).trim();
    return /^-?\d+$/.test(text) ? Number(text) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Brings the number to what is desired, and returns the one that is in force then (undefined: not known). Nothing is written
 * when there is nothing to change, so that a container that may only read is fine on a node that is set up already. What the
 * kernel forbids is a warning; never throws.
 */
export async function setNumber(files: KernelFiles, setting: DesiredNumber): Promise<number | undefined> {
  const { file, desired, onlyUpwards = false, remedy } = setting;
  const present = await readNumber(files, file);
  if (present === desired || (onlyUpwards && present !== undefined && present > desired)) return present;
  const report = { file: `/${file}`, desired, present };
  // Unread, it might be larger.
  const error = onlyUpwards && present === undefined ? "cannot be read" : await write(join(files.root, file), desired);
  if (error !== undefined) {
    files.log.warn({ ...report, err: error, hint: remedy }, "changing a system setting failed");
    return present;
  }
  files.log.info(report, "system setting changed");
  return desired;
}

/** What went wrong: "EROFS: read-only file system, open '…'". */
async function write(path: string, value: number): Promise<string | undefined> {
  try {
    // Never created: a file that the kernel does not have is a setting that it does not know.
    await writeFile(path, String(value), { flag: constants.O_WRONLY | constants.O_TRUNC });
    return undefined;
  } catch (error) {
    return reasonOf(error);
  }
}
