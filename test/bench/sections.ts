/** The measurements, by section: each in its own processes and network namespaces, repeated if it is short. */
import type { Affinity } from "./affinity.ts";
import type { Cluster } from "./api.ts";
import type { Check } from "./check.ts";
import type { Commands } from "./commands.ts";
import { type ConntrackResult, measureConntrack } from "./conntrack.ts";
import type { Dimension, Step } from "./exponents.ts";
import type { Growth } from "./growth.ts";
import type { Handover } from "./handover.ts";
import type { KernelMemory } from "./kernel-memory.ts";
import { inNamespace, median } from "./lib.ts";
import { type Blocked, longest } from "./loop-watch.ts";
import type { ManyPorts } from "./many-ports.ts";
import type { Changes, Measured } from "./measure.ts";
import type { Memory } from "./memory.ts";
import type { Packets } from "./packets.ts";
import type { Pages } from "./pages.ts";
import type { Repair } from "./repair.ts";
import type { Rolling } from "./rolling.ts";

interface Size {
  readonly services: number;
  readonly endpoints: number;
}

/** Result of a separate process, and how long its event loop was held. */
export type Watched<T> = Size & T & { readonly blocked: Blocked };

/** One step at each size, the smallest first. */
export interface Exponents {
  readonly dimension: Dimension;
  readonly sizes: readonly number[];
  readonly steps: readonly Step[];
}

/** All results of a run; skipped sections are absent. */
export interface Results {
  services?: Measured[];
  /** The same for another build, in turns with this one. */
  servicesBefore?: Measured[];
  kernel?: KernelMemory;
  rolling?: Rolling;
  repair?: Repair[];
  check?: Check[];
  affinity?: Affinity[];
  memory?: Watched<Memory>[];
  memoryBefore?: Watched<Memory>[];
  growth?: Growth;
  exponents?: Exponents[];
  packets?: Packets;
  cluster?: Watched<Cluster>;
  conntrack?: ConntrackResult;
  commands?: Commands;
  ports?: ManyPorts;
  pages?: Pages[];
  handover?: Handover[];
}

const SIZES: readonly Size[] = [
  { services: 1_000, endpoints: 10 },
  { services: 10_000, endpoints: 10 },
  { services: 50_000, endpoints: 10 },
  { services: 5_000, endpoints: 50 },
];
const AFFINITY_SIZES: readonly Size[] = [
  { services: 1_000, endpoints: 4 },
  { services: 1, endpoints: 10_000 },
];
const KERNEL_SIZE = SIZES[2];
const MEMORY_SIZES = SIZES.slice(1, 3);
const ROLLING = { services: 10_000, endpoints: 10, changes: 1_000 };
const GROWTH = { services: 5_000, endpoints: 10, changes: 100_000 };
/** The largest size. The others are a half, a quarter and an eighth of it. */
const LARGEST: Readonly<Record<Dimension, number>> = {
  services: 10_000,
  endpoints: 100_000,
  slices: 4_000,
  ports: 2_000,
  "ports with affinity": 1_000,
};
const CLUSTER = { services: 10_000, endpoints: 10, changes: 1_000, watchedChanges: 100 };
const COMMANDS = { services: 10_000, endpoints: 10 };
/** Ports of the one service. */
const PORTS = 20_000;
const PAGES = { services: 10_000, endpoints: 10, pages: 5, seconds: 30 };
const PACKETS = { services: 50_000, connections: 12_000, perRound: 5_000 };
/** Few enough to be repaired without a wait. */
const REPAIRS = { services: 10_000, endpoints: 10, times: 5 };
const CHECKS = { services: 50_000, endpoints: 10, times: 5 };
/** Single changes at each size. */
const CHANGES = 2_000;

/** Number of repetitions, and the directory of another build to compare with. */
export interface Scope {
  readonly rounds: number;
  readonly before?: string;
}

/** Prints progress. */
function say(what: string): void {
  process.stderr.write(`measuring ${what} ...\n`);
}

const text = ({ services, endpoints }: Size): string => `${services} services x ${endpoints} endpoints`;
const of = (round: number, rounds: number): string => `(${round + 1} of ${rounds})`;

/**
 * Measures each build, this one first, at each size. The rounds go over all of them, so that a busy minute does not affect only one.
 * `measure` runs scripts of the build in `root`.
 */
function inRounds<T>(
  { rounds, before }: Scope,
  sizes: readonly Size[],
  measure: (size: Size, progress: string, root?: string) => T,
): T[][][] {
  const builds = before === undefined ? [{ name: "" }] : [{ name: "" }, { name: "before, ", root: before }];
  const measured = builds.map(() => sizes.map((): T[] => []));
  for (let round = 0; round < rounds; round++) {
    sizes.forEach((size, i) => {
      builds.forEach(({ name, root }, build) => {
        measured[build][i].push(measure(size, `${name}${text(size)} ${of(round, rounds)}`, root));
      });
    });
  }
  return measured;
}

