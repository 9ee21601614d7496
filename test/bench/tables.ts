/** Prints results as tables. */
import type { Aim } from "./aim.ts";
import { changeRows, conntrackRow, recoveryRows } from "./conntrack.ts";
import { exponentOf, fixed } from "./lib.ts";
import { type Blocked, longest } from "./loop-watch.ts";
import type { Changes, Measured } from "./measure.ts";
import type { ManyPorts } from "./many-ports.ts";
import type { Packets } from "./packets.ts";
import type { Memory } from "./memory.ts";
import type { Exponents, Results, Watched } from "./sections.ts";

type Row = Readonly<Record<string, string | number>>;

const mb = (bytes: number): string => fixed(bytes / 2 ** 20, 0);
const held = ({ heldMs, ownMs }: Blocked): string => `${fixed(heldMs, 0)} (${fixed(ownMs, 0)})`;
/** Prefix of the other build's rows. */
const BEFORE = "before: ";
const HELD = "loop held ms (own work)";

function changes({ ownP50Ms, ownP99Ms, kernelP50Ms }: Changes): string {
  return `${fixed(ownP50Ms)} / ${fixed(ownP99Ms)} + ${fixed(kernelP50Ms, 3)}`;
}

function serviceRow(
  { services, endpoints, load, restart, replace, scale, newCount, blocked }: Measured,
  build = "",
): Row {
  return {
    size: `${build}${services} x ${endpoints}`,
    "load ms": fixed(load.totalMs, 0),
    "kernel ms": fixed(load.kernelMs, 0),
    "main thread ms": fixed(load.cpuMs, 0),
    "restart ms": fixed(restart.totalMs, 0),
    "restart, main thread": fixed(restart.cpuMs, 0),
    "replace own p50/p99 + kernel": changes(replace),
    "scale own p50/p99 + kernel": changes(scale),
    "to a new number": newCount === undefined ? "" : changes(newCount),
    [`${HELD}: load, restart, changes`]: [load, restart, { blocked }].map((part) => held(part.blocked)).join(", "),
  };
}

function memoryRow({ services, endpoints, rss, peak, startedMs, blocked }: Watched<Memory>, build = ""): Row {
  return {
    "program with manifests": `${build}${services} x ${endpoints}`,
    "resident MB": mb(rss),
    "peak MB": mb(peak),
    "start to written ms": fixed(startedMs, 0),
    [HELD]: held(blocked),
  };
}

function packetRows({ first, connections }: Packets): Row[] {
  return Object.entries(first).map(([path, { first: of, second, answered }]) => ({
    "services, path": path,
    "first packet, p10 ns": of.p10,
    "p50 ns": of.p50,
    "p90 ns": of.p90,
    "p99 ns": of.p99,
    "second, p50 ns": second.p50,
    "after an answer, p50 ns": answered.p50,
    lost: of.lost + second.lost + answered.lost,
    "TCP connections/s": connections[path as keyof typeof connections]?.toFixed() ?? "",
  }));
}

function portRows({ ports, load, replace }: ManyPorts): Row[] {
  return Object.entries({ load, "an endpoint replaced": replace }).map(([what, write]) => ({
    [`one service of ${ports} ports`]: what,
    transactions: write.writes,
    "total ms": fixed(write.ms, 0),
    "kernel ms": fixed(write.kernelMs, 0),
    "active after ms": fixed(write.latencyMs, 0),
    "loop held ms": fixed(write.heldMs, 0),
  }));
}

function exponentRow({ dimension, sizes, steps }: Exponents): Row {
  const list = (values: readonly number[], digits = 0): string => values.map((value) => fixed(value, digits)).join(" ");
  const main = steps.map(({ mainMs }) => mainMs);
  const kernel = steps.map(({ kernelMs }) => kernelMs);
  const operations = steps.map((step) => step.operations);
  return {
    growth: `${dimension}, ${list(sizes)}: ${steps[0].step}`,
    "main thread ms": list(main),
    "kernel ms": list(kernel, 1),
    "exponent: main, kernel, operations": list(
      [main, kernel, operations].map((costs) => exponentOf(sizes, costs)),
      2,
    ),
    "longest transaction ms": fixed(Math.max(...steps.map(({ longestTransactionMs }) => longestTransactionMs)), 1),
    "most operations": Math.max(...steps.map(({ mostOperations }) => mostOperations)),
    [HELD]: held(longest(steps.map(({ blocked }) => blocked))),
  };
}

