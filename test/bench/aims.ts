/** The aims, and whether a run reached them. */
import { type Aim, atMost } from "./aim.ts";
import type { Cluster } from "./api.ts";
import type { Commands } from "./commands.ts";
import { conntrackAims } from "./conntrack.ts";
import type { Growth, Used } from "./growth.ts";
import { exponentOf, median } from "./lib.ts";
import { type Blocked, longest } from "./loop-watch.ts";
import type { ManyPorts } from "./many-ports.ts";
import type { Measured } from "./measure.ts";
import type { Packets, PathName } from "./packets.ts";
import type { Moments } from "./road.ts";
import type { Exponents, Results, Watched } from "./sections.ts";

function loop(what: string, { heldMs, wallMs, ownMs }: Blocked): Aim {
  return atMost(
    `event loop held: ${what}`,
    20,
    heldMs,
    "ms",
    `own work ${ownMs.toFixed(1)}, elapsed ${wallMs.toFixed(1)}`,
  );
}

const MB = 2 ** 20;

/** Answers of a screen or two; the list of all services' endpoints is a file of 100,000 lines. */
function ofCommands({ startMs, commands }: Commands): Aim[] {
  const ofCommand = commands
    .filter(({ command }) => command !== "services -o wide")
    .flatMap(({ command, cpuMs, blocked }) => [
      atMost(`${command}, CPU`, 300, cpuMs, "ms", `${startMs.toFixed(0)} of it for the start`),
      loop(`the daemon, during ${command}`, blocked),
    ]);
  return [atMost("--version, CPU", 100, startMs, "ms"), ...ofCommand];
}

function ofServices(sizes: readonly Measured[]): Aim[] {
  const at = (services: number): Measured => {
    const found = sizes.find((one) => one.services === services);
    if (found === undefined) throw new Error(`${services} services were not measured`);
    return found;
  };
  const name = ({ services, endpoints }: Measured): string => `${services} x ${endpoints}`;
  const ratio = at(50_000).replace.ownP50Ms / at(1_000).replace.ownP50Ms;
  return [
    ...sizes.map((size) => {
      const { totalMs, kernelMs, cpuMs } = size.load;
      const note = `${totalMs.toFixed(0)} of ${kernelMs.toFixed(0)} ms; main thread ${cpuMs.toFixed(0)}`;
      return atMost(`full load ${name(size)} / the kernel's time`, 1.5, totalMs / kernelMs, "x", note);
    }),
    atMost("full load 10000 x 10", 350, at(10_000).load.totalMs, "ms"),
    atMost("full load 50000 x 10", 1_300, at(50_000).load.totalMs, "ms"),
    atMost("restart 10000 x 10, nothing changed", 400, at(10_000).restart.totalMs, "ms"),
    atMost("restart 50000 x 10, nothing changed", 1_800, at(50_000).restart.totalMs, "ms"),
    atMost("transactions of a restart, all sizes", 0, Math.max(...sizes.map((one) => one.restart.transactions)), ""),
    ...sizes.map((size) => {
      const { ownP50Ms, ownP99Ms } = size.replace;
      return atMost(`endpoint replaced ${name(size)}, own p50`, 0.3, ownP50Ms, "ms", `p99 ${ownP99Ms.toFixed(2)}`);
    }),
    atMost("endpoint replaced, 50000 / 1000", 1.3, ratio, "x"),
    ...sizes.map((size) => {
      const { ownP50Ms, ownP99Ms } = size.scale;
      return atMost(`scaled by one ${name(size)}, own p50`, 0.5, ownP50Ms, "ms", `p99 ${ownP99Ms.toFixed(2)}`);
    }),
    ...sizes.map((size) => atMost(`scaled by one ${name(size)}, in the kernel`, 0.1, size.scale.kernelP50Ms, "ms")),
    ...sizes.flatMap((size) => {
      const measured = size.newCount?.kernelP50Ms;
      return measured === undefined
        ? []
        : [atMost(`scaled to a new number ${name(size)}, in the kernel`, 0.2, measured, "ms")];
    }),
    atMost(
      "scaled by one, in the kernel, 50000 / 1000",
      1.5,
      at(50_000).scale.kernelP50Ms / at(1_000).scale.kernelP50Ms,
      "x",
    ),
    ...sizes.flatMap((size) => [
      loop(`full load ${name(size)}`, size.load.blocked),
      loop(`restart ${name(size)}`, size.restart.blocked),
      loop(`single changes ${name(size)}`, size.blocked),
    ]),
  ];
}

