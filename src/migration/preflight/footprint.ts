/** What the cluster's services take of this node's memory, and how long the first load is: an estimate from what was measured. Pure. */
import { counted } from "../../base/counted.js";
import type { IpFamily } from "../../base/ip.js";
import { type Finding, of, ok } from "./finding.js";

/** Map elements of a family's rules with the cluster's services. */
export interface ElementCount {
  readonly elements: number;
  /** Of these, those that count connections, each CPU for itself. */
  readonly counting: number;
}

export interface ClusterSize {
  /** Services and ready endpoints; of a family each, of dual stack both. */
  readonly services: number;
  readonly endpoints: number;
  readonly rules: ReadonlyMap<IpFamily, ElementCount>;
  /** CPUs that the kernel keeps counts for. */
  readonly cpus: number;
}

export interface Footprint {
  /** Of the program at rest, bytes. */
  readonly resident: number;
  /** Of the kernel once all is loaded, without clients of affinity and limits, bytes. */
  readonly kernel: number;
  /** From objects in memory until the kernel has all of it. */
  readonly loadMs: number;
}

/**
 * Bytes, of `npm run bench -- memory`, the program as the image has it: 88 MB with 100 services of one endpoint, 92 at 1,000 × 10,
 * 122 at 10,000 × 10 and at 5,000 × 50, 140 at 20,000 × 1. By these, 50,000 × 10 take 259 MB, and 249 to 256 were measured. The modules of dist/ take 11 MB more.
 */
const RESIDENT = { program: 87.5e6, service: 2550, endpoint: 88 } as const;
/**
 * Bytes, by SUnreclaim and VmallocUsed of /proc/meminfo before and after a load, Linux 6.18: 166 of each of 120,016 elements and 152 of each of 260,016 with
 * IPv4, 196 with IPv6 (test/native/footprint.test.ts measures it again). The sets, chains and rules themselves are the first 0.3 MB.
 */
const KERNEL = { rules: 0.3e6, ip: 165, ip6: 195, counter: 16 } as const;
/** ms, as measured: 617 for 10,000 × 10, 1,821 for 50,000 × 10, 724 for 5,000 × 50, by the least squares of these. */
const LOAD = { program: 316, service: 0.0146, element: 0.00129 } as const;

export function footprintOf({ services, endpoints, rules, cpus }: ClusterSize): Footprint {
  let kernel = 0;
  let elements = 0;
  for (const [family, count] of rules) {
    kernel += KERNEL.rules + count.elements * KERNEL[family] + count.counting * KERNEL.counter * cpus;
    elements += count.elements;
  }
  return {
    resident: RESIDENT.program + services * RESIDENT.service + endpoints * RESIDENT.endpoint,
    kernel,
    loadMs: LOAD.program + services * LOAD.service + elements * LOAD.element,
  };
}

export function checkFootprint(size: ClusterSize): Finding[] {
  const { resident, kernel, loadMs } = footprintOf(size);
  const elements = [...size.rules.values()].reduce((sum, count) => sum + count.elements, 0);
  const takes = `about ${megabytes(resident)} MB resident, and ${megabytes(kernel)} MB in the kernel for ${counted(elements, "map element")}`;
  const what = `these services take ${takes}; their first load about ${(loadMs / 1000).toFixed(1)} s of a processor as in docs/performance.md`;
  return of("objects", "footprint", ok(what));
}

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);
}
