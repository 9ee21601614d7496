/** Measures the kernel memory that some commands cause and that remains after they end, separately from other work. */
import { mkdirSync, readFileSync, rmdirSync } from "node:fs";
import { kernelBytes } from "../bench/lib.ts";

export interface MemoryAccount {
  /** Prefix for a command so that its memory is charged here. */
  readonly prefix: readonly string[];
  /** Bytes of kernel memory that are charged now. */
  bytes(): number;
  close(): void;
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}

/** Directories of this process's memory control groups, and how to read them (cgroups(7): v1's, v2's). */
function ownGroups(): readonly { readonly directory: string; readonly bytes: (directory: string) => number }[] {
  const groups = read("/proc/self/cgroup") ?? "";
  const [, first] = /^\d+:memory:(\/.*)$/m.exec(groups) ?? [];
  const [, second] = /^0::(\/.*)$/m.exec(groups) ?? [];
  const number = (text: string | undefined): number => (text === undefined ? NaN : Number(text));
  return [
    ...(first === undefined
      ? []
      : [
          {
            directory: `/sys/fs/cgroup/memory${first}`,
            bytes: (directory: string) => number(read(`${directory}/memory.kmem.usage_in_bytes`)),
          },
        ]),
    ...(second === undefined
      ? []
      : [
          {
            directory: `/sys/fs/cgroup${second}`,
            bytes: (directory: string) => number(/^kernel (\d+)$/m.exec(read(`${directory}/memory.stat`) ?? "")?.[1]),
          },
        ]),
  ];
}

/**
 * A memory control group below this process's own. It excludes the tests' own processes, whose page tables vary by megabytes. If none can
 * be made, uses the group of this process, or else the whole machine.
 */
export function memoryAccount(): MemoryAccount {
  for (const { directory, bytes } of ownGroups()) {
    const own = `${directory}/nft-proxier-test-${process.pid}`;
    try {
      mkdirSync(own);
    } catch {
      continue;
    }
    if (!Number.isNaN(bytes(own))) {
      const prefix = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', own];
      return { prefix, bytes: () => bytes(own), close: () => rmdirSync(own) };
    }
    rmdirSync(own);
  }
  const shared = ownGroups().find(({ directory, bytes }) => !Number.isNaN(bytes(directory)));
  return {
    prefix: [],
    bytes: () => (shared === undefined ? kernelBytes() : shared.bytes(shared.directory)),
    close: () => undefined,
  };
}
