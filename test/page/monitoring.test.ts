/** deploy/monitoring: a daemon serves every metric in it, and promtool accepts the alerts. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { mustRun } from "../lab/debian.ts";
import { Cluster } from "../packets/support/cluster.ts";
import { serviceObjects } from "../packets/support/objects.ts";
import { temporaryDirectory } from "../support/temporary-directory.ts";
import { promtool } from "./promtool.ts";

const root = path.resolve(import.meta.dirname, "../..");
const monitoring = path.join(root, "deploy", "monitoring");

let cluster: Cluster;
let daemon: ChildProcess;

beforeAll(async () => {
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  daemon = cluster.start(await cluster.write(serviceObjects(cluster.lab, { name: "web", n: 1, endpoints: ["a"] })));
  daemon.stderr?.resume();
});
afterAll(async () => {
  daemon.kill("SIGTERM");
  if (daemon.exitCode === null) await once(daemon, "exit");
  await cluster.destroy();
});

async function servedNames(): Promise<ReadonlySet<string>> {
  const ask = `process.stdout.write(await (await fetch("http://127.0.0.1:10249/metrics")).text())`;
  const { stdout } = await cluster.node.run([process.execPath, "--input-type=module", "-e", ask]);
  return new Set(Array.from(stdout.matchAll(/^# TYPE (\S+)/gm), ([, name = ""]) => name));
}

/** Served only with an API server: test/packets/api-server.test.ts. */
const WITH_API_SERVER = "nftproxier_api_server_connected";

test.each(["alerts.yaml", "dashboard.json"])("%s: every metric in it is served", async (file) => {
  await expect.poll(async () => (await servedNames()).size).toBeGreaterThan(0);
  const served = await servedNames();
  const text = readFileSync(path.join(monitoring, file), "utf8");
  const used = new Set(text.match(/\b(?:nftproxier|kubeproxy|process)_[a-z0-9_]+/g));
  expect(used.size).toBeGreaterThan(5);
  const isServed = (name: string): boolean =>
    name === WITH_API_SERVER || served.has(name) || served.has(name.replace(/_(?:bucket|sum|count)$/, ""));
  expect([...used].filter((name) => !isServed(name))).toEqual([]);
});

test("promtool accepts the alerts, and they fire when they should", () => {
  const program = promtool();
  const file = path.join(monitoring, "alerts.yaml");
  const alerts = readFileSync(file, "utf8").match(/- alert:/g)?.length ?? 0;
  expect(mustRun(program, ["check", "rules", file])).toContain(`SUCCESS: ${alerts} rules found`);
  expect(mustRun(program, ["test", "rules", path.join(monitoring, "alerts_test.yaml")])).toContain("SUCCESS");
});

interface Panel {
  readonly title: string;
  readonly type: string;
  readonly targets: readonly { readonly expr: string }[];
}

test("each query of the dashboard is valid, and a panel about events shows 0 before the first one", () => {
  const { panels } = JSON.parse(readFileSync(path.join(monitoring, "dashboard.json"), "utf8")) as {
    readonly panels: readonly Panel[];
  };
  const queries = panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ title, expr })));
  // Gauges and histograms of writes have a value since the start of the daemon.
  const aboutEvents = queries.filter(({ expr }) => /_total|_refused_|repair/.test(expr) && !/process_cpu/.test(expr));
  expect(aboutEvents.length).toBeGreaterThan(6);
  const tests = queries.map(({ expr }) => ({
    expr: expr.replaceAll("$instance", ".*").replaceAll("$__rate_interval", "5m"),
    eval_time: "5m",
    exp_samples: aboutEvents.some((one) => one.expr === expr) ? [{ labels: "{}", value: 0 }] : [],
  }));
  const file = path.join(temporaryDirectory(), "dashboard_test.yaml");
  writeFileSync(file, JSON.stringify({ tests: [{ interval: "1m", input_series: [], promql_expr_test: tests }] }));
  expect(mustRun(promtool(), ["test", "rules", file])).toContain("SUCCESS");
});
