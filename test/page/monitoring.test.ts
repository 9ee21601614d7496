/**
 * deploy/monitoring with the metrics of a real daemon: promtool evaluates every query and alert on them, first while nothing
 * happens, then after events.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parse } from "yaml";
import type { KubeJson } from "../lab/api-server/api-server.ts";
import { mustRun } from "../lab/debian.ts";
import { eventually } from "../lab/eventually.ts";
import { PLAN } from "../lab/topology.ts";
import { Api } from "../packets/support/api.ts";
import { answers } from "../packets/support/clients.ts";
import { Cluster } from "../packets/support/cluster.ts";
import {
  clusterIP,
  configuration,
  nodeObject,
  serviceCIDRObject,
  serviceObject,
  serviceObjects,
  type ServiceSpec,
  sliceObject,
} from "../packets/support/objects.ts";
import { temporaryDirectory } from "../support/temporary-directory.ts";
import { promtool } from "./promtool.ts";

const root = path.resolve(import.meta.dirname, "../..");
const monitoring = path.join(root, "deploy", "chart", "monitoring");
const alertsFile = path.join(monitoring, "alerts.yaml");

interface Group {
  readonly rules: readonly { readonly alert: string; readonly annotations: { readonly action: string } }[];
}
interface Dashboard {
  readonly panels: readonly { readonly title: string; readonly targets: readonly { readonly expr: string }[] }[];
}
const dashboard = JSON.parse(readFileSync(path.join(monitoring, "dashboard.json"), "utf8")) as Dashboard;
/** As Grafana sends them for all nodes. */
const queriesOf = (panels: Dashboard["panels"]): readonly string[] =>
  panels.flatMap(({ targets }) =>
    targets.map(({ expr }) => expr.replaceAll("$instance", ".*").replaceAll("$__rate_interval", "5m")),
  );
const queries = queriesOf(dashboard.panels);

const tcp = { protocols: ["tcp"] } as const;
const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"], ...tcp };
/** No program listens on its endpoint's port. */
const shut: ServiceSpec = { name: "shut", n: 2, endpoints: ["a"], ...tcp };
const empty: ServiceSpec = { name: "empty", n: 3, endpoints: [], ...tcp };

let cluster: Cluster;
let api: Api;
let daemon: ChildProcess;

beforeAll(async () => {
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  api = await Api.start(cluster.lab.node);
  const shutSlice = { name: "shut-ip", service: "shut", family: "ip", endpoints: ["a"], ...tcp, port: 8081 } as const;
  const services = [web, empty].flatMap((service) => serviceObjects(cluster.lab, service));
  const objects = [nodeObject(), serviceCIDRObject(), ...services, serviceObject(shut)];
  await api.call("put", [...objects, sliceObject(cluster.lab, shutSlice)] as unknown as readonly KubeJson[]);
  const directory = await cluster.temporaryDirectory();
  const kubeconfig = path.join(directory, "kubeconfig.conf");
  const config = path.join(directory, "config.conf");
  await writeFile(kubeconfig, api.kubeconfig);
  await writeFile(config, JSON.stringify(configuration({ clientConnection: { kubeconfig } })));
  daemon = cluster.start([`--config=${config}`]);
  daemon.stderr?.resume();
  await eventually(async () => expect(await connect(web, 1)).toEqual(new Map([["a", 1]])));
});
afterAll(async () => {
  daemon.kill("SIGTERM");
  if (daemon.exitCode === null) await once(daemon, "exit");
  await cluster.destroy();
});

const connect = (service: ServiceSpec, count: number): Promise<ReadonlyMap<string, number>> => {
  const source = { ip: "0.0.0.0", ip6: "::" };
  return answers(cluster, { to: clusterIP(service), family: "ip", protocol: "tcp", source, from: cluster.node, count });
};

/** Values by series. */
type Samples = ReadonlyMap<string, number>;

async function served(): Promise<string> {
  const ask = `process.stdout.write(await (await fetch("http://127.0.0.1:10249/metrics")).text())`;
  return cluster.node.mustRun([process.execPath, "--input-type=module", "-e", ask]);
}