/** Compares with another build, measured in turns. */
function againstBefore({ services = [], servicesBefore, memory = [], memoryBefore }: Results): Aim[] {
  return [
    ...(servicesBefore ?? []).map(({ load: before }, i) => {
      const { services: count, endpoints, load } = services[i];
      const note = `${load.cpuMs.toFixed(0)} and ${before.cpuMs.toFixed(0)} ms`;
      return atMost(
        `main thread, full load ${count} x ${endpoints} / before`,
        0.6,
        load.cpuMs / before.cpuMs,
        "x",
        note,
      );
    }),
    ...(memoryBefore ?? []).map(({ rss: before }, i) => {
      const { services: count, endpoints, rss } = memory[i];
      const note = `${(rss / MB).toFixed(0)} and ${(before / MB).toFixed(0)} MB`;
      return atMost(`resident with manifests, ${count} x ${endpoints} / before`, 1, rss / before, "x", note);
    }),
  ];
}

function ofGrowth({ changes, before, after, between, blocked }: Growth): Aim[] {
  const bytes = ({ heap, native }: Used): number => heap + native;
  const percent = (from: Used): number => (100 * (bytes(after) - bytes(from))) / bytes(from);
  const middle = between[Math.floor(between.length / 2)] ?? before;
  const size = (used: Used): string => `${(used.heap / MB).toFixed(1)} + ${(used.native / MB).toFixed(1)} MB`;
  return [
    atMost(`heap + native grown by ${changes} changes`, 2, percent(before), "%", `${size(before)} to ${size(after)}`),
    atMost("heap + native grown by the later half of them", 2, percent(middle), "%", `from ${size(middle)}`),
    loop(`${changes} changes`, blocked),
  ];
}

/** Compared with few services: within 5 %, or within the difference of two identical roads. */
function ofPackets({ services, someServices, fewServices, first }: Packets): Aim[] {
  const p50 = (path: PathName, moment: keyof Moments = "first"): number => {
    const measured = first[path];
    if (measured === undefined) throw new Error(`the path ${path} was not measured`);
    return measured[moment].p50;
  };
  const same = (moment?: keyof Moments): number => (p50("few", moment) + p50("twin", moment)) / 2;
  const percent = (ns: number, to: number): number => (100 * (ns - to)) / to;
  const spread = percent(Math.max(p50("few"), p50("twin")), Math.min(p50("few"), p50("twin")));
  const aim = Math.max(5, spread);
  const note = `p50 ${same().toFixed(0)} ns; two alike differ by ${spread.toFixed(1)} %`;
  const any = `without any proxier, any pod against few: ${percent(p50("none any"), p50("none")).toFixed(1)} %`;
  const added = (what: string, ours: number, theirs: number, none: number): Aim =>
    atMost(
      `${what}: added to a path without a proxier / kube-proxy's`,
      0.75,
      (ours - none) / (theirs - none),
      "x",
      `${(ours - none).toFixed(0)} and ${(theirs - none).toFixed(0)} ns`,
    );
  const few = `to any of ${fewServices} services`;
  const ofFew = (what: string, moment: keyof Moments): Aim =>
    added(`${what}, ${few}`, same(moment), p50("kube-proxy few", moment), p50("none", moment));
  return [
    atMost(`first packet, ${services} services / ${fewServices}, to few`, aim, percent(p50("many"), same()), "%", note),
    atMost("first packet, the same, to any service", 30, percent(p50("many any"), same()), "%", any),
    ofFew("first packet", "first"),
    added(`first packet, to any of ${someServices}`, p50("some any"), p50("kube-proxy some any"), p50("none of some")),
    ofFew("packet of a connection that nobody has answered", "second"),
    ofFew("packet after an answer", "answered"),
  ];
}

