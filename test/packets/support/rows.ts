/**
 * A row describes a sender, a destination and the expected result. Each row is one test, tried in both families and over TCP, UDP and SCTP
 * at once. The verdict comes only from the wire: which server answered, which peer it saw, which ICMP error came.
 */
import { expect, test } from "vitest";

import type { Agent, Outcome, Probe, Transport } from "../../lab/agent.ts";
import { FAMILIES, type Family } from "../../lab/topology.ts";
import type { Cluster } from "./cluster.ts";
import { type Target, TRANSPORTS } from "./objects.ts";
import { EVENTUALLY_MS } from "../../lab/eventually.ts";

export type Expected =
  | {
      /** Exactly these pods answer. */
      readonly pods: readonly string[];
      /** Whether they see an address of the node instead of the sender's; or the list of pods that do. */
      readonly masq: boolean | readonly string[];
    }
  /** Silence. */
  | "drop"
  /** ICMP port unreachable. */
  | "reject"
  /** The packet leaves the node, or reaches the node's own sockets, unchanged. */
  | "untouched";

export interface Row {
  /** The rule under test. */
  readonly rule: string;
  readonly from: string | readonly string[];
  readonly to: Target | readonly Target[];
  readonly expect: Expected;
  readonly families?: readonly Family[];
  readonly protocols?: readonly Transport[];
}

interface Trial {
  readonly from: string;
  readonly to: Target;
  readonly family: Family;
  readonly protocol: Transport;
}

const BATCH = 12;
/** Draws until every pod has been seen. With an even draw, one of three pods stays unseen this long once in 10^14 trials. */
const MOST_BATCHES = 7;
/**
 * Some connections of the node itself show another port than the rule says. A masqueraded one keeps its address and may draw its old port,
 * once in 64,512. One that is not masqueraded gets another port if a masqueraded one has its port. That is one in 64, if 1,000 of these are
 * tracked. A rule that is not followed shows on every connection. So if one differs, this many connections to its pod decide: that more
 * than half of them differ by chance, happens at most once in 10^16 times, C(24, 13) / 64^13.
 */
const DECIDING = 24;
const MOST_DECIDING_BATCHES = 40;
const DROP_MS = 300;
/** Long, because only a failure waits for it. */
const ANSWER_MS = 10_000;
const PORT_UNREACHABLE = { ip: { type: 3, code: 3 }, ip6: { type: 1, code: 4 } } as const;

const list = <T>(one: T | readonly T[]): readonly T[] => (Array.isArray(one) ? (one as readonly T[]) : [one as T]);

/** Returns a function that declares a test for each of its rows. `cluster` is called when the tests run. */
export function rowTests(cluster: () => Cluster): (rows: readonly Row[]) => void {
  return (rows) => {
    for (const row of rows) {
      const from = list(row.from).join(", ");
      const to = list(row.to).map((one) => one.name);
      test.concurrent(`${row.rule}: ${from} → ${to.join(", ")}: ${describeExpected(row.expect)}`, async () => {
        expect(await checkRow(cluster(), row)).toEqual([]);
      });
    }
  };
}

function describeExpected(expected: Expected): string {
  if (typeof expected === "string") return expected;
  const { pods, masq } = expected;
  const names = pods.join("|");
  if (typeof masq === "boolean") return masq ? `${names}, masqueraded` : names;
  return `${names}, ${masq.join("|")} masqueraded`;
}

/** Waits until the row holds, at most `limitMs`. The failure includes `log`. */
export async function untilRow(cluster: Cluster, row: Row, log: () => string, limitMs = EVENTUALLY_MS): Promise<void> {
  const start = performance.now();
  // A busy machine answers late.
  for (let answerMs = 300; ; answerMs = Math.min(2 * answerMs, 5000)) {
    const wrong = await checkRow(cluster, row, { answerMs });
    if (wrong.length === 0) return;
    const tooLate = performance.now() - start > limitMs;
    if (tooLate) throw new Error(`not within ${limitMs} ms:\n${wrong.join("\n")}\n${log()}`);
  }
}

/** Describes differences from the row; empty if there are none. */
export async function checkRow(
  cluster: Cluster,
  row: Row,
  { answerMs = ANSWER_MS }: { readonly answerMs?: number } = {},
): Promise<readonly string[]> {
  const trials = list(row.from).flatMap((from) =>
    list(row.to).flatMap((to) =>
      (row.families ?? FAMILIES).flatMap((family) =>
        (row.protocols ?? TRANSPORTS).map((protocol): Trial => ({ from, to, family, protocol })),
      ),
    ),
  );
  // Do this for every row: a packet that was wrongly let through must not look dropped.
  for (const to of list(row.to)) await cluster.catchUntouched(to.port);
  const results = await Promise.all(
    trials.map(async (trial) => {
      const wrong = await tryOne(cluster, trial, row.expect, answerMs);
      return wrong === undefined
        ? []
        : [`${trial.family} ${trial.protocol} ${trial.from} → ${trial.to.name}: ${wrong}`];
    }),
  );
  return results.flat();
}

