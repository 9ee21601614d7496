/** What the kernel takes for this process and its relatives, so that it can be measured beside other work. */
import { readFileSync } from "node:fs";
import { kernelBytes } from "../bench/lib.ts";

function read(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}

/** Bytes charged to this process's memory control group; of the whole machine where there is none of its own. */
export function kernelMemory(): number {
  const groups = read("/proc/self/cgroup") ?? "";
  const [, first = ""] = /^\d+:memory:(\/.+)$/m.exec(groups) ?? [];
  const usage = first === "" ? undefined : read(`/sys/fs/cgroup/memory${first}/memory.kmem.usage_in_bytes`);
  if (usage !== undefined) return Number(usage);
  const [, second = ""] = /^0::(\/.+)$/m.exec(groups) ?? [];
  const kernel = second === "" ? null : /^kernel (\d+)$/m.exec(read(`/sys/fs/cgroup${second}/memory.stat`) ?? "");
  return kernel === null ? kernelBytes() : Number(kernel[1]);
}
