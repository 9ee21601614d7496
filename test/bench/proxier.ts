/** A proxier without the rest of the program, fed like from a source. */
import { TimeSlice } from "../../dist/base/time-slice.js";
import { defaultConfig } from "../../dist/config/load.js";
import { NftKernel } from "../../dist/nft/kernel/nft-kernel.js";
import { createLogger } from "../../dist/base/logger.js";
import { Proxier, type ProxierOptions } from "../../dist/proxier/proxier.js";
import { makeService, makeSlice, podsOf, type Protocol } from "./cluster.ts";
import { ownMs } from "./loop-watch.ts";
import { decoded } from "./decoded.ts";

export type ClusterObjects = readonly (readonly [ReturnType<typeof makeService>, ReturnType<typeof makeSlice>])[];

const log = await createLogger("error");

const NO_INTERFACES: ProxierOptions["interfaces"] = {
  addresses: () => Promise.resolve([]),
  watchAddresses: () => Promise.resolve({ close: () => Promise.resolve() }),
};

/** Opens the kernel of this namespace, or of a named one. */
export function openKernel(netns?: string): Promise<NftKernel> {
  return NftKernel.open(netns === undefined ? {} : { netns: `/run/netns/${netns}` });
}

export function newProxier(kernel: NftKernel, options: Partial<ProxierOptions> = {}): Proxier {
  return new Proxier({
    config: { ...defaultConfig(), bindAddress: "192.0.2.1" },
    nodeName: "bench-node",
    families: ["ip"],
    kernel,
    log,
    clock: { now: () => performance.now() },
    interfaces: NO_INTERFACES,
    watch: true,
    // The program's default.
    serviceCounters: "service",
    ...options,
  });
}

export function makeObjects(services: number, endpoints: number, protocol: Protocol = "TCP"): ClusterObjects {
  return Array.from({ length: services }, (_, i) => {
    return [makeService(i, protocol), makeSlice(i, podsOf(i, endpoints), protocol)] as const;
  });
}

/** Processes each item like a source does, with turns of the event loop in between. */
export async function inTurns<T>(all: Iterable<T>, work: (one: T) => void): Promise<void> {
  const timeSlice = new TimeSlice();
  for (const one of all) {
    work(one);
    if (timeSlice.spent) await timeSlice.yield();
  }
}

/** Feeds the first full list, as at the program's start. */
export async function feed(proxier: Proxier, objects: ClusterObjects): Promise<void> {
  proxier.readAhead();
  await inTurns(objects, ([service, slice]) => {
    proxier.upsert(decoded({ kind: "Service", object: service }));
    proxier.upsert(decoded({ kind: "EndpointSlice", object: slice }));
  });
  proxier.synced();
}

/** One write. */
export interface Sample {
  /** From the change to the kernel's answer. */
  readonly totalMs: number;
  /** The main thread's part of it, including its garbage collection. */
  readonly cpuMs: number;
  /** Inside sendmsg. */
  readonly kernelMs: number;
  readonly transactions: number;
  readonly operations: number;
  readonly bytes: number;
}

/** Times a change and its write; rejects when the write fails. */
export async function timed(proxier: Proxier, change: () => void | Promise<void>): Promise<Sample> {
  const startCpu = ownMs();
  const start = performance.now();
  await change();
  const { ok, families } = await proxier.sync();
  const totalMs = performance.now() - start;
  const cpuMs = ownMs() - startCpu;
  const outcome = families[0]?.outcome;
  if (!ok || outcome === undefined || !outcome.ok) throw new Error("a write failed");
  const { kernelNs, transactions, total, bytes } = outcome.result;
  return { totalMs, cpuMs, kernelMs: kernelNs / 1e6, transactions, operations: total, bytes };
}
