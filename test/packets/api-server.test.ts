/**
 * In a cluster, as kubeadm starts kube-proxy: the image's command, from the startup snapshot, with kube-proxy's command line and files (in
 * another place). The API server uses TLS and requires the service account's token. Packets follow the API server's objects, whatever
 * happens to the API server.
 */
import type { ChildProcess } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { KubeJson } from "../lab/api-server/api-server.ts";
import type { Answer } from "../lab/http.ts";
import { PLAN } from "../lab/topology.ts";
import { KUBEADM_CONFIG, kubeadmArguments } from "../unit/config/kubeadm.ts";
import { Api } from "./support/api.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  handover,
  loadBalancer,
  type Manifest,
  NODE,
  nodeObject,
  nodePort,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { underLoad } from "./support/load.ts";
import { checkRow, type Row, untilRow } from "./support/rows.ts";
import { patience } from "../lab/patience.ts";
import { atLength } from "../lab/length.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const late: ServiceSpec = { name: "late", n: 2, endpoints: ["b"] };
const CHECK_PORT = 32_100;

const began = Date.now();
let directory: string;
let cluster: Cluster;
let api: Api;
let daemon: ChildProcess;
let log = "";

beforeAll(async () => {
  cluster = await Cluster.create();
  directory = await cluster.temporaryDirectory();
  api = await Api.start(cluster.lab.node, { tls: {}, tokens: ["first-token"] });
  await put(nodeObject(), serviceCIDRObject(), ...objects(web, late));
  daemon = cluster.start(await kubeadmFiles());
  daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  await becomes({ rule: "", from: "c", to: clusterIP(web), expect: { pods: ["a"], masq: false } });
});
afterAll(() => cluster.destroy());

/** Writes kubeadm's ConfigMap, with other file paths and the second family's cluster CIDR. Returns the command line. */
async function kubeadmFiles(): Promise<string[]> {
  const at = (name: string): string => join(directory, name);
  await writeFile(at("ca.crt"), api.ca);
  await writeFile(at("token"), "first-token\n");
  const kubeconfig = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "default", cluster: { "certificate-authority": at("ca.crt"), server: api.url } }],
    contexts: [{ name: "default", context: { cluster: "default", namespace: "default", user: "default" } }],
    "current-context": "default",
    users: [{ name: "default", user: { tokenFile: at("token") } }],
  };
  await writeFile(at("kubeconfig.conf"), JSON.stringify(kubeconfig));
  const config = KUBEADM_CONFIG.replace("/var/lib/kube-proxy/", `${directory}/`).replace(
    "clusterCIDR: 10.244.0.0/16",
    `clusterCIDR: ${PLAN.clusterCIDR.ip},${PLAN.clusterCIDR.ip6}`,
  );
  await writeFile(at("config.conf"), config);
  return kubeadmArguments(at("config.conf"), NODE);
}

function objects(...services: readonly ServiceSpec[]): Manifest[] {
  return services.flatMap((service) => serviceObjects(cluster.lab, service));
}

function put(...manifests: readonly Manifest[]): Promise<void> {
  return api.call("put", manifests as unknown as readonly KubeJson[]);
}

const becomes = (row: Row, limitMs?: number): Promise<void> => untilRow(cluster, row, () => log, limitMs);

/** Gives `late` these endpoints, and waits until packets reach them. */
async function serveLate(...pods: readonly string[]): Promise<void> {
  await put(...objects({ ...late, endpoints: pods }));
  await becomes({ rule: "", from: "c", to: clusterIP(late), expect: { pods, masq: false } });
}

const get = (url: string): Promise<Answer> => cluster.node.http().get(url);

test("a watch event reaches packets, and loses no connection", async () => {
  await put(...objects(late));
  await becomes({ rule: "", from: "client", to: nodePort(late), expect: { pods: ["b"], masq: true } });
  const streams = [
    { from: "client", to: loadBalancer(late), protocol: "tcp" },
    { from: "c", to: clusterIP(late), protocol: "udp" },
  ] as const;
  const { connections, failures } = await underLoad(cluster, streams, async () => {
    let before = ["b"];
    for (const pods of [["a", "b", "r1"], ["r1", "r2"], ["b"]]) {
      for (const endpoints of handover(before, pods)) {
        await put(...objects({ ...late, endpoints }));
        await becomes({ rule: "", from: "c", to: clusterIP(late), expect: { pods, masq: false } });
      }
      before = pods;
    }
  });
  expect(failures).toEqual([]);
  // All changes may be done within a second.
  expect(connections).toBeGreaterThan(30);
});