/** The daemon's metrics as Prometheus stores them. */
async function scraped(): Promise<Samples> {
  const target = `instance="${PLAN.node.ip}:10249",job="nft-proxier"`;
  const lines = (await served()).matchAll(/^([a-z]\w*)(?:\{(.*)\})? (\S+)$/gm);
  const samples = Array.from(lines, ([, name, labels, value]): [string, number] => [
    `${name}{${labels === undefined ? "" : `${labels},`}${target}}`,
    Number(value),
  ]);
  return new Map([[`up{${target}}`, 1], ...samples]);
}

/** One value, then `values` more, each larger by `step`, as promtool writes it: without an exponent. */
function sequence(first: number, step: number, values: number): string {
  const [start, added] = [first, Math.abs(step)].map((number) => number.toFixed(9).replace(/\.?0+$/, ""));
  return `${start}${step < 0 ? "-" : "+"}${added}x${values}`;
}

/** A series that is `before` for 20 minutes, and then changes each minute by as much as it did from `before` to `after`. */
function values(before: number | undefined, after: number | undefined): string {
  const quiet = before === undefined ? "_x20" : sequence(before, 0, 19);
  if (after === undefined) return `${quiet} _x20`;
  const step = after - (before ?? 0);
  return `${quiet} ${sequence((before ?? 0) + step, step, 19)}`;
}

interface Expected {
  readonly expr: string;
  readonly eval_time: string;
  readonly exp_samples: readonly { readonly labels: string; readonly value: number }[];
}

/** Evaluates expressions and the alerts. Throws with promtool's output if a result differs. */
function evaluate(before: Samples, after: Samples, expected: readonly Expected[]): void {
  const series = [...new Set([...before.keys(), ...after.keys()])];
  const input_series = series.map((name) => ({ series: name, values: values(before.get(name), after.get(name)) }));
  const tests = [{ interval: "1m", input_series, promql_expr_test: expected }];
  const file = path.join(temporaryDirectory(), "test.yaml");
  writeFileSync(file, JSON.stringify({ rule_files: [alertsFile], evaluation_interval: "1m", tests }));
  expect(mustRun(promtool(), ["test", "rules", file])).toContain("SUCCESS");
}

/** The alerts that fire at the end, with their labels. */
function alertsFiring(labels: readonly string[]): Expected {
  const expr = `count by (alertname, service) (ALERTS{alertstate="firing"})`;
  return { expr, eval_time: "35m", exp_samples: labels.map((text) => ({ labels: text, value: 1 })) };
}

const firingOf = (alertname: string): Expected => alertsFiring([`{alertname="${alertname}"}`]);

