/** Senders that keep sending from one socket reach the new endpoint soon after theirs is replaced. No other flow is touched. */
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { FlowAnswers } from "../lab/agent.ts";
import { FAMILIES, type Family } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterIP, everyWay, POD_PORT, serviceObjects, type ServiceSpec, type Target } from "./support/objects.ts";
import { Tracked } from "./support/tracked.ts";
import { patience } from "../lab/patience.ts";
import { watchWithoutCore } from "../lab/stolen.ts";
import { atLength } from "../lab/length.ts";

const UNRELATED = atLength({ short: 2_000, usual: 10_000 });
const INTERVAL_MS = patience(10);
const GOAL_MS = patience(50);
/** Limit for half of the replacements: 16 ms were measured on a quiet machine, 55 ms with fifteen programs on two cores. */
const BUSY_MS = patience(250);
/** Limit for every replacement, however busy the machine is. */
const LIMIT_MS = patience(2000);
/** Many, because some are disturbed on a busy machine. */
const REPLACEMENTS = atLength({ short: 3, usual: 10 });
/** Pause between replacements: each sender has followed one before the next comes. */
const PAUSE_MS = LIMIT_MS + patience(200);

let cluster: Cluster;
let tracked: Tracked;
beforeAll(async () => {
  cluster = await Cluster.create();
  await cluster.lab.node.sysctl({
    "net.netfilter.nf_conntrack_udp_timeout": patience(600),
    "net.netfilter.nf_conntrack_udp_timeout_stream": patience(600),
    "net.netfilter.nf_conntrack_sctp_timeout_cookie_wait": patience(600),
  });
  tracked = await Tracked.start(cluster);
});
afterAll(async () => {
  await tracked.stop();
  await cluster.destroy();
});

const moving = (endpoint: string): ServiceSpec => ({ name: "moving", n: 1, endpoints: [endpoint] });
const steady: ServiceSpec = { name: "steady", n: 2, endpoints: ["b", "r2"] };
const objects = (...services: readonly ServiceSpec[]) =>
  services.flatMap((service) => serviceObjects(cluster.lab, service));

interface Sender {
  readonly name: string;
  readonly answers: Promise<readonly FlowAnswers[]>;
}

let sourcePort = 21_000;
function send(from: string, to: Target, protocol: "udp" | "sctp", family: Family): Sender {
  const { namespace, address } = cluster.source(from);
  const spec = { protocol, port: to.port, destination: to.address[family], intervalMs: INTERVAL_MS };
  const source = address?.[family] ?? "";
  const answers = namespace.agent().flow({ ...spec, source, sourcePort: sourcePort++ });
  return { name: `${family} ${protocol} ${from} → ${to.name}`, answers };
}

/** Identity of a flow: its tuples and id. A recreated entry has another id. */
const identity = ({ id, original, reply }: { id: number; original: object; reply: object }): string =>
  JSON.stringify([id, original, reply]);

test(`each of ${UNRELATED} other flows keeps its entry while senders follow the replaced endpoint`, async () => {
  await tracked.apply(objects(moving("a"), steady));
  await makeUnrelated();
  const standstill = watchWithoutCore();
  const before = new Set((await tracked.entries()).map(identity));
  expect(before.size).toBeGreaterThanOrEqual(UNRELATED);

  const senders = everyWay(moving("a")).flatMap((to) =>
    FAMILIES.flatMap((family) => (["udp", "sctp"] as const).map((p) => send("client", to, p, family))),
  );
  senders.push(...FAMILIES.map((family) => send("b", clusterIP(moving("a")), "udp", family)));
  const replacedAt: number[] = [];
  for (let i = 0; i < REPLACEMENTS; i++) {
    await sleep(PAUSE_MS);
    replacedAt.push(await tracked.apply(objects(moving(i % 2 === 0 ? "r1" : "a"), steady)));
  }
  await sleep(atLength({ short: LIMIT_MS, usual: 2 * LIMIT_MS }));
  await Promise.all(["client", "b"].map((from) => cluster.source(from).namespace.agent().endFlows()));
  const stood = standstill();
  const delays = new Map<string, readonly number[]>();
  for (const { name, answers } of senders) {
    const runs = await answers;
    const followed = Array.from({ length: REPLACEMENTS + 1 }, (_, i) => (i % 2 === 0 ? "a" : "r1"));
    expect([name, runs.map((run) => run.name)]).toEqual([name, followed]);
    delays.set(
      name,
      replacedAt.map((at, i) => runs[i + 1].firstMs - at),
    );
  }
  const report = process.env["RECOVERY_REPORT"];
  if (report !== undefined) writeFileSync(report, JSON.stringify(Object.fromEntries(delays)));
  // A busy processor delays some (`npm run bench -- conntrack` reports the longest), but none longer than LIMIT_MS. If the machine stood
  // still, that may have delayed one by all of the time, half of them by a fifth of it, or each by a tenth.
  expect([...delays].filter(([, times]) => Math.min(...times) > GOAL_MS + stood / REPLACEMENTS)).toEqual([]);
  expect([...delays].filter(([, times]) => median(times) > BUSY_MS + (2 * stood) / REPLACEMENTS)).toEqual([]);
  expect([...delays].filter(([, times]) => Math.max(...times) > LIMIT_MS + stood)).toEqual([]);

  const after = new Set((await tracked.entries()).map(identity));
  expect([...before].filter((flow) => !after.has(flow))).toEqual([]);
});

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

/** Real flows: to a pod itself, and to an unchanged service. */
async function makeUnrelated(): Promise<void> {
  const { namespace, address } = cluster.source("client");
  const targets = FAMILIES.flatMap((family) => [
    { source: address?.[family] ?? "", destination: cluster.lab.pod("c").address[family], port: POD_PORT },
    { source: address?.[family] ?? "", destination: clusterIP(steady).address[family], port: clusterIP(steady).port },
  ]);
  const count = Math.ceil(UNRELATED / targets.length);
  for (const target of targets) {
    const outcomes = await namespace.agent().probe({ protocol: "udp", ...target, count, timeoutMs: 5000 });
    expect(outcomes.every(({ result }) => result === "ok")).toBe(true);
  }
}
