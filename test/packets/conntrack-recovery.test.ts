/**
 * Senders that keep sending from one socket reach the new endpoint after the first pass over a write that replaced theirs. No other flow is
 * touched. `npm run bench -- conntrack` reports how long that takes.
 */
import { writeFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { FlowAnswers } from "../lab/agent.ts";
import { EVENTUALLY_MS, eventually } from "../lab/eventually.ts";
import { FAMILIES, type Family } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterIP, everyWay, POD_PORT, serviceObjects, type ServiceSpec, type Target } from "./support/objects.ts";
import { Tracked } from "./support/tracked.ts";
import { patience } from "../lab/patience.ts";
import { atLength } from "../lab/length.ts";

const UNRELATED = atLength({ short: 2_000, usual: 10_000 });
const INTERVAL_MS = patience(10);
const REPLACEMENTS = atLength({ short: 3, usual: 10 });

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

const FIRST_PORT = 21_000;
let sourcePort = FIRST_PORT;
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
  const before = new Set((await tracked.entries()).map(identity));
  expect(before.size).toBeGreaterThanOrEqual(UNRELATED);

  const senders = everyWay(moving("a")).flatMap((to) =>
    FAMILIES.flatMap((family) => (["udp", "sctp"] as const).map((p) => send("client", to, p, family))),
  );
  senders.push(...FAMILIES.map((family) => send("b", clusterIP(moving("a")), "udp", family)));
  const followed = Array.from({ length: REPLACEMENTS + 1 }, (_, i) => (i % 2 === 0 ? "a" : "r1"));
  const replacedAt: number[] = [];
  for (const [i, pod] of followed.entries()) {
    if (i > 0) {
      expect(await tracked.conntrack.settled(EVENTUALLY_MS)).toBe(true);
      const earlier = tracked.reports.length;
      replacedAt.push(await tracked.apply(objects(moving(pod), steady)));
      await tracked.conntrack.idle();
      // The pass that the write itself starts finds them all. None is left for its repetitions, which timers start.
      for (const family of FAMILIES) {
        const pass = tracked.reports.slice(earlier).find((report) => report.family === family);
        expect(pass?.deleted).toBe(senders.length / FAMILIES.length);
      }
    }
    await eventually(async () =>
      expect(await tracked.answered(pod, FIRST_PORT, sourcePort)).toHaveLength(senders.length),
    );
  }
  await Promise.all(["client", "b"].map((from) => cluster.source(from).namespace.agent().endFlows()));
  const delays: Record<string, readonly number[]> = {};
  for (const { name, answers } of senders) {
    const runs = await answers;
    expect([name, runs.map((run) => run.name)]).toEqual([name, followed]);
    delays[name] = replacedAt.map((at, i) => runs[i + 1].firstMs - at);
  }
  const report = process.env["RECOVERY_REPORT"];
  if (report !== undefined) writeFileSync(report, JSON.stringify(delays));

  const after = new Set((await tracked.entries()).map(identity));
  expect([...before].filter((flow) => !after.has(flow))).toEqual([]);
});

/** Real flows: to a pod itself, and to an unchanged service. */
async function makeUnrelated(): Promise<void> {
  const { namespace, address } = cluster.source("client");
  const targets = FAMILIES.flatMap((family) => [
    { source: address?.[family] ?? "", destination: cluster.lab.pod("c").address[family], port: POD_PORT },
    { source: address?.[family] ?? "", destination: clusterIP(steady).address[family], port: clusterIP(steady).port },
  ]);
  const count = Math.ceil(UNRELATED / targets.length);
  for (const target of targets) {
    const outcomes = await namespace.agent().probe({ protocol: "udp", ...target, count });
    expect(outcomes.every(({ result }) => result === "ok")).toBe(true);
  }
}
