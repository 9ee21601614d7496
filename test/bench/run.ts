/**
 * `npm run bench`: full loads and single changes at several sizes, as ratios to the time that the kernel itself needs for the
 * same bytes (inside sendmsg, same run); the whole program at an API server (api.ts); conntrack with many entries
 * (conntrack.ts). Prints tables, then the same as JSON. Each runs in a process of its own; `npm run bench -- cluster` (or
 * `services`, `conntrack`) runs one of them.
 */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { conntrackRow, measureConntrack } from "./conntrack.ts";

interface Figures {
  readonly operations: number;
  readonly ownP50Ms: number;
  readonly ownP99Ms: number;
  readonly totalP50Ms: number;
  readonly kernelP50Ms: number;
}

interface Result {
  readonly services: number;
  readonly endpoints: number;
  readonly load: {
    totalMs: number;
    kernelMs: number;
    ratio: number;
    bytes: number;
    operations: number;
    blockedMs: number;
  };
  readonly restart: { totalMs: number; operations: number };
  readonly replace: Figures;
  readonly scale: Figures;
  readonly rssMb: number;
}

const SIZES: readonly (readonly [services: number, endpoints: number])[] = [
  [1_000, 10],
  [10_000, 10],
  [50_000, 10],
];
const CHANGES = 2_000;

const script = fileURLToPath(new URL("./measure.ts", import.meta.url));
const enter = fileURLToPath(new URL("../lab/enter.mjs", import.meta.url));

function measure(services: number, endpoints: number): Result {
  process.stderr.write(`measuring ${services} services x ${endpoints} endpoints ...\n`);
  // A namespace for each size: what one leaves in the kernel must not slow the next.
  const args = [
    enter,
    "--",
    process.execPath,
    "--no-warnings",
    script,
    String(services),
    String(endpoints),
    String(CHANGES),
  ];
  const output = execFileSync(process.execPath, args, { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  return JSON.parse(output.trim().split("\n").at(-1) ?? "") as Result;
}

const fixed = (value: number, digits = 2): string => value.toFixed(digits);

function serviceRow(r: Result): Record<string, string> {
  return {
    size: `${r.services} x ${r.endpoints}`,
    "load ms": fixed(r.load.totalMs, 0),
    "kernel ms": fixed(r.load.kernelMs, 0),
    ratio: fixed(r.load.ratio),
    "blocked ms": fixed(r.load.blockedMs, 0),
    "restart ms": fixed(r.restart.totalMs, 0),
    "replace own p50/p99 ms": `${fixed(r.replace.ownP50Ms)} / ${fixed(r.replace.ownP99Ms)}`,
    "replace kernel ms": fixed(r.replace.kernelP50Ms, 3),
    "scale own p50/p99 ms": `${fixed(r.scale.ownP50Ms)} / ${fixed(r.scale.ownP99Ms)}`,
    "scale kernel ms": fixed(r.scale.kernelP50Ms, 3),
    "rss MB": fixed(r.rssMb, 0),
  };
}

/** What api.ts prints. */
interface ClusterResult {
  readonly services: number;
  readonly endpoints: number;
  readonly startMs: number;
  readonly restMb: number;
  readonly changes: number;
  readonly latencyP50Ms: number;
  readonly latencyP99Ms: number;
}

const CLUSTER_SIZE = [10_000, 10] as const;
const CLUSTER_CHANGES = 1_000;

function measureCluster(): ClusterResult {
  const [count, endpoints] = CLUSTER_SIZE;
  process.stderr.write(`measuring the program at an API server with ${count} services x ${endpoints} endpoints ...\n`);
  const cluster = fileURLToPath(new URL("./api.ts", import.meta.url));
  const sizes = [count, endpoints, CLUSTER_CHANGES].map(String);
  const args = [enter, "--", process.execPath, "--no-warnings", cluster, ...sizes];
  const output = execFileSync(process.execPath, args, { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  return JSON.parse(output.trim().split("\n").at(-1) ?? "") as ClusterResult;
}

function clusterRow(r: ClusterResult): Record<string, string> {
  return {
    size: `${r.services} x ${r.endpoints}`,
    "start to synced ms": fixed(r.startMs, 0),
    "rss at rest MB": fixed(r.restMb, 0),
    "event to in force p50/p99 ms": `${fixed(r.latencyP50Ms)} / ${fixed(r.latencyP99Ms)}`,
  };
}

const SECTIONS = ["services", "cluster", "conntrack"];
const sections = process.argv.slice(2);
const unknown = sections.filter((name) => !SECTIONS.includes(name));
if (unknown.length > 0) throw new Error(`there is no ${unknown.join(", ")}: ${SECTIONS.join(", ")}`);
const wants = (name: string): boolean => sections.length === 0 || sections.includes(name);

const services = wants("services") ? SIZES.map(([count, endpoints]) => measure(count, endpoints)) : [];
if (services.length > 0) console.table(services.map(serviceRow));
const cluster = wants("cluster") ? measureCluster() : undefined;
if (cluster !== undefined) console.table([clusterRow(cluster)]);
const conntrack = wants("conntrack") ? measureConntrack() : undefined;
if (conntrack !== undefined) console.table([conntrackRow(conntrack)]);
process.stdout.write(`${JSON.stringify({ services, cluster, conntrack }, null, 2)}\n`);
