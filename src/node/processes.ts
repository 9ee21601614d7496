/**
 * Processes as /proc shows them: our own name, and the process that committed, by the kernel's report. Nothing here throws.
 */
import { readFile, writeFile } from "node:fs/promises";

/** linux/netlink.h */
const NETLINK_NETFILTER = "12";

/**
 * Whether a netlink socket with this port is open in our network namespace. Returns undefined if unknown. The fields of a
 * line of /proc/self/net/netlink (net/netlink/af_netlink.c, netlink_native_seq_show) are pointer, protocol, port, ...
 */
export async function netfilterPortOpen(port: number, root = "/"): Promise<boolean | undefined> {
  try {
    const lines = (await readFile(`${root}proc/self/net/netlink`, "latin1")).split("\n");
    return lines.some((line) => {
      const [, protocol, portId] = line.split(/\s+/);
      return protocol === NETLINK_NETFILTER && portId === String(port);
    });
  } catch {
    return undefined;
  }
}

/**
 * The process of a thread. The kernel reports the thread that committed (nf_tables_fill_gen_info), which `ps` does not
 * list. The number is from the initial pid namespace. If /proc shows another namespace, or the thread has ended, the number
 * is returned unchanged.
 *
 * @param name reported by the kernel: the thread's own, or that of its process. If neither matches, the number is not from
 * this /proc.
 */
export async function processOfThread(thread: number, name: string, root = "/"): Promise<number> {
  const read = (file: string): Promise<string> => readFile(`${root}proc/${file}`, "latin1");
  try {
    const pid = Number(/^Tgid:\t(\d+)$/m.exec(await read(`${thread}/status`))?.[1] ?? thread);
    const names = await Promise.all([read(`${thread}/comm`), read(`${pid}/comm`)]);
    return names.includes(`${name}\n`) ? pid : thread;
  } catch {
    return thread;
  }
}

/**
 * What started a process: its systemd unit, or else its parent's name. Undefined if it has ended, as `nft` often has. The number is from the
 * initial pid namespace, so it is only used if /proc shows a process of this name.
 */
export async function originOf(pid: number, name: string, root = "/"): Promise<string | undefined> {
  const read = (file: string): Promise<string> => readFile(`${root}proc/${file}`, "latin1");
  try {
    const [comm, cgroup, status] = await Promise.all(
      ["comm", "cgroup", "status"].map((file) => read(`${pid}/${file}`)),
    );
    if (comm !== `${name}\n`) return undefined;
    const unit = /\/([^/\n]+\.service)$/m.exec(cgroup)?.[1];
    return unit ?? (await read(`${/^PPid:\t(\d+)$/m.exec(status)?.[1] ?? ""}/comm`)).trim();
  } catch {
    return undefined;
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
