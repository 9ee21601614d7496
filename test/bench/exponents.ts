/**
 * The cost of a full load, a restart, single changes and a deletion at one size, in this process and namespace. Prints one line of JSON
 * (`Step[]`). Needs --expose-gc. Arguments: dimension size
 */
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type { V1EndpointSlice, V1Service } from "@kubernetes/client-node";
import { decoded } from "./decoded.ts";
import { freshPod, makeService, makeSlice, podsOf } from "./cluster.ts";
import { collect, tell } from "./lib.ts";
import { type Blocked, LoopWatch, ownMs } from "./loop-watch.ts";
import { inTurns, newProxier, openKernel } from "./proxier.ts";

/** The number that grows, while everything else stays the same. */
export type Dimension = "services" | "endpoints" | "slices" | "ports" | "ports with affinity";

/** One kind of change at one size, until everything is written, including what is deleted after a grace period. */
export interface Step {
  readonly step: "load" | "restart" | "endpoint replaced" | "port added" | "delete";
  /** CPU time of the main thread, ms. */
  readonly mainMs: number;
  /** CPU time of the committing thread inside sendmsg, ms. */
  readonly kernelMs: number;
  readonly operations: number;
  readonly transactions: number;
  readonly longestTransactionMs: number;
  /** The largest number of operations in one transaction. */
  readonly mostOperations: number;
  readonly blocked: Blocked;
}

/** Endpoints of a service or slice, if another dimension grows. */
const ENDPOINTS = 10;
/** The limit of a slice in the API is 1,000. */
const MOST_IN_SLICE = 1_000;

interface Cluster {
  readonly services: V1Service[];
  readonly slices: V1EndpointSlice[];
}

/** One service whose pods are in slices of `perSlice`. */
function oneService(pods: number, perSlice: number): Cluster {
  const all = podsOf(0, pods);
  const slices = Array.from({ length: Math.ceil(pods / perSlice) }, (_, i) => {
    const slice = makeSlice(0, all.slice(i * perSlice, (i + 1) * perSlice));
    return { ...slice, metadata: { ...slice.metadata, name: `svc-0-${i}` } };
  });
  return { services: [makeService(0)], slices };
}

function portsOf(ports: number): { name: string; port: number; protocol: string }[] {
  return Array.from({ length: ports }, (_, i) => ({ name: `p${i}`, port: 1_000 + i, protocol: "TCP" }));
}

function withPorts({ services, slices }: Cluster, ports: number, sessionAffinity: string): Cluster {
  const spec = { sessionAffinity, ports: portsOf(ports) };
  return {
    services: services.map((service) => ({ ...service, spec: { ...service.spec, ...spec } })),
    slices: slices.map((slice) => ({ ...slice, ports: portsOf(ports) })),
  };
}

function makeCluster(dimension: Dimension, size: number): Cluster {
  switch (dimension) {
    case "services": {
      const numbers = Array.from({ length: size }, (_, i) => i);
      return {
        services: numbers.map((i) => makeService(i)),
        slices: numbers.map((i) => makeSlice(i, podsOf(i, ENDPOINTS))),
      };
    }
    case "endpoints":
      return oneService(size, MOST_IN_SLICE);
    case "slices":
      return oneService(size * ENDPOINTS, ENDPOINTS);
    case "ports":
      return withPorts(oneService(ENDPOINTS, ENDPOINTS), size, "None");
    case "ports with affinity":
      return withPorts(oneService(ENDPOINTS, ENDPOINTS), size, "ClientIP");
  }
}

/** CPU time of the threads that commit, ms: schedstat's first number. */
function committersMs(): number {
  let sum = 0;
  for (const thread of readdirSync("/proc/self/task")) {
    if (readFileSync(`/proc/self/task/${thread}/comm`, "utf8") !== "libuv-worker\n") continue;
    sum += Number(readFileSync(`/proc/self/task/${thread}/schedstat`, "utf8").split(" ")[0]) / 1e6;
  }
  return sum;
}

const [dimension, size] = [process.argv[2] as Dimension, Number(process.argv[3])];
const kernel = await openKernel();
const commit = kernel.commit.bind(kernel);
let transactions: { readonly kernelMs: number; readonly operations: number }[] = [];
kernel.commit = async (ops, options) => {
  const before = committersMs();
  const result = await commit(ops, options);
  const kernelMs = Math.min(result.kernelNs / 1e6, committersMs() - before);
  const operations = ops.reduce(
    (sum, op) => sum + (op.kind === "elements" && op.op !== "flush" ? op.elements.count : 1),
    0,
  );
  transactions.push({ kernelMs, operations });
  return result;
};
const { services, slices } = makeCluster(dimension, size);
let proxier = newProxier(kernel);

async function measured(step: Step["step"], change: () => void | Promise<void>): Promise<Step> {
  collect();
  transactions = [];
  const watch = new LoopWatch();
  const start = ownMs();
  await change();
  for (;;) {
    const { ok, families } = await proxier.sync();
    const outcome = families[0]?.outcome;
    if (!ok || outcome === undefined || !outcome.ok) throw new Error("a write failed");
    if (outcome.againMs === undefined) break;
    await sleep(outcome.againMs);
  }
  const mainMs = ownMs() - start;
  const blocked = watch.stop();
  const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
  const kernelMs = transactions.map((one) => one.kernelMs);
  const operations = transactions.map((one) => one.operations);
  return {
    step,
    mainMs,
    kernelMs: sum(kernelMs),
    operations: sum(operations),
    transactions: transactions.length,
    longestTransactionMs: Math.max(0, ...kernelMs),
    mostOperations: Math.max(0, ...operations),
    blocked,
  };
}

const putService = (object: V1Service): void => proxier.upsert(decoded({ kind: "Service", object }));
const putSlice = (object: V1EndpointSlice): void => proxier.upsert(decoded({ kind: "EndpointSlice", object }));

async function feed(): Promise<void> {
  proxier.readAhead();
  await inTurns(services, putService);
  await inTurns(slices, putSlice);
  proxier.synced();
}

const steps = [await measured("load", feed)];
await proxier.stop();
proxier = newProxier(kernel);
steps.push(await measured("restart", feed));
const [first] = slices;
const [fresh] = makeSlice(0, [freshPod(size, size, 1)]).endpoints ?? [];
steps.push(
  await measured("endpoint replaced", () =>
    putSlice({ ...first, endpoints: [...(first.endpoints ?? []).slice(1), fresh] }),
  ),
);
const more = { name: "more", port: 999, protocol: "TCP" };
steps.push(
  await measured("port added", () => {
    const [service] = services;
    putService({ ...service, spec: { ...service.spec, ports: [...(service.spec?.ports ?? []), more] } });
  }),
);
steps.push(
  await measured("delete", async () => {
    await inTurns(services, ({ metadata }) => proxier.remove("Service", `bench/${metadata?.name}`));
    await inTurns(slices, ({ metadata }) => proxier.remove("EndpointSlice", `bench/${metadata?.name}`));
  }),
);
await proxier.stop();
await kernel.close();
tell(steps);