/** Prints a table for each section. */
function tables({
  services,
  servicesBefore = [],
  kernel,
  pages,
  rolling,
  repair,
  check,
  affinity,
  memory,
  memoryBefore = [],
  growth,
  exponents,
  packets,
  cluster,
  conntrack,
  ports,
  handover,
}: Results): Row[][] {
  const list: Row[][] = [];
  if (services !== undefined) {
    list.push([...services.map((one) => serviceRow(one)), ...servicesBefore.map((one) => serviceRow(one, BEFORE))]);
  }
  if (kernel !== undefined) {
    list.push([
      {
        "load, with a listener in another process": `${kernel.services} x ${kernel.endpoints}`,
        "kernel memory, peak MB": mb(kernel.peak),
        "remaining MB": mb(kernel.rest),
        "longest transaction ms": fixed(kernel.longestCommitMs),
        transactions: kernel.transactions,
      },
    ]);
  }
  if (affinity !== undefined) {
    list.push(
      affinity.map((one) => ({
        "ClientIP affinity": `${one.services} x ${one.endpoints}`,
        "load ms": fixed(one.load.totalMs, 0),
        "load kernel ms": fixed(one.load.kernelMs, 0),
        "replace kernel ms": fixed(one.changeKernelMs, 1),
        "replace ms": fixed(one.changeMs, 0),
        "restart ms": fixed(one.restart.totalMs, 0),
      })),
    );
  }
  if (pages !== undefined) {
    list.push(
      pages.map((one) => ({
        "status pages": one.pages,
        "CPU without %": fixed(one.without),
        "CPU with %": fixed(one.with),
        "first services ms": fixed(one.firstMs, 0),
        "all services ms": fixed(one.allMs, 0),
        "load MB": mb(one.loadBytes),
        "kB a minute": fixed(one.bytesPerMinute / 1000, 0),
      })),
    );
  }
  if (rolling !== undefined) {
    list.push([
      {
        "rolling update": `${fixed(rolling.lastedMs, 0)} ms`,
        "first change ms": fixed(rolling.firstMs),
        "after the last ms": fixed(rolling.afterLastMs),
        transactions: rolling.transactions,
        [HELD]: held(rolling.blocked),
      },
    ]);
  }
  if (repair !== undefined) {
    list.push(
      repair.map((one) => ({
        "a deleted table": `${one.operations} operations`,
        "restored after ms": fixed(one.totalMs),
        "kernel ms": fixed(one.kernelMs),
        "own ms, slowest": `${fixed(one.ownMs)}, ${fixed(one.slowestOwnMs)}`,
        [HELD]: held(one.blocked),
      })),
    );
  }
  if (check !== undefined) {
    list.push(
      check.map((one) => ({
        "a check": `of ${one.elements} elements`,
        "CPU ms": fixed(one.cpuMs, 0),
        "elapsed ms": fixed(one.wallMs, 0),
        "main thread ms": fixed(one.mainMs, 0),
        "all checks": `${one.checks} checks, ${fixed(one.allCpuMs, 0)} ms`,
        "a bare dump, CPU ms": fixed(one.dumpCpuMs, 0),
        "longest set dump ms": fixed(one.longestDumpMs, 0),
        [HELD]: held(one.blocked),
      })),
    );
  }
  if (memory !== undefined) {
    list.push([...memory.map((one) => memoryRow(one)), ...memoryBefore.map((one) => memoryRow(one, BEFORE))]);
  }
  if (growth !== undefined) {
    const samples = [growth.before, ...growth.between, growth.after];
    list.push(
      samples.map(({ heap, native, rss }, i) => ({
        "after changes": (growth.changes * i) / (samples.length - 1),
        "heap MB": fixed(heap / 2 ** 20),
        "native MB": fixed(native / 2 ** 20),
        "resident MB": mb(rss),
      })),
    );
  }
  if (exponents !== undefined) list.push(exponents.map(exponentRow));
  if (packets !== undefined) list.push(packetRows(packets));
  if (cluster !== undefined) {
    list.push([
      {
        "program at an API server": `${cluster.services} x ${cluster.endpoints}`,
        "start to synced ms": fixed(cluster.startMs, 0),
        "resident MB, at rest and after changes": `${mb(cluster.rest)}, ${mb(cluster.after)}`,
        "event to active p50/p99/max ms": [cluster.latencyP50Ms, cluster.latencyP99Ms, cluster.latencyMaxMs]
          .map((ms) => fixed(ms))
          .join(" / "),
        [HELD]: held(cluster.blocked),
      },
    ]);
  }
  if (conntrack !== undefined) list.push([conntrackRow(conntrack)], changeRows(conntrack), recoveryRows(conntrack));
  if (ports !== undefined) list.push(portRows(ports));
  if (handover !== undefined) {
    list.push(
      handover.map(({ services, endpoints, listening, alone, removalMs, rss }) => ({
        handover: `${services} x ${endpoints}`,
        "with a listener, ms (CPU)": `${fixed(listening.wallMs, 0)} (${fixed(listening.cpuMs, 0)})`,
        "without one, ms (CPU)": `${fixed(alone.wallMs, 0)} (${fixed(alone.cpuMs, 0)})`,
        "removal ms": fixed(removalMs),
        "resident MB": mb(rss),
      })),
    );
  }
  return list;
}

export function printTables(results: Results): void {
  for (const table of tables(results)) console.table(table);
}

export function printAims(list: readonly Aim[]): void {
  console.table(
    list.map(({ what, aim, measured, unit, met, note = "" }) => ({
      figure: what,
      "target, at most": `${Number(aim.toFixed(2))} ${unit}`,
      measured: `${fixed(measured)} ${unit}`,
      met: met ? "yes" : "NO",
      note,
    })),
  );
  const missed = list.filter(({ met }) => !met).length;
  console.log(missed === 0 ? "every target is met" : `${missed} of ${list.length} targets are missed`);
}