test("the health and metrics ports answer like kube-proxy's", async () => {
  const health = await get("http://127.0.0.1:10256/healthz");
  expect(health.status).toBe(200);
  expect(JSON.parse(health.body)).toMatchObject({ healthy: true, nodeEligible: true, status: { IPv4: {}, IPv6: {} } });
  expect(await get("http://127.0.0.1:10249/proxyMode")).toEqual({ status: 200, body: "nftables" });
  const { body } = await get("http://127.0.0.1:10249/metrics");
  // The startup snapshot, from which the daemon starts, is older than this test.
  expect(Number(/^process_start_time_seconds (\d+)/m.exec(body)?.[1]) * 1000).toBeGreaterThan(began - 1_000);
  expect(body).toMatch(/^kubeproxy_sync_proxy_rules_duration_seconds_count\{ip_family="IPv6"\} [1-9]/m);
  expect(body).toMatch(/^kubernetes_build_info\{.*git_version="v1\.36\.\d+".*\} 1/m);
  expect((await api.call("requests")).map(({ path, status }) => `${path} ${status}`)).toContain("/version 200");
  expect(body).toMatch(/^rest_client_requests_total\{code="200",method="GET",host="127\.0\.0\.1:\d+"\} [1-9]/m);
});

test("the metrics port shows the configuration, the flags, its paths and results of its health check", async () => {
  const page = async (path: string): Promise<string> => (await get(`http://127.0.0.1:10249${path}`)).body;
  const config = { kind: "KubeProxyConfiguration", hostnameOverride: NODE };
  expect(JSON.parse(await page("/configz"))).toMatchObject({ "kubeproxy.config.k8s.io": config });
  expect(await page("/flagz")).toMatch(/^\nkube-proxy flagz\nWarning: [^\n]*\n(.*\n)*hostname-override=/);
  expect(JSON.parse(await page("/"))).toMatchObject({
    paths: expect.arrayContaining(["/configz", "/metrics/slis"]) as string[],
  });
  expect(await page("/healthz")).toBe("ok");
  expect(await page("/metrics/slis")).toContain('kubernetes_healthcheck{name="ping",type="healthz"} 1\n');
  expect((await get("http://127.0.0.1:10249/debug/flags/v")).status).toBe(404);
});

const SILENT = atLength({ short: 200, usual: 1000 });
test(`${SILENT} connections that send nothing, or half a request, do not delay a probe's answer`, async () => {
  const script = `
    import { connect } from "node:net";
    const opened = Array.from({ length: ${SILENT} }, (_, n) => new Promise((resolve) => {
      const socket = connect(10256, "127.0.0.1", () => resolve(socket.write(n % 2 ? "GET /healthz HTTP/1.1\\r\\nX" : "")));
      socket.on("error", resolve).resume();
    }));
    await Promise.all(opened);
    const statuses = ["OPTIONS", "GET", "POST"].map(async (method) => {
      const response = await fetch("http://127.0.0.1:10256/healthz", { method });
      return method + " " + response.status;
    });
    console.log(JSON.stringify(await Promise.all(statuses)));
    process.exit();`;
  const answers = await cluster.lab.node.mustRun([process.execPath, "--input-type=module", "-e", script]);
  expect(JSON.parse(answers)).toEqual(["OPTIONS 200", "GET 200", "POST 200"]);
});

test("repairs are counted by cause, and the fill level of the connection tracking table is reported", async () => {
  const value = async (series: string): Promise<string | undefined> => {
    const lines = (await get("http://127.0.0.1:10249/metrics")).body.split("\n");
    return lines.find((line) => line.startsWith(`${series} `))?.slice(series.length + 1);
  };
  const repairs = (cause: string): Promise<string | undefined> =>
    value(`nftproxier_table_repairs_total{ip_family="IPv4",cause="${cause}"}`);
  expect([await repairs("table-deleted"), await repairs("changed")]).toEqual(["0", "0"]);
  await cluster.lab.node.mustRun(["nft", "delete", "table", "ip", "kube-proxy"]);
  await expect.poll(() => repairs("table-deleted")).toBe("1");
  await cluster.lab.node.mustRun(["nft", "add", "chain", "ip", "kube-proxy", "theirs"]);
  await expect.poll(() => repairs("changed")).toBe("1");
  expect(await repairs("table-deleted")).toBe("1");
  expect(await value('nftproxier_services_quarantined{ip_family="IPv6"}')).toBe("0");
  await expect.poll(async () => Number(await value("nftproxier_conntrack_max"))).toBeGreaterThan(0);
  expect(Number(await value("nftproxier_conntrack_pressure"))).toBeLessThan(1);
});

test("each event of a Service is counted once per family, and of a slice once, whether it changes rules or not", async () => {
  const total = async (kind: "service" | "endpoint"): Promise<number> => {
    const { body } = await get("http://127.0.0.1:10249/metrics");
    const found = new RegExp(`^kubeproxy_sync_proxy_rules_${kind}_changes_total (\\d+)`, "m").exec(body);
    return Number(found?.[1]);
  };
  const [services, slices] = [await total("service"), await total("endpoint")];
  const noted = (object: Manifest): Manifest => ({
    ...object,
    metadata: { ...(object["metadata"] as Manifest), annotations: { "example.com/note": "changes no rule" } },
  });
  const own = objects({ ...late, endpoints: ["b"], families: ["ip"] });
  await put(...own.map(noted));
  await expect.poll(async () => [await total("service"), await total("endpoint")]).toEqual([services + 2, slices + 1]);
  await put(...objects(late));
});

