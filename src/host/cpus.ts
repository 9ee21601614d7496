import { readFile } from "node:fs/promises";
import { cpus } from "node:os";
import { join } from "node:path";

/** "0-3,8" as a count; undefined for what is no such list. */
function countOf(list: string): number | undefined {
  let count = 0;
  for (const part of list.trim().split(",")) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(part);
    if (match === null) return undefined;
    const first = Number(match[1]);
    const last = Number(match[2] ?? match[1]);
    if (last < first) return undefined;
    count += last - first + 1;
  }
  return count;
}

/**
 * CPUs of the node that are online, whatever part of them this process may use: the connection table belongs to all
 * of them. As kube-proxy 1.36 (cpuset.NumCPU), from /sys/devices/system/cpu/online below `root`.
 */
export async function onlineCPUs(root: string): Promise<number> {
  try {
    const count = countOf(await readFile(join(root, "sys/devices/system/cpu/online"), "utf8"));
    if (count !== undefined) return count;
  } catch {
    // No sysfs: what the C library knows has to do.
  }
  return Math.max(1, cpus().length);
}