function measureServices(scope: Scope): Pick<Results, "services" | "servicesBefore"> {
  const all = inRounds(scope, SIZES, ({ services, endpoints }, progress, root) => {
    say(progress);
    return inNamespace("measure.ts", [services, endpoints, CHANGES], ["--expose-gc"], root) as Measured;
  });
  const [services, servicesBefore] = all.map((sizes) => sizes.map(together));
  return { services, servicesBefore };
}

function medians(all: readonly Changes[]): Changes {
  return {
    operations: all[0].operations,
    ownP50Ms: median(all.map(({ ownP50Ms }) => ownP50Ms)),
    ownP99Ms: median(all.map(({ ownP99Ms }) => ownP99Ms)),
    totalP50Ms: median(all.map(({ totalP50Ms }) => totalP50Ms)),
    kernelP50Ms: median(all.map(({ kernelP50Ms }) => kernelP50Ms)),
  };
}

/** Medians, and the longest time that the event loop was held. */
function together(all: readonly Measured[]): Measured {
  const [first] = all;
  const newCounts = all.flatMap(({ newCount }) => newCount ?? []);
  const write = (pick: (one: Measured) => Measured["load"]): Measured["load"] => ({
    ...pick(first),
    totalMs: median(all.map((one) => pick(one).totalMs)),
    kernelMs: median(all.map((one) => pick(one).kernelMs)),
    cpuMs: median(all.map((one) => pick(one).cpuMs)),
    transactions: Math.max(...all.map((one) => pick(one).transactions)),
    blocked: longest(all.map((one) => pick(one).blocked)),
  });
  return {
    ...first,
    load: write((one) => one.load),
    restart: write((one) => one.restart),
    replace: medians(all.map(({ replace }) => replace)),
    scale: medians(all.map(({ scale }) => scale)),
    ...(newCounts.length > 0 && { newCount: medians(newCounts) }),
    blocked: longest(all.map((one) => one.blocked)),
  };
}

/** The largest and longest values. */
function measureKernel(rounds: number): KernelMemory {
  const all = Array.from({ length: rounds }, (_, round) => {
    say(`the kernel's memory, ${text(KERNEL_SIZE)} ${of(round, rounds)}`);
    return inNamespace("kernel-memory.ts", [KERNEL_SIZE.services, KERNEL_SIZE.endpoints]) as KernelMemory;
  });
  return {
    ...all[0],
    peak: Math.max(...all.map(({ peak }) => peak)),
    longestCommitMs: Math.max(...all.map(({ longestCommitMs }) => longestCommitMs)),
  };
}

/** For each size, the run with the median kernel time of the load. */
function measureAffinity(rounds: number): Affinity[] {
  return AFFINITY_SIZES.map((size) => {
    const all = Array.from({ length: rounds }, (_, round) => {
      say(`${text(size)} with ClientIP affinity ${of(round, rounds)}`);
      return inNamespace("affinity.ts", [size.services, size.endpoints, 10], ["--expose-gc"]) as Affinity;
    });
    return all.sort((a, b) => a.load.kernelMs - b.load.kernelMs)[Math.floor((rounds - 1) / 2)];
  });
}

function measureRolling(rounds: number): Rolling {
  const all = Array.from({ length: rounds }, (_, round) => {
    say(`a rolling update ${of(round, rounds)}`);
    return inNamespace(
      "rolling.ts",
      [ROLLING.services, ROLLING.endpoints, ROLLING.changes],
      ["--expose-gc"],
    ) as Rolling;
  });
  return {
    firstMs: median(all.map((one) => one.firstMs)),
    afterLastMs: median(all.map((one) => one.afterLastMs)),
    transactions: Math.max(...all.map((one) => one.transactions)),
    lastedMs: median(all.map((one) => one.lastedMs)),
    blocked: longest(all.map((one) => one.blocked)),
  };
}

function measureRepair(rounds: number): Repair[] {
  const { services, endpoints, times } = REPAIRS;
  return Array.from({ length: rounds }, (_, round) => {
    say(`repairs of a deleted table, ${text(REPAIRS)} ${of(round, rounds)}`);
    return inNamespace("repair.ts", [services, endpoints, times]) as Repair;
  });
}

function measureCheck(rounds: number): Check[] {
  const { services, endpoints, times } = CHECKS;
  return Array.from({ length: rounds }, (_, round) => {
    say(`checks, ${text(CHECKS)} ${of(round, rounds)}`);
    return inNamespace("check.ts", [services, endpoints, times], ["--expose-gc"]) as Check;
  });
}

function measureMemory(scope: Scope): Pick<Results, "memory" | "memoryBefore"> {
  const all = inRounds(scope, MEMORY_SIZES, ({ services, endpoints }, progress, root): Program => {
    say(`the program's memory, ${progress}`);
    const args = [services, endpoints];
    return {
      ...(inNamespace("memory.ts", args, [], root) as Memory),
      blocked: inNamespace("memory.ts", [...args, "watch"], [], root) as Blocked,
    };
  });
  const [memory, memoryBefore] = all.map((sizes) => sizes.map(largest));
  return { memory, memoryBefore };
}

type Program = Memory & { readonly blocked: Blocked };