async function tryOne(
  cluster: Cluster,
  trial: Trial,
  expected: Expected,
  answerMs: number,
): Promise<string | undefined> {
  const { namespace, address } = cluster.source(trial.from);
  const probe: Probe = {
    protocol: trial.protocol,
    ...(address ? { source: address[trial.family] } : {}),
    destination: trial.to.address[trial.family],
    port: trial.to.port,
    timeoutMs: expected === "drop" ? DROP_MS : answerMs,
    count: typeof expected === "object" ? BATCH : 4,
  };
  if (typeof expected === "object") return tryEndpoints(namespace.agent(), probe, expected, cluster.nodeAddresses);
  const outcomes = await namespace.agent().probe(probe);
  const good = outcomes.every((outcome) => isVerdict(outcome, trial, expected));
  return good ? undefined : `expected ${expected}, got ${JSON.stringify(outcomes)}`;
}

function isVerdict(outcome: Outcome, trial: Trial, expected: "drop" | "reject" | "untouched"): boolean {
  if (expected === "drop") return outcome.result === "timeout";
  if (expected === "reject") {
    const { type, code } = PORT_UNREACHABLE[trial.family];
    return outcome.result === "unreachable" && outcome.type === type && outcome.code === code;
  }
  return (
    outcome.result === "ok" &&
    (outcome.name === "beyond" || outcome.name === "node") &&
    outcome.at === trial.to.address[trial.family] &&
    outcome.atPort === trial.to.port &&
    outcome.sourceKept
  );
}

async function tryEndpoints(
  agent: Agent,
  probe: Probe,
  expected: Exclude<Expected, string>,
  nodeAddresses: ReadonlySet<string>,
): Promise<string | undefined> {
  const seen = new Map(expected.pods.map((pod) => [pod, { answers: 0, moved: 0 }]));
  const isDecided = ({ answers, moved }: Seen): boolean => moved === 0 || answers >= DECIDING;
  const left = (): string[] => expected.pods.filter((pod) => seen.get(pod)?.answers === 0);
  for (let batch = 0; batch < MOST_DECIDING_BATCHES; batch++) {
    const outcomes = await agent.probe(probe);
    const wrong = (): string => `expected ${describeExpected(expected)}, got ${JSON.stringify(outcomes)}`;
    for (const outcome of outcomes) {
      const pod = outcome.result === "ok" ? seen.get(outcome.name) : undefined;
      if (outcome.result !== "ok" || pod === undefined) return wrong();
      const isMasqueraded = typeof expected.masq === "boolean" ? expected.masq : expected.masq.includes(outcome.name);
      const source = sourceOf(outcome, probe, isMasqueraded, nodeAddresses);
      if (source === "wrong") return wrong();
      pod.answers += outcome.count;
      if (source === "moved") pod.moved += outcome.count;
    }
    const pods = [...seen.values()];
    if (pods.some((pod) => pod.answers >= DECIDING && pod.moved > pod.answers / 2)) return wrong();
    if (left().length === 0 && pods.every(isDecided)) return undefined;
    if (left().length > 0 && batch >= MOST_BATCHES - 1) break;
  }
  return `expected ${describeExpected(expected)}, but ${left().join("|")} never answered, or too rarely`;
}

/** Connections of one pod. */
interface Seen {
  answers: number;
  /** Connections with another port than expected, which may be chance: see DECIDING. */
  moved: number;
}

/** Whether the answering pod saw the sender or, if masqueraded, an address of the node. */
function sourceOf(
  answer: Extract<Outcome, { readonly result: "ok" }>,
  probe: Probe,
  isMasqueraded: boolean,
  nodeAddresses: ReadonlySet<string>,
): "right" | "moved" | "wrong" {
  const isOwn = probe.source === undefined || nodeAddresses.has(probe.source);
  if (isMasqueraded) {
    if (!nodeAddresses.has(answer.seen)) return "wrong";
    if (!answer.sourceKept) return "right";
    return isOwn ? "moved" : "wrong";
  }
  if (answer.sourceKept) return "right";
  if (isOwn) return nodeAddresses.has(answer.seen) ? "moved" : "wrong";
  // Two connections from one source port to two addresses may reach the same pod: then the kernel changes the port of one.
  return answer.seen === probe.source ? "right" : "wrong";
}
