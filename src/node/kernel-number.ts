/** A single number that the kernel keeps in a file of /proc or /sys. */
import { constants } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { reasonOf } from "../base/unknown.js";
import type { Logger } from "../base/logger.js";

/** The root of the kernel's files, and the log for failures. */
export interface KernelFiles {
  /** "/", or the root of another tree. */
  readonly root: string;
  readonly log: Logger;
}

export interface DesiredNumber {
  /** Below the root: "proc/sys/net/netfilter/nf_conntrack_max". */
  readonly file: string;
  readonly desired: number;
  /** Keep a larger number. */
  readonly onlyUpwards?: boolean;
  /** Advice for a person if the kernel forbids the change. */
  readonly remedy: string;
}

/** Reads a number from the file. Returns undefined if the file cannot be read or contains no number. */
export async function readNumber({ root }: Pick<KernelFiles, "root">, file: string): Promise<number | undefined> {
  try {
    const text = (await readFile(join(root, file), "utf8")).trim();
    return /^-?\d+$/.test(text) ? Number(text) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Brings the number to the desired value, and returns the active value afterwards (undefined if unknown). Writes nothing if
 * there is nothing to change, so a container with read-only access is enough on a prepared node. Logs a warning if the
 * kernel forbids a change; never throws.
 */
export async function setNumber(files: KernelFiles, setting: DesiredNumber): Promise<number | undefined> {
  const { file, desired, onlyUpwards = false, remedy } = setting;
  const present = await readNumber(files, file);
  if (present === desired || (onlyUpwards && present !== undefined && present > desired)) return present;
  const report = { file: `/${file}`, desired, present };
  // If the current number cannot be read, it might be larger.
  const error = onlyUpwards && present === undefined ? "cannot be read" : await write(join(files.root, file), desired);
  if (error !== undefined) {
    files.log.warn({ ...report, err: error, hint: remedy }, "changing a system setting failed");
    return present;
  }
  files.log.info(report, "system setting changed");
  return desired;
}

/** Returns the error, if any: "EROFS: read-only file system, open '…'". */
async function write(path: string, value: number): Promise<string | undefined> {
  try {
    // Never create the file: the kernel does not know a setting without a file.
    await writeFile(path, String(value), { flag: constants.O_WRONLY | constants.O_TRUNC });
    return undefined;
  } catch (error) {
    return reasonOf(error);
  }
}