/** The largest and longest values. */
function largest(all: readonly Program[], size: number): Watched<Memory> {
  return {
    ...MEMORY_SIZES[size],
    rss: Math.max(...all.map(({ rss }) => rss)),
    peak: Math.max(...all.map(({ peak }) => peak)),
    startedMs: median(all.map(({ startedMs }) => startedMs)),
    blocked: longest(all.map(({ blocked }) => blocked)),
  };
}

function measureGrowth(): Growth {
  const { services, endpoints, changes } = GROWTH;
  say(`memory over ${changes} changes`);
  return inNamespace("growth.ts", [services, endpoints, changes], ["--expose-gc"]) as Growth;
}

/** Medians of the times, and the longest times that transactions and the main thread held others up. */
function measureExponents(rounds: number): Exponents[] {
  return (Object.keys(LARGEST) as Dimension[]).flatMap((dimension) => {
    const sizes = [8, 4, 2, 1].map((part) => LARGEST[dimension] / part);
    const measured = sizes.map((size) =>
      Array.from({ length: rounds }, (_, round) => {
        say(`growth with ${dimension}, ${size} ${of(round, rounds)}`);
        return inNamespace("exponents.ts", [dimension, size], ["--expose-gc"]) as Step[];
      }),
    );
    return measured[0][0].map((_, step) => ({
      dimension,
      sizes,
      steps: measured.map((all) => typical(all.map((steps) => steps[step]))),
    }));
  });
}

function typical(all: readonly Step[]): Step {
  return {
    ...all[0],
    mainMs: median(all.map(({ mainMs }) => mainMs)),
    kernelMs: median(all.map(({ kernelMs }) => kernelMs)),
    longestTransactionMs: median(all.map(({ longestTransactionMs }) => longestTransactionMs)),
    blocked: longest(all.map(({ blocked }) => blocked)),
  };
}

function measurePackets(rounds: number): Packets {
  const { services, connections, perRound } = PACKETS;
  say(`connections through ${services} services`);
  return inNamespace("packets.ts", [services, connections, rounds, perRound]) as Packets;
}

function measureCluster(): Watched<Cluster> {
  const { services, endpoints, changes, watchedChanges } = CLUSTER;
  say(`the program at an API server, ${text(CLUSTER)}`);
  const measured = inNamespace("api.ts", [services, endpoints, changes]) as Cluster;
  say("the same, its event loop watched");
  const blocked = inNamespace("api.ts", [services, endpoints, watchedChanges, "watch"]) as Blocked;
  return { services, endpoints, ...measured, blocked };
}

function measureCommands(rounds: number): Commands {
  const { services, endpoints } = COMMANDS;
  say(`commands beside a daemon, ${text(COMMANDS)}`);
  return inNamespace("commands.ts", [services, endpoints, 3 * rounds]) as Commands;
}

function measurePorts(rounds: number): ManyPorts {
  say(`a service with ${PORTS} ports`);
  return inNamespace("many-ports.ts", [PORTS, rounds]) as ManyPorts;
}

function measurePages(rounds: number): Pages[] {
  const { services, endpoints, pages, seconds } = PAGES;
  return Array.from({ length: rounds }, (_, round) => {
    say(`${pages} status pages, ${text(PAGES)} ${of(round, rounds)}`);
    return inNamespace("pages.ts", [services, endpoints, pages, seconds]) as Pages;
  });
}

function measureHandover(rounds: number): Handover[] {
  return MEMORY_SIZES.map((size) => {
    say(`handover, ${text(size)}`);
    return inNamespace("handover.ts", [size.services, size.endpoints, rounds]) as Handover;
  });
}

export type Section = Exclude<keyof Results, "servicesBefore" | "memoryBefore">;

/** Sections in the order of their execution. */
export const SECTIONS: Readonly<Record<Section, (into: Results, scope: Scope) => void>> = {
  services: (into, scope) => Object.assign(into, measureServices(scope)),
  kernel: (into, { rounds }) => (into.kernel = measureKernel(rounds)),
  rolling: (into, { rounds }) => (into.rolling = measureRolling(rounds)),
  repair: (into, { rounds }) => (into.repair = measureRepair(rounds)),
  check: (into, { rounds }) => (into.check = measureCheck(rounds)),
  affinity: (into, { rounds }) => (into.affinity = measureAffinity(rounds)),
  memory: (into, scope) => Object.assign(into, measureMemory(scope)),
  growth: (into) => (into.growth = measureGrowth()),
  exponents: (into, { rounds }) => (into.exponents = measureExponents(rounds)),
  packets: (into, { rounds }) => (into.packets = measurePackets(rounds)),
  cluster: (into) => (into.cluster = measureCluster()),
  conntrack: (into) => (into.conntrack = measureConntrack()),
  commands: (into, { rounds }) => (into.commands = measureCommands(rounds)),
  ports: (into, { rounds }) => (into.ports = measurePorts(rounds)),
  pages: (into, { rounds }) => (into.pages = measurePages(rounds)),
  handover: (into, { rounds }) => (into.handover = measureHandover(rounds)),
};