function ofCluster(cluster: Watched<Cluster>): Aim[] {
  const { services, endpoints, startMs, rest, latencyP50Ms, latencyP99Ms, blocked } = cluster;
  const what = `at an API server, ${services} x ${endpoints}:`;
  return [
    atMost(`${what} start to synced`, 2_000, startMs, "ms"),
    atMost(`${what} resident at rest`, 200, rest / MB, "MB"),
    atMost(`${what} event to active, p50`, 5, latencyP50Ms, "ms"),
    atMost(`${what} event to active, p99`, 20, latencyP99Ms, "ms"),
    loop("at an API server, once its modules are loaded", blocked),
  ];
}

/** Times below this are mostly constant costs, and noise, ms. */
const LEAST_GROWN_MS = 20;

/** n log n is 1.1 at these sizes. */
function ofExponents({ dimension, sizes, steps }: Exponents): Aim[] {
  const what = `${dimension}, ${steps[0].step}`;
  const ofTimes = (thread: string, costs: readonly number[]): Aim[] => {
    if (Math.max(...costs) < LEAST_GROWN_MS) return [];
    return [atMost(`growth with ${what}, exponent, ${thread}`, 1.15, exponentOf(sizes, costs), "")];
  };
  const { heldMs, ownMs } = longest(steps.map(({ blocked }) => blocked));
  return [
    ...ofTimes(
      "main thread",
      steps.map(({ mainMs }) => mainMs),
    ),
    ...ofTimes(
      "kernel",
      steps.map(({ kernelMs }) => kernelMs),
    ),
    atMost(`${what}: longest transaction`, 100, Math.max(...steps.map((step) => step.longestTransactionMs)), "ms"),
    atMost(`${what}: event loop held`, 50, heldMs, "ms", `own work ${ownMs.toFixed(1)}`),
  ];
}

function ofPorts({ ports, replace, heldMs }: ManyPorts): Aim[] {
  const { ms, kernelMs, latencyMs, writes } = replace;
  const what = `an endpoint of ${ports} ports replaced`;
  const note = `${ms.toFixed(0)} of ${kernelMs.toFixed(0)} ms in ${writes} transactions; active after ${latencyMs.toFixed(0)}`;
  return [
    atMost(`${what} / the kernel's time`, 3, ms / kernelMs, "x", note),
    atMost(`event loop held: ${what}`, 50, replace.heldMs, "ms"),
    ...Object.entries(heldMs).map(([by, held]) =>
      atMost(`the same service, event loop held by: ${by}`, 50, held, "ms"),
    ),
  ];
}