test.each(["alerts.yaml", "dashboard.json"])("%s: every metric in it is served", async (file) => {
  const names = new Set(Array.from((await served()).matchAll(/^# TYPE (\S+)/gm), ([, name = ""]) => name));
  const text = readFileSync(path.join(monitoring, file), "utf8");
  const used = new Set(text.match(/\b(?:nftproxier|kubeproxy|process|rest_client)_[a-z0-9_]+/g));
  expect(used.size).toBeGreaterThan(5);
  const isServed = (name: string): boolean => names.has(name) || names.has(name.replace(/_(?:bucket|sum|count)$/, ""));
  expect([...used].filter((name) => !isServed(name))).toEqual([]);
});

test("docs/metrics.md has every metric of our own that a daemon serves", async () => {
  const page = readFileSync(path.join(root, "docs", "metrics.md"), "utf8");
  const rows = Array.from((await served()).matchAll(/^# TYPE (nftproxier_\w+) (\w+)$/gm), ([, name, type]) => {
    return `| \`${name}\` | ${type} |`;
  });
  expect(rows.length).toBeGreaterThan(20);
  expect(rows.filter((row) => !page.includes(row))).toEqual([]);
});

test("every alert names a command to run", () => {
  const { groups } = parse(readFileSync(alertsFile, "utf8")) as { readonly groups: readonly Group[] };
  const actions = groups.flatMap(({ rules }) => rules.map(({ alert, annotations }) => [alert, annotations.action]));
  expect(actions.filter(([, action]) => !/`(?:nft-proxier|kubectl) [^`]+`/.test(action))).toEqual([]);
});

test("while nothing happens, no alert fires, and every panel shows a number; panels of events show 0", async () => {
  const quiet = await scraped();
  const isTrue = { eval_time: "35m", exp_samples: [{ labels: "{}", value: 1 }] } as const;
  expect(queries.length).toBeGreaterThan(15);
  const numbers = queries.map((query) => ({ expr: `min((${query}) >= bool 0)`, ...isTrue }));
  const ofEvents = queries.filter((query) => /\b(?:rate|increase)\(/.test(query));
  const zeros = ofEvents.map((query) => ({ expr: `max((${query}) == bool 0)`, ...isTrue }));
  evaluate(quiet, quiet, [...numbers, ...zeros, alertsFiring([])]);
});

/** What the panel with this title shows one minute after the events, in whole numbers. */
function shown(title: string, samples: readonly (readonly [labels: string, value: number])[]): Expected {
  const query = queriesOf(dashboard.panels.filter((panel) => panel.title.startsWith(title))).join();
  const exp_samples = samples.map(([labels, value]) => ({ labels, value }));
  return { expr: `round(${query})`, eval_time: "20m", exp_samples };
}

test("a service whose endpoints refuse all connections: the alert names it, and the panels show its connections", async () => {
  const before = await scraped();
  expect(await connect(web, 20)).toEqual(new Map([["a", 20]]));
  expect(await connect(shut, 12)).toEqual(new Map([["refused", 12]]));
  expect(await connect(empty, 3)).toEqual(new Map([["unreachable", 3]]));
  // The daemon reads the kernel at most once a second.
  await expect.poll(async () => [...(await scraped()).keys()].join("\n")).toContain('reason="endpoint"');
  const of = (service: string, reason?: string): string =>
    `{namespace="default", ${reason === undefined ? "" : `reason="${reason}", `}service="${service}"}`;
  evaluate(before, await scraped(), [
    alertsFiring(['{alertname="NftProxierServiceRefused", service="shut"}']),
    shown("New connections per service", [
      [of("empty"), 0],
      [of("shut"), 12],
      [of("web"), 20],
    ]),
    shown("Refused packets per service", [
      [of("empty", "no-endpoint"), 3],
      [of("shut", "endpoint"), 12],
    ]),
    shown("Dropped packets per service", [["{}", 0]]),
  ]);
});

test("an API server that does not answer: the alert fires", async () => {
  await api.stop();
  const failed = (samples: Samples): string[] =>
    [...samples.keys()].filter((series) => series.includes('code="<error>"') && series.includes('method="GET"'));
  await expect.poll(async () => failed(await scraped()).length).toBeGreaterThan(0);
  const before = await scraped();
  const [series] = failed(before);
  await expect.poll(async () => (await scraped()).get(series)).toBeGreaterThan(before.get(series) ?? 0);
  evaluate(before, await scraped(), [firingOf("NftProxierApiServerUnreachable")]);
});

test("a daemon whose metrics are gone: the alert fires", async () => {
  const samples = await scraped();
  const up = [...samples.keys()].find((series) => series.startsWith("up{")) ?? "";
  const down: Samples = new Map([[up, 0]]);
  evaluate(new Map([...samples, ...down]), down, [firingOf("NftProxierDown")]);
});

test("promtool accepts the alerts, and they fire when they should", () => {
  const alerts = readFileSync(alertsFile, "utf8").match(/- alert:/g)?.length ?? 0;
  expect(mustRun(promtool(), ["check", "rules", alertsFile])).toContain(`SUCCESS: ${alerts} rules found`);
  const file = path.join(root, "deploy", "monitoring", "alerts_test.yaml");
  expect(mustRun(promtool(), ["test", "rules", file])).toContain("SUCCESS");
});
