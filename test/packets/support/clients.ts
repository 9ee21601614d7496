/** Many clients: addresses of the outside client, and the pods that answer them. */
import type { Outcome, Transport } from "../../lab/agent.ts";
import type { Namespace } from "../../lab/namespace.ts";
import type { AddressPair, Family } from "../../lab/topology.ts";
import type { Cluster } from "./cluster.ts";
import type { Target } from "./objects.ts";

/** Addresses that `addClients` gives to the client. */
export function clientAddresses(count: number): readonly AddressPair[] {
  return Array.from({ length: count }, (_, i) => ({
    ip: `198.51.100.${20 + i}`,
    ip6: `2001:db8:2::${(0x20 + i).toString(16)}`,
  }));
}

export async function addClients({ lab }: Cluster, clients: readonly AddressPair[]): Promise<void> {
  await lab.client.ip(
    clients.flatMap(({ ip, ip6 }) => [`address add ${ip}/32 dev eth0`, `address add ${ip6}/128 dev eth0 nodad`]),
  );
}

/** Returns the name of the pod, or the outcome as text. */
export function answerOf(outcome: Outcome): string {
  return outcome.result === "ok" ? outcome.name : outcome.result;
}

export interface Connections {
  readonly to: Target;
  readonly family: Family;
  readonly protocol: Transport;
  /** One of the client's addresses, or of the namespace `from`. */
  readonly source: AddressPair;
  readonly from?: Namespace;
  readonly count?: number;
  readonly sourcePort?: number;
  readonly timeoutMs?: number;
}

/** Number of connections that each pod answers, opened one after the other. */
export async function answers(cluster: Cluster, connections: Connections): Promise<ReadonlyMap<string, number>> {
  const { to, family, protocol, source, count = 1, sourcePort, timeoutMs = 10_000 } = connections;
  const { from = cluster.lab.client } = connections;
  const outcomes = await from.agent().probe({
    protocol,
    source: source[family],
    destination: to.address[family],
    port: to.port,
    count,
    timeoutMs,
    sourcePort,
  });
  const counts = new Map<string, number>();
  for (const outcome of outcomes) {
    const name = answerOf(outcome);
    counts.set(name, (counts.get(name) ?? 0) + outcome.count);
  }
  return counts;
}

/** Runs `work` on each item, with limited concurrency. Returns the results in order. */
export async function inParallel<Item, Result>(
  items: readonly Item[],
  most: number,
  work: (item: Item) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  for (let at = 0; at < items.length; at += most)
    results.push(...(await Promise.all(items.slice(at, at + most).map(work))));
  return results;
}