export function aims(results: Results): Aim[] {
  const { services, kernel, rolling, repair, check, affinity, memory, growth, packets, cluster, conntrack, pages } =
    results;
  const { commands, exponents, ports } = results;
  const list: Aim[] = services === undefined ? [] : ofServices(services);
  if (kernel !== undefined) {
    const size = `${kernel.services} x ${kernel.endpoints}`;
    const note = `${(kernel.rest / MB).toFixed(0)} MB stay; ${kernel.transactions} transactions`;
    list.push(
      atMost(
        `the kernel's memory in a load ${size}, with a listener in another process`,
        300,
        kernel.peak / MB,
        "MB",
        note,
      ),
      atMost(`the longest transaction of it`, 200, kernel.longestCommitMs, "ms"),
    );
  }
  for (const { services: count, endpoints, load, changeKernelMs } of affinity ?? []) {
    const note = `an endpoint replaced ${changeKernelMs.toFixed(1)} ms`;
    list.push(atMost(`ClientIP affinity ${count} x ${endpoints}, in the kernel`, 500, load.kernelMs, "ms", note));
  }
  if (rolling !== undefined) {
    const first = `the first change ${rolling.firstMs.toFixed(1)} ms`;
    list.push(
      atMost("rolling update: all active after its last event", 50, rolling.afterLastMs, "ms", first),
      atMost("rolling update: transactions", 60, rolling.transactions, ""),
      loop("rolling update", rolling.blocked),
    );
  }
  if (repair !== undefined) {
    const middle = median(repair.map(({ ownMs }) => ownMs));
    const kernelMs = median(repair.map((one) => one.kernelMs));
    const slowest = Math.max(...repair.map(({ slowestOwnMs }) => slowestOwnMs));
    const note = `the kernel's own ${kernelMs.toFixed(0)}; slowest ${slowest.toFixed(0)}`;
    list.push(
      atMost("a deleted table of 10000 x 10 restored, own time", 50, middle, "ms", note),
      // 120,000 elements, which packets do not see before the last transaction (src/nft/sync/make-before-break.ts).
      atMost("transactions of a repair", 10, Math.max(...repair.map(({ transactions }) => transactions)), ""),
      loop("repair", longest(repair.map(({ blocked }) => blocked))),
    );
  }
  if (check !== undefined) {
    const cpuMs = median(check.map((one) => one.cpuMs));
    const dumpMs = median(check.map(({ dumpCpuMs }) => dumpCpuMs));
    const allMs = median(check.map(({ allCpuMs }) => allCpuMs));
    const [{ elements, checks }] = check;
    const note = `the main thread ${median(check.map(({ mainMs }) => mainMs)).toFixed(0)}`;
    const all = `${checks} checks, ${allMs.toFixed(0)} ms; ${elements} elements dumped ${dumpMs.toFixed(0)} ms`;
    list.push(
      atMost("a check of 50000 x 10, CPU", 500, cpuMs, "ms", note),
      atMost("everything compared / a bare dump", 1.2, allMs / dumpMs, "x", all),
      loop("check", longest(check.map(({ blocked }) => blocked))),
    );
  }
  for (const { services: count, endpoints, rss, peak, blocked } of memory ?? []) {
    const size = `${count} x ${endpoints}`;
    const note = `peak ${(peak / MB).toFixed(0)}`;
    list.push(
      atMost(`resident with manifests, ${size}`, count === 10_000 ? 130 : 280, rss / MB, "MB", note),
      loop(`the program with manifests, ${size}`, blocked),
    );
  }
  if (growth !== undefined) list.push(...ofGrowth(growth));
  if (packets !== undefined) list.push(...ofPackets(packets));
  if (cluster !== undefined) list.push(...ofCluster(cluster));
  if (conntrack !== undefined) list.push(...conntrackAims(conntrack));
  if (commands !== undefined) list.push(...ofCommands(commands));
  if (ports !== undefined) list.push(...ofPorts(ports));
  if (exponents !== undefined) list.push(...exponents.flatMap(ofExponents));
  if (pages !== undefined) {
    const more = median(pages.map((one) => one.with - one.without));
    const [{ pages: count }] = pages;
    const note = `without pages ${median(pages.map(({ without }) => without)).toFixed(1)} %`;
    const all = `all after ${median(pages.map(({ allMs }) => allMs)).toFixed(0)} ms`;
    list.push(
      atMost(`${count} status pages, 10000 x 10, 1000 changes a minute: more CPU`, 1, more, "%", note),
      atMost("a status page: first services", 500, median(pages.map(({ firstMs }) => firstMs)), "ms", all),
    );
  }
  list.push(...againstBefore(results));
  return list;
}
