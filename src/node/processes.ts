/** Processes as /proc shows them: our own name, and the process that committed, by the kernel's report. Nothing here throws. */
import { readFile, writeFile } from "node:fs/promises";

/**
 * Describes the process that committed: "nft (pid 4711, started by cron.service)", with its systemd unit or else its parent's name. The kernel
 * reports the thread that committed (nf_tables_fill_gen_info), which `ps` does not list. The number is from the initial pid namespace. If /proc shows
 * another namespace, or the process has ended, as `nft` often has, only the reported number and name are known.
 *
 * @param name reported by the kernel: the thread's own, or that of its process. If neither matches, the number is not from this /proc.
 */
export async function describeProcess(thread: number, name: string, root = "/"): Promise<string> {
  const read = (file: string): Promise<string> => readFile(`${root}proc/${file}`, "latin1");
  const unknown = `${name} (pid ${thread})`;
  try {
    const pid = Number(/^Tgid:\t(\d+)$/m.exec(await read(`${thread}/status`))?.[1] ?? thread);
    const names = await Promise.all([read(`${thread}/comm`), read(`${pid}/comm`)]);
    if (!names.includes(`${name}\n`)) return unknown;
    const origin = await originOf(pid, read).catch(() => undefined);
    return `${name} (pid ${pid}${origin === undefined ? "" : `, started by ${origin}`})`;
  } catch {
    return unknown;
  }
}

async function originOf(pid: number, read: (file: string) => Promise<string>): Promise<string> {
  const [cgroup, status] = await Promise.all([read(`${pid}/cgroup`), read(`${pid}/status`)]);
  const unit = /\/([^/\n]+\.service)$/m.exec(cgroup)?.[1];
  return unit ?? (await read(`${/^PPid:\t(\d+)$/m.exec(status)?.[1] ?? ""}/comm`)).trim();
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
