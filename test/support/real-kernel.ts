/** The real kernel for the suite, in its own network namespace and never in the machine's. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readlinkSync } from "node:fs";
import { release } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import type { OpenKernelWorld } from "./kernel-world.ts";
import { factsOf } from "./kernel-facts.ts";

/** A process that only holds its own network namespace. It ends with this process, whose pipe it reads. */
export interface Namespace {
  readonly path: string;
  remove(): Promise<void>;
}

/** Creates a network namespace. If that is not permitted, throws with `unshare`'s message. */
export async function makeNamespace(): Promise<Namespace> {
  const holder = spawn("unshare", ["--net", "sh", "-c", "echo ready; exec cat"], {
    stdio: ["pipe", "pipe", "pipe"],
  });
  let said = "";
  holder.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
  const ready = once(holder.stdout, "data");
  const gone = once(holder, "exit").then(() => {
    throw new Error(
      `no network namespace for the real kernel: ${said.trim()}. Run through \`npm run test:conformance\`.`,
    );
  });
  gone.catch(() => undefined);
  await Promise.race([ready, gone]);
  const path = `/proc/${holder.pid}/ns/net`;
  for (const machine of ["/proc/self/ns/net", "/proc/1/ns/net"]) {
    if (sameNamespace(path, machine)) throw new Error(`refusing to touch ${path}: it is the namespace of ${machine}`);
  }
  return { path, remove: () => stop(holder) };
}

function sameNamespace(a: string, b: string): boolean {
  try {
    return readlinkSync(a) === readlinkSync(b);
  } catch (error) {
    // Without rights over process 1 its link cannot be read; we could not have entered that namespace either.
    if (b === "/proc/1/ns/net") return false;
    throw error;
  }
}

async function stop(holder: ChildProcess): Promise<void> {
  const exit = once(holder, "exit");
  holder.kill("SIGKILL");
  await exit;
}

/** Empties `namespace()`, then opens sockets in it. */
export function openReal(namespace: () => Namespace): OpenKernelWorld {
  return async () => {
    const netns = namespace().path;
    const kernel = await NftKernel.open({ netns });
    const left = await kernel.tables();
    await kernel.commit(left.map(({ family, table }) => ({ op: "delete", kind: "table", family, table })));
    const others: NftKernel[] = [];
    const added = new Set<string>();
    const changeAddress = async (action: "add" | "delete", cidr: string): Promise<void> => {
      await promisify(execFile)("nsenter", [`--net=${netns}`, "ip", "address", action, cidr, "dev", "lo"]);
      if (action === "add") added.add(cidr);
      else added.delete(cidr);
    };
    return {
      kernel,
      facts: factsOf(release()),
      other: async () => {
        const other = await NftKernel.open({ netns });
        others.push(other);
        return other;
      },
      changeAddress,
      wait: (ms) => sleep(ms),
      close: async () => {
        for (const cidr of added) await changeAddress("delete", cidr);
        for (const open of [...others, kernel]) await open.close();
      },
    };
  };
}
