/** Connections opened without a pause while something changes. */
import { setTimeout as sleep } from "node:timers/promises";

import type { Outcome, Transport } from "../../lab/agent.ts";
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
  /** Every outcome that is not an answer. */
  readonly failures: readonly Outcome[];
}

/** Between rounds: the load must not take the processors from what is under test. */
const PAUSE_MS = 5;

/** Keeps every stream busy, in both families, until `work` is done; then says how the connections ended. */
export async function underLoad(
  cluster: Cluster,
  streams: readonly Stream[],
  work: () => Promise<void>,
): Promise<LoadResult> {
  const stop = new AbortController();
  const loads = streams.flatMap(({ from, to, protocol }) =>
    FAMILIES.map(async (family) => {
      const { namespace, address } = cluster.source(from);
      const outcomes: Outcome[] = [];
      const probe = {
        protocol,
        ...(address ? { source: address[family] } : {}),
        destination: to.address[family],
        port: to.port,
        count: 20,
        concurrency: 2,
        // Long: a packet that found no endpoint is lost or refused at once, never late.
        timeoutMs: 3000,
      };
      while (!stop.signal.aborted) {
        outcomes.push(...(await namespace.agent().probe(probe)));
        await sleep(PAUSE_MS);
      }
      return outcomes;
    }),
  );
  try {
    await work();
  } finally {
    stop.abort();
  }
  const outcomes = (await Promise.all(loads)).flat();
  return {
    connections: outcomes.reduce((sum, { count }) => sum + count, 0),
    failures: outcomes.filter(({ result }) => result !== "ok"),
  };
}
