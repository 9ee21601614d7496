/** Shared parts of the addon's tests: a kernel in its own namespace, short helpers for operations, child processes. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll } from "vitest";
import { DataTypeId } from "../../src/nft/kernel/constants.js";
import { KernelError } from "../../src/nft/kernel/errors.js";
import type { ConnectionOptions } from "../../src/nft/kernel/netlink-connection.js";
import { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import type { ElementBatch, Expr, Op, SetInfo, TableRef } from "../../src/nft/kernel/kernel.js";
import { makeNamespace, type Namespace } from "../support/real-kernel.ts";

export interface Lab {
  readonly kernel: NftKernel;
  /** Path of the namespace. */
  readonly netns: string;
  /** Another connection to the same namespace, closed with the lab. */
  open(options?: ConnectionOptions): Promise<NftKernel>;
}

/** Creates and opens a namespace before the tests of a file, and removes it afterwards. */
export function useLab(): () => Lab {
  let namespace: Namespace | undefined;
  let lab: Lab | undefined;
  const kernels: NftKernel[] = [];
  beforeAll(async () => {
    namespace = await makeNamespace();
    const netns = namespace.path;
    const open = async (options?: ConnectionOptions): Promise<NftKernel> => {
      const kernel = await NftKernel.open({ netns, ...options });
      kernels.push(kernel);
      return kernel;
    };
    lab = { kernel: await open(), netns, open };
  });
  afterAll(async () => {
    await Promise.all(kernels.map((kernel) => kernel.close()));
    await namespace?.remove();
  });
  return () => {
    if (lab === undefined) throw new Error("the lab is set up by beforeAll");
    return lab;
  };
}

export const ip = (table: string): TableRef => ({ family: "ip", table });
export const addTable = (ref: TableRef): Op => ({ op: "add", kind: "table", ...ref });
export const dropTable = (ref: TableRef): Op => ({ op: "delete", kind: "table", ...ref });
export const addChain = (ref: TableRef, chain: string): Op => ({ op: "add", kind: "chain", ...ref, chain });
export const addRule = (ref: TableRef, chain: string, exprs: readonly Expr[]): Op => ({
  op: "add",
  kind: "rule",
  ...ref,
  chain,
  exprs,
});

/** A set of IPv4 addresses. */
export const addresses = (set: string, more: Partial<SetInfo> = {}): SetInfo => ({
  set,
  flags: 0,
  keyType: DataTypeId.ipv4_addr,
  keyLen: 4,
  ...more,
});
export const addSet = (ref: TableRef, info: SetInfo): Op => ({ op: "add", kind: "set", ...ref, ...info });

/**
 * `count` addresses from 10.0.0.0 on. Without CAP_NET_ADMIN in the first user namespace, a batch of more than some
 * 15,000 exceeds the usual maximum send buffer.
 */
export function manyAddresses(count: number, from = 0x0a000000): ElementBatch {
  const bytes = new Uint8Array(count * 4);
  const view = new DataView(bytes.buffer);
  for (let i = 0; i < count; i++) view.setUint32(i * 4, from + i);
  return { count, keyLen: 4, dataLen: 0, bytes };
}
export const elements = (op: "add" | "create" | "delete", ref: TableRef, set: string, batch: ElementBatch): Op => ({
  op,
  kind: "elements",
  ...ref,
  set,
  elements: batch,
});

/** Returns the KernelError of a promise that must be rejected with one. */
export async function kernelError(promise: Promise<unknown>): Promise<KernelError> {
  const error: unknown = await promise.then(
    () => new Error("the call was not rejected"),
    (reason: unknown) => reason,
  );
  if (error instanceof KernelError) return error;
  throw error;
}

/** Runs a shell script in a namespace; rejects if it fails. */
export async function inside(netns: string, script: string): Promise<void> {
  const [code] = (await once(spawn("nsenter", [`--net=${netns}`, "bash", "-c", script]), "exit")) as [number];
  if (code !== 0) throw new Error(`ended with ${code}: ${script}`);
}

/** Runs a script of test/native/child, with `wrapper` before node, and parses the JSON of its last line. */
export async function child(
  script: string,
  args: readonly string[] = [],
  wrapper: readonly string[] = [],
): Promise<unknown> {
  const path = fileURLToPath(new URL(`child/${script}`, import.meta.url));
  const [command, ...rest] = [...wrapper, process.execPath, "--expose-gc", path, ...args];
  const running = spawn(command, rest, { stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  let err = "";
  running.stdout.setEncoding("utf8").on("data", (text: string) => (out += text));
  running.stderr.setEncoding("utf8").on("data", (text: string) => (err += text));
  const ended = await new Promise<string | undefined>((resolve, reject) => {
    running.on("error", reject);
    running.on("close", (code, signal) => resolve(code === 0 ? undefined : `ended with ${code ?? signal}`));
  });
  if (ended !== undefined) throw new Error(`${script} ${ended}: ${err}${out}`);
  return JSON.parse(out.trim().split("\n").at(-1) ?? "");
}