test("the trigger time of a slice's change is measured", async () => {
  const count = async (): Promise<number> => {
    const { body } = await get("http://127.0.0.1:10249/metrics");
    return Number(
      /^kubeproxy_network_programming_duration_seconds_count\{ip_family="IPv4"\} (\d+)/m.exec(body)?.[1] ?? "0",
    );
  };
  const before = await count();
  const [, slice] = objects({ ...late, endpoints: ["b", "r1"], families: ["ip"] });
  const metadata = slice["metadata"] as Manifest;
  const annotations = { "endpoints.kubernetes.io/last-change-trigger-time": new Date().toISOString() };
  await put({ ...slice, metadata: { ...metadata, annotations } });
  await expect.poll(count).toBe(before + 1);
  await put(...objects(late));
});

test("a load balancer's health check follows the endpoints on this node", async () => {
  const checked: ServiceSpec = {
    name: "checked",
    n: 3,
    endpoints: ["a", "r1"],
    external: "Local",
    spec: { healthCheckNodePort: CHECK_PORT },
  };
  const url = `http://${PLAN.node.ip}:${CHECK_PORT}/`;
  await put(...objects(checked));
  const answer = { service: { namespace: "default", name: "checked" }, localEndpoints: 1, serviceProxyHealthy: true };
  await expect.poll(async () => (await get(url).catch(() => undefined))?.status).toBe(200);
  expect(JSON.parse((await get(url)).body)).toEqual(answer);
  await put(...objects({ ...checked, endpoints: ["r1"] }));
  await expect.poll(async () => (await get(url)).status).toBe(503);
  await api.call("delete", "Service", "default/checked");
  await expect
    .poll(() =>
      get(url).then(
        () => "open",
        () => "closed",
      ),
    )
    .toBe("closed");
});

test("a node that the autoscaler is about to remove is not eligible", async () => {
  const node = nodeObject();
  const taint = { key: "ToBeDeletedByClusterAutoscaler", effect: "NoSchedule" };
  await put({ ...node, spec: { ...(node["spec"] as Manifest), taints: [taint] } });
  const status = async (path: string): Promise<number> => (await get(`http://127.0.0.1:10256${path}`)).status;
  await expect.poll(() => status("/healthz")).toBe(503);
  expect(await status("/livez")).toBe(200);
  await put(node);
  await expect.poll(() => status("/healthz")).toBe(200);
});

test("a Node object that is deleted changes nothing: its last state is kept", async () => {
  await api.call("delete", "Node", NODE);
  await expect.poll(() => log).toContain("Node object deleted");
  const { status, body } = await get("http://127.0.0.1:10256/healthz");
  expect([status, JSON.parse(body)]).toMatchObject([200, { nodeEligible: true }]);
  await put(nodeObject());
});

test("a watch that breaks off in the middle of a line is resumed", async () => {
  await api.call("watching", "endpointslices");
  await api.call("cut", "endpointslices");
  await serveLate("a", "r1");
  await serveLate("b");
});

test("without the API server nothing changes, and later changes are caught up with", async () => {
  await serveLate("b");
  await put(...objects(web));
  await becomes({ rule: "", from: "c", to: clusterIP(web), expect: { pods: ["a"], masq: false } });
  await api.call("down");
  try {
    await sleep(atLength({ short: 500, usual: 2_000 }));
    const row: Row = { rule: "", from: "c", to: clusterIP(late), expect: { pods: ["b"], masq: false } };
    expect(await checkRow(cluster, row)).toEqual([]);
    await put(...objects({ ...late, endpoints: ["r2"] }));
    await api.call("delete", "Service", "default/web");
    // The history no longer contains what the watches missed: only a new list shows it.
    await api.call("compact");
    // The kubelet renews the token every hour.
    await writeFile(join(directory, "token"), "second-token\n");
    await api.call("accept", ["second-token"]);
  } finally {
    await api.call("up");
  }
  await becomes({ rule: "", from: "c", to: clusterIP(late), expect: { pods: ["r2"], masq: false } }, patience(60_000));
  await becomes({ rule: "", from: ["c", "client"], to: clusterIP(web), expect: "drop" });
});

test("an Event reports the start", async () => {
  await expect
    .poll(async () => (await api.call("events")).map((event) => [event["reason"], event["action"]]))
    .toContainEqual(["Starting", "StartKubeProxy"]);
});

test("a change of the configuration file ends the program with 1, and the rules stay", async () => {
  await serveLate("r2");
  const ended = new Promise<number | null>((resolve) => daemon.once("exit", resolve));
  const file = join(directory, "config.conf");
  await writeFile(file, "mode: [");
  await sleep(500);
  expect(daemon.exitCode).toBe(null);
  await writeFile(file, KUBEADM_CONFIG.replace("syncPeriod: 0s", "syncPeriod: 20s"));
  expect(await ended).toBe(1);
  const row: Row = { rule: "", from: "c", to: clusterIP(late), expect: { pods: ["r2"], masq: false } };
  expect(await checkRow(cluster, row)).toEqual([]);
});
