/** Processes as /proc shows them: our own name, and the process that committed, by the kernel's report. Nothing here throws. */
import { readFileSync, readlinkSync } from "node:fs";
import { writeFile } from "node:fs/promises";

/** PROC_PID_INIT_INO of linux/proc_ns.h. */
const INITIAL = "pid:[4026531836]";

/**
 * Describes the process that committed, as `ps` lists it: "nft (pid 4711, started by cron.service)", with its systemd unit or else its parent's
 * name. The kernel reports the thread that committed (nf_tables_fill_gen_info). The number is from the initial pid namespace. If /proc shows
 * another namespace, or the thread has ended, as `nft` often has, only the reported number and name are known: "nft (thread 4711, not in /proc)".
 *
 * Synchronous, because it reads a few lines, and the process may end at any moment.
 * @param name reported by the kernel: the thread's own, that of its process, or one that the thread only had while it committed. In another pid
 * namespace than the initial one, the number says nothing unless a name matches.
 */
export function describeProcess(thread: number, name: string, root = "/"): string {
  const read = (file: string): string => readFileSync(`${root}proc/${file}`, "latin1");
  try {
    const pid = Number(/^Tgid:\t(\d+)$/m.exec(read(`${thread}/status`))?.[1]);
    const [own, ofThread] = [read(`${pid}/comm`).trim(), read(`${thread}/comm`).trim()];
    const isSame = own === name || ofThread === name || readlinkSync(`${root}proc/self/ns/pid`) === INITIAL;
    if (!isSame) throw new Error("the number may belong to another process here");
    return `${ofThread === name ? own : name} (pid ${pid}${originOf(pid, read)})`;
  } catch {
    return `${name} (thread ${thread}, not in /proc)`;
  }
}

/** Returns "" if the process has ended meanwhile, or its parent is in another pid namespace. */
function originOf(pid: number, read: (file: string) => string): string {
  try {
    const unit = /\/([^/\n]+\.service)$/m.exec(read(`${pid}/cgroup`))?.[1];
    const parent = /^PPid:\t(\d+)$/m.exec(read(`${pid}/status`))?.[1] ?? "";
    return `, started by ${unit ?? read(`${parent}/comm`).trim()}`;
  } catch {
    return "";
  }
}

/**
 * Names this process for `ps`, `top` and nft (the "progname" of a table's owner). Node calls it "MainThread". At most 15
 * bytes (TASK_COMM_LEN). Never throws.
 */
export async function nameProcess(name: string): Promise<void> {
  try {
    await writeFile("/proc/self/comm", name);
  } catch {
    // Only people read the name. If /proc cannot be written, the old name stays.
  }
}
