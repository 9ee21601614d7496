/** Connections opened continuously during a change. */
import { availableParallelism } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

import type { Transport } from "../../lab/agent.ts";
import { atLength } from "../../lab/length.ts";
import { patience } from "../../lab/patience.ts";
import { FAMILIES } from "../../lab/topology.ts";
import type { Cluster } from "./cluster.ts";
import type { Target } from "./objects.ts";

export interface Stream {
  readonly from: string;
  readonly to: Target;
  readonly protocol: Transport;
}

export interface LoadResult {
  readonly connections: number;
  /** Every outcome other than a pod's answer, with its connection. */
  readonly failures: readonly string[];
}

/**
 * Removes failures that are expected if a set or a table is recreated under its own name. A packet between two rules at that moment finds
 * nothing and is rejected. That is at most one per processor and family; if there are more, returns all failures.
 */
export function exceptMissed(failures: readonly string[]): readonly string[] {
  const isMissed = (failure: string): boolean => failure.includes('"unreachable"');
  const connections = failures.filter(isMissed).map((failure) => Number(/"count":(\d+)/.exec(failure)?.[1]));
  const missed = connections.reduce((sum, count) => sum + count, 0);
  return missed <= FAMILIES.length * availableParallelism() ? failures.filter((one) => !isMissed(one)) : failures;
}

/** Pause between rounds: the load must not take the processors from the program under test or, in a short run, from other tests. */
const PAUSE_MS = atLength({ short: 50, usual: 5 });
/** A machine that needs N times as long for everything pauses N times as long, up to this limit. */
const LONGEST_PAUSE_MS = 2000;

/**
 * How long the entry of a UDP request and its answer is tracked, s. Source ports are reused after five seconds or more. If a reused port
 * meets its former entry, it follows that entry until the entry is deleted, to an endpoint that may be gone. An answer in flight at that
 * moment reaches the client with the endpoint's own address. kube-proxy's clients see the same.
 */
const UDP_TRACKED_S = 2;
const UDP_TIMEOUTS = ["udp_timeout", "udp_timeout_stream"].map((name) => `net.netfilter.nf_conntrack_${name}`);

/**
 * Keeps every stream busy, in both families, from before `work` until after it: each stream opens connections at least once after `work` is
 * done. Returns the results of the connections.
 * @param work receives a function that waits until all connections that have begun by then are over.
 */
export async function underLoad(
  cluster: Cluster,
  streams: readonly Stream[],
  work: (answered: () => Promise<void>) => Promise<void>,
): Promise<LoadResult> {
  const under = new Set<Promise<unknown>>();
  const pods = new Set(cluster.lab.pods.map(({ name }) => name));
  for (const { to } of streams) await cluster.catchUntouched(to.port);
  await cluster.node.sysctl(Object.fromEntries(UDP_TIMEOUTS.map((name) => [name, patience(UDP_TRACKED_S)])));
  const stop = new AbortController();
  const loads = streams.flatMap(({ from, to, protocol }) =>
    FAMILIES.map(async (family) => {
      const { namespace, address } = cluster.source(from);
      let connections = 0;
      const failures: string[] = [];
      const probe = {
        protocol,
        ...(address ? { source: address[family] } : {}),
        destination: to.address[family],
        port: to.port,
        count: 20,
        concurrency: 2,
        // A long limit: a packet that found no endpoint is lost or rejected at once, never late.
        timeoutMs: 10_000,
      };
      for (let isLast = false; !isLast;) {
        isLast = stop.signal.aborted;
        const started = performance.now();
        const round = namespace.agent().probe(probe);
        under.add(round);
        const outcomes = await round.finally(() => under.delete(round));
        for (const outcome of outcomes) {
          connections += outcome.count;
          const good = outcome.result === "ok" && pods.has(outcome.name);
          if (!good) failures.push(`${family} ${protocol} ${from} → ${to.name}: ${JSON.stringify(outcome)}`);
        }
        const took = performance.now() - started;
        const pauseMs = isLast ? 0 : Math.min(PAUSE_MS + patience(took) - took, LONGEST_PAUSE_MS);
        await sleep(pauseMs, undefined, { signal: stop.signal }).catch(() => undefined);
      }
      return { connections, failures };
    }),
  );
  try {
    await work(async () => void (await Promise.allSettled(under)));
  } finally {
    stop.abort();
    await Promise.allSettled(loads);
  }
  const results = await Promise.all(loads);
  return {
    connections: results.reduce((sum, { connections }) => sum + connections, 0),
    failures: results.flatMap(({ failures }) => failures),
  };
}

export interface SteadyLoad extends LoadResult {
  /** New connections per second: as many as the machine allowed, up to the requested number. */
  readonly perSecond: number;
}

/** Connections of one stream that are requested at once. */
const BATCH = 100;

/**
 * Opens `perSecond` new connections a second over all streams, in both families, until `work` is done. Unlike `underLoad`, it saturates the
 * machine: use it for work that lasts seconds.
 */
export async function underSteadyLoad(
  cluster: Cluster,
  streams: readonly Stream[],
  perSecond: number,
  work: () => Promise<void>,
): Promise<SteadyLoad> {
  const pods = new Set(cluster.lab.pods.map(({ name }) => name));
  for (const { to } of streams) await cluster.catchUntouched(to.port);
  const stop = new AbortController();
  const everyMs = (1000 * BATCH * streams.length * FAMILIES.length) / perSecond;
  const started = performance.now();
  const loads = streams.flatMap(({ from, to, protocol }) =>
    FAMILIES.map(async (family) => {
      const { namespace, address } = cluster.source(from);
      const source = address ? { source: address[family] } : {};
      const where = { destination: to.address[family], port: to.port };
      const failures: string[] = [];
      let connections = 0;
      for (let batch = 1; !stop.signal.aborted; batch++) {
        const began = performance.now();
        const probe = { protocol, ...source, ...where, count: BATCH, concurrency: 25, timeoutMs: 10_000 };
        for (const outcome of await namespace.agent().probe(probe)) {
          connections += outcome.count;
          const good = outcome.result === "ok" && pods.has(outcome.name);
          if (!good) failures.push(`${family} ${protocol} ${from} → ${to.name}: ${JSON.stringify(outcome)}`);
        }
        // A machine that cannot keep up leaves half of its time to the program under test.
        const now = performance.now();
        await sleep(Math.max(started + batch * everyMs - now, everyMs < now - began ? now - began : 0));
      }
      return { connections, failures };
    }),
  );
  try {
    await work();
  } finally {
    stop.abort();
    await Promise.allSettled(loads);
  }
  const results = await Promise.all(loads);
  const connections = results.reduce((sum, one) => sum + one.connections, 0);
  const seconds = (performance.now() - started) / 1000;
  return {
    connections,
    perSecond: Math.round(connections / seconds),
    failures: results.flatMap(({ failures }) => failures),
  };
}
