/** Processes as /proc has them: our own name, and another one that the kernel named as the one which committed. Nothing here throws. */
import { readFile, writeFile } from "node:fs/promises";

/** linux/netlink.h */
const NETLINK_NETFILTER = "12";

/**
 * Whether a netlink socket with this port is open in our network namespace; undefined: cannot be told. Of /proc/self/net/netlink
 * (net/netlink/af_netlink.c, netlink_native_seq_show): pointer, protocol, port, ...
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
 * The process of a thread: with a commit the kernel tells the thread (nf_tables_fill_gen_info), which `ps` does not list. The number is the
 * initial pid namespace's; where /proc shows another one, or the thread has ended, it is returned as it is.
 *
 * @param name that the kernel told: a thread's own, or that of its process. Where neither is, the number is not one of this /proc.
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
 * Names this process as `ps`, `top` and nft show it ("progname", of the owner of a table): Node calls it "MainThread". At most 15
 * bytes (TASK_COMM_LEN). Never throws.
 */
export async function nameProcess(name: string): Promise<void> {
  try {
    await writeFile("/proc/self/comm", name);
  } catch {
    // For people alone; where /proc may not be written, there is another name.
  }
}
