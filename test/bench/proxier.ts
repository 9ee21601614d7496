/** A proxier without the program around it, fed as a source feeds it. */
import { TimeSlice } from "../../dist/base/time-slice.js";
import { defaultConfig } from "../../dist/config/load.js";
import { NftKernel } from "../../dist/netlink/nft-kernel.js";
import { createLogger } from "../../dist/base/logger.js";
import { Proxier, type ProxierOptions } from "../../dist/proxier/proxier.js";
import { makeService, makeSlice, podsOf, type Protocol } from "./cluster.ts";
import { ownMs } from "./loop-watch.ts";
import { decoded } from "./decoded.ts";

export type ClusterObjects = readonly (readonly [ReturnType<typeof makeService>, ReturnType<typeof makeSlice>])[];

const log = await createLogger("error");

/** Of this namespace, or of a named one. */
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
    localAddresses: () => Promise.resolve([]),
    watch: true,
    // As the program does.
    serviceCounters: "service",
    ...options,
  });
}

export function makeObjects(services: number, endpoints: number, protocol: Protocol = "TCP"): ClusterObjects {
  return Array.from({ length: services }, (_, i) => {
    return [makeService(i, protocol), makeSlice(i, podsOf(i, endpoints), protocol)] as const;
  });
}

/** Does something with each, as a source does with what it reads: the event loop has its turns. */
export async function inTurns<T>(all: Iterable<T>, work: (one: T) => void): Promise<void> {
  const timeSlice = new TimeSlice();
  for (const one of all) {
    work(one);
    if (timeSlice.spent) await timeSlice.yield();
  }
}

/** The first full list, as the program begins with it. */
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
  /** Of these, work of the main thread, garbage collection on it included. */
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
