import { writeFile } from "node:fs/promises";

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
