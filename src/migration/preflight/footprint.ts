/**
 * Estimates from measurements how much of this node's memory the cluster's services need, and how long the first load
 * takes. Pure.
 */
import { counted } from "../../base/counted.js";
import type { IpFamily } from "../../base/ip.js";
import { ok, type Said } from "./finding.js";

/** Map elements in a family's rules for the cluster's services. */
export interface ElementCount {
  readonly elements: number;
  /** How many of these count connections, with separate counters per CPU. */
  readonly counting: number;
}

interface ClusterSize {
  /** Services and ready endpoints, summed over families. A dual-stack service counts twice. */
  readonly services: number;
  readonly endpoints: number;
  readonly rules: ReadonlyMap<IpFamily, ElementCount>;
  /** Number of CPUs for which the kernel has counters. */
  readonly cpus: number;
}

interface Footprint {
  /** Memory of the idle program, bytes. */
  readonly resident: number;
  /** Memory of the kernel after the load, without clients of affinity and limits, bytes. */
  readonly kernel: number;
  /** Time from objects in memory until the kernel has all rules. */
  readonly loadMs: number;
}

/**
 * Bytes, fitted to test/bench/beside.ts and `npm run bench -- memory` with the program as in the image, for services × endpoints:
 *
 * - 1,000 × 10: 88 MB
 * - 10,000 × 10: 117 MB
 * - 5,000 × 50: 122 MB
 * - 20,000 × 1: 140 MB
 *
 * The formula gives 256 MB for 50,000 × 10, where 249 to 256 were measured. For 100 × 10, it gives 18 MB too much, because V8
 * compiles less there.
 */
const RESIDENT = { program: 84e6, service: 2550, endpoint: 88 } as const;
/**
 * Bytes, from SUnreclaim and VmallocUsed in /proc/meminfo before and after a load, Linux 6.18. IPv4: 166 per element with
 * 120,016 elements, and 152 with 260,016. IPv6: 196. test/native/footprint.test.ts measures this again. The
 * sets, chains and rules themselves need 0.3 MB.
 */
const KERNEL = { rules: 0.3e6, ip: 165, ip6: 195, counter: 16 } as const;
/** ms, by least squares from measurements: 617 for 10,000 × 10, 1,821 for 50,000 × 10, 724 for 5,000 × 50. */
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

export function checkFootprint(size: ClusterSize): Said[] {
  const { resident, kernel, loadMs } = footprintOf(size);
  const elements = [...size.rules.values()].reduce((sum, count) => sum + count.elements, 0);
  const takes = `about ${megabytes(resident)} MB of the process's memory and ${megabytes(kernel)} MB in the kernel (${counted(elements, "map element")})`;
  const what = `these services need ${takes}; the first load takes about ${(loadMs / 1000).toFixed(1)} s on the machine of docs/performance.md`;
  return [ok(what)];
}

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);
}
