/** deploy/chart, rendered by helm: equal to the kustomizations, or with exactly the differences that the values ask for. */
import type { V1ConfigMap, V1Container, V1DaemonSet, V1PodSpec } from "@kubernetes/client-node";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test as everywhere } from "vitest";
import { parse, parseAllDocuments, stringify } from "yaml";
import { packChart } from "../../deploy/release/archives.ts";
import { parseConfig } from "../../src/config/load.ts";
import type { KubeJson } from "../lab/api-server/api-server.ts";
import { mustRun } from "../lab/debian.ts";
import { eventually } from "../lab/eventually.ts";
import { PLAN } from "../lab/topology.ts";
import { Api } from "../packets/support/api.ts";
import { Cluster } from "../packets/support/cluster.ts";
import { NODE, nodeObject, serviceCIDRObject, serviceObjects } from "../packets/support/objects.ts";
import { Pod, probe, terminate } from "../packets/support/pod.ts";
import { deployPages } from "../support/deploy-pages.ts";
import { kustomize, type KubeObject, patched } from "../support/kustomize.ts";
import { temporaryDirectory } from "../support/temporary-directory.ts";
import { KUBEADM_137_CONFIG, KUBEADM_KUBECONFIG_FILE } from "../unit/config/kubeadm.ts";
import { checkAgainst } from "../unit/deploy/model-check.ts";
import { HAS_HELM, helm } from "./helm.ts";
import { schemaProblems } from "./schemas.ts";

/** The package that contains helm has it for x86-64 alone. */
const test = everywhere.skipIf(!HAS_HELM);

const root = path.resolve(import.meta.dirname, "../..");
const chart = path.join(root, "deploy", "chart");
const { version } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8")) as { readonly version: string };
const REGISTRY = "registry.example:5000/net";

/** The values that each cluster has to set, as deploy/kubernetes has them. */
const required = ["apiServer.host=control-plane.example", "clusterCIDR.ipv4=10.244.0.0/16"];
const image = `image.repository=${REGISTRY}/nft-proxier`;
const kubeadm = "existingConfigMap=kube-proxy";

const monitoringFile = (name: string): string => readFileSync(path.join(chart, "monitoring", name), "utf8");
const examples = readdirSync(path.join(chart, "examples"));
const example = (name: string): string[] => ["--values", path.join(chart, "examples", `${name}.yaml`)];

const flags = (sets: readonly string[]): string[] => sets.flatMap((set) => ["--set", set]);

function objectsIn(text: string): KubeObject[] {
  const objects = parseAllDocuments(text).map((document) => document.toJS() as KubeObject | null);
  return objects.filter((object) => object !== null);
}

function rendered(...args: readonly string[]): KubeObject[] {
  return release("nft-proxier", ...args);
}

/** The objects of a release with another name. */
function release(name: string, ...args: readonly string[]): KubeObject[] {
  return objectsIn(mustRun(helm(), ["template", name, chart, "-n", "kube-system", ...args]));
}

/** The objects that `kubectl apply -k` sends, after the reader has set the image. */
function base(name: string): KubeObject[] {
  const text = JSON.stringify(kustomize(path.join(root, "deploy", name)));
  return JSON.parse(text.replaceAll("REGISTRY/", `${REGISTRY}/`)) as KubeObject[];
}

const isMap = (value: unknown): value is object => typeof value === "object" && value !== null && !Array.isArray(value);

const CHART_LABEL = /^(?:app\.kubernetes\.io|helm\.sh)\//;

const withoutChartLabels = (object: KubeObject): KubeObject =>
  JSON.parse(
    JSON.stringify(object, (key, value: unknown) => {
      if (!["labels", "matchLabels"].includes(key) || !isMap(value)) return value;
      const others = Object.entries(value).filter(([name]) => !CHART_LABEL.test(name));
      return others.length === 0 ? undefined : Object.fromEntries(others);
    }),
  ) as KubeObject;

/** In one order, with the meaning of the files in a ConfigMap, and without the labels that only the chart's objects have. */
function meaning(objects: readonly KubeObject[]): unknown[] {
  const parsed = objects.map(withoutChartLabels).map((object) => {
    if (object.kind !== "ConfigMap") return object;
    const { data = {} } = object as V1ConfigMap;
    return { ...object, data: Object.fromEntries(Object.entries(data).map(([file, text]) => [file, parse(text)])) };
  });
  return parsed.toSorted((a, b) => `${a.kind} ${a.metadata.name}`.localeCompare(`${b.kind} ${b.metadata.name}`));
}

const daemonSetOf = (objects: readonly KubeObject[]): V1DaemonSet =>
  objects.find(({ kind }) => kind === "DaemonSet") as V1DaemonSet;
const podOf = (objects: readonly KubeObject[]): V1PodSpec => daemonSetOf(objects).spec?.template.spec as V1PodSpec;
/** The files of the ConfigMap. */
const filesOf = (objects: readonly KubeObject[]): Readonly<Record<string, string>> =>
  (objects.find(({ kind }) => kind === "ConfigMap") as V1ConfigMap | undefined)?.data ?? {};

/** Every value, different from its default. */
const everything = {
  image: {
    repository: `${REGISTRY}/nft-proxier`,
    digest: `sha256:${"5".repeat(64)}`,
    pullPolicy: "Always",
  },
  imagePullSecrets: [{ name: "pull" }],
  nameOverride: "proxier",
  fullnameOverride: "edge-proxier",
  serviceAccount: { create: true, name: "edge-account" },
  rbac: { create: true },
  takeover: "canary",
  apiServer: { host: "fd00::1", port: 443 },
  clusterCIDR: { ipv4: "10.0.0.0/8", ipv6: "fd00:10:244::/56" },
  detectLocalMode: "NodeCIDR",
  config: { conntrack: { maxPerCore: 0, min: 1_048_576 }, nodePortAddresses: ["primary"], oomScoreAdj: -900 },
  verbosity: 4,
  extraArgs: ["--service-counters=endpoint"],
  extraEnv: [{ name: "SSL_CERT_FILE", value: "/authorities/ca.crt" }],
  extraVolumes: [{ name: "authorities", configMap: { name: "authorities" } }],
  extraVolumeMounts: [{ name: "authorities", mountPath: "/authorities", readOnly: true }],
  lifecycle: { preStop: { exec: { command: ["/usr/local/bin/kube-proxy", "handover"] } } },
  livenessProbe: {
    httpGet: { path: "/livez", port: 11256 },
    periodSeconds: 30,
    timeoutSeconds: 9,
    failureThreshold: 9,
  },
  readinessProbe: { httpGet: { path: "/readyz", port: 11256 }, periodSeconds: 30, timeoutSeconds: 9 },
  metrics: {
    bindAddress: "0.0.0.0:9249",
    scrapeAnnotations: true,
    podMonitor: { enabled: true, interval: "30s", job: "proxy", labels: { release: "prometheus" } },
    prometheusRule: { enabled: true, labels: { release: "prometheus" } },
    dashboard: { enabled: true, labels: { board: "network" }, annotations: { grafana_folder: "Network" } },
  },
  resources: { requests: { cpu: "1" }, limits: { memory: "2Gi" } },
  priorityClassName: "system-cluster-critical",
  tolerations: [{ key: "dedicated", operator: "Exists" }],
  nodeSelector: { pool: "edge" },
  affinity: { nodeAffinity: {} },
  podAnnotations: { team: "network" },
  updateStrategy: { type: "OnDelete", maxUnavailable: 1, maxSurge: "" },
};

/** The chart's values as a file, which is where lists and large numbers belong. */
function file(values: unknown): string {
  const name = path.join(temporaryDirectory(), "values.yaml");
  writeFileSync(name, stringify(values));
  return name;
}

const pages = deployPages();
const ROW = /^\| `kubectl apply -k deploy\/(\w+)` \| `helm install nft-proxier deploy\/chart ([^`]*)` \|$/gm;
const instead = [...pages.matchAll(ROW)].map(([, name = "", args = ""]) => [name, args] as const);

test("daemon-set.md has a command of helm for each kustomization", () => {
  const known = new Set([...pages.matchAll(/ -k deploy\/(\w+)/g)].map(([, name]) => name));
  expect(new Set(instead.map(([name]) => name))).toEqual(known);
});

test.each(instead)("instead of deploy/%s: helm install %s makes the same objects", (name, args) => {
  const filled = args
    .replace("REGISTRY", REGISTRY)
    .replace("VERSION", version)
    .replace("HOST", "control-plane.example")
    .replace("POD-NETWORK", "10.244.0.0/16");
  expect(meaning(rendered(...filled.split(" ")))).toEqual(meaning(base(name)));
});

test("every value changes exactly what it says", () => {
  const objects = rendered("--values", file(everything));
  const reference = `${REGISTRY}/nft-proxier@${everything.image.digest}`;
  const before = base("kubernetes");
  const pod = podOf(before);
  // helm adds values to the defaults.
  const resources = { requests: { cpu: "1", memory: "128Mi" }, limits: { memory: "2Gi" } };
  const changed = { image: reference, imagePullPolicy: "Always", resources };
  const [init] = pod.initContainers as V1Container[];
  const [main] = pod.containers;
  const { volumes = [] } = pod;
  const metadata = { name: "edge-proxier" };
  const patch = {
    metadata,
    spec: {
      updateStrategy: { type: "OnDelete", rollingUpdate: null },
      template: {
        metadata: {
          annotations: { team: "network", "prometheus.io/scrape": "true", "prometheus.io/port": "9249" },
        },
        spec: {
          serviceAccountName: "edge-account",
          priorityClassName: "system-cluster-critical",
          imagePullSecrets: everything.imagePullSecrets,
          nodeSelector: { "nft-proxier.dev/canary": "true", pool: "edge" },
          affinity: everything.affinity,
          tolerations: everything.tolerations,
          initContainers: [{ ...init, ...changed }],
          containers: [
            {
              ...changed,
              name: "nft-proxier",
              ports: [{ name: "metrics", containerPort: 9249 }],
              command: [...(main.command ?? []), "--v=4", "--service-counters=endpoint"],
              env: [...(main.env ?? []), ...everything.extraEnv],
              volumeMounts: [...(main.volumeMounts ?? []), ...everything.extraVolumeMounts],
              lifecycle: everything.lifecycle,
              livenessProbe: everything.livenessProbe,
              readinessProbe: everything.readinessProbe,
            },
          ],
          volumes: [
            { name: "config", configMap: { name: "edge-proxier" } },
            ...volumes.slice(1),
            ...everything.extraVolumes,
          ],
        },
      },
    },
  };
  const config = {
    metadata,
    data: {
      "config.conf": stringify({
        ...(parse(filesOf(before)["config.conf"]) as object),
        clusterCIDR: "10.0.0.0/8,fd00:10:244::/56",
        detectLocalMode: "NodeCIDR",
        metricsBindAddress: "0.0.0.0:9249",
        ...everything.config,
      }),
      "kubeconfig.conf": filesOf(before)["kubeconfig.conf"].replace(
        "https://control-plane.example:6443",
        "https://[fd00::1]:443",
      ),
    },
  };
  const account = { name: "edge-account" };
  const patches: Readonly<Record<string, unknown>> = {
    DaemonSet: patch,
    ConfigMap: config,
    ServiceAccount: { metadata: account },
    ClusterRoleBinding: { metadata, subjects: [{ kind: "ServiceAccount", ...account, namespace: "kube-system" }] },
  };
  const podMonitor = {
    apiVersion: "monitoring.coreos.com/v1",
    kind: "PodMonitor",
    metadata: { ...metadata, namespace: "kube-system", labels: { release: "prometheus" } },
    spec: {
      selector: { matchLabels: { "k8s-app": "nft-proxier" } },
      podMetricsEndpoints: [
        {
          port: "metrics",
          interval: "30s",
          honorLabels: true,
          relabelings: [{ targetLabel: "job", replacement: "proxy" }],
        },
      ],
    },
  };
  const rule = {
    apiVersion: "monitoring.coreos.com/v1",
    kind: "PrometheusRule",
    metadata: podMonitor.metadata,
    spec: parse(monitoringFile("alerts.yaml")) as object,
  };
  const board = {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: {
      name: "edge-proxier-dashboard",
      namespace: "kube-system",
      labels: { board: "network", grafana_dashboard: "1" },
      annotations: { grafana_folder: "Network" },
    },
    data: { "nft-proxier.json": monitoringFile("dashboard.json") },
  };
  const expected = before.map((object) => patched(object, patches[object.kind] ?? {}) as KubeObject);
  expect(meaning(objects)).toEqual(meaning([...expected, podMonitor, rule, board]));

  expect(checkAgainst("V1DaemonSet", daemonSetOf(objects))).toEqual([]);
  expect(parseConfig(filesOf(objects)["config.conf"], "config.conf")).toMatchObject({
    warnings: [],
    config: { oomScoreAdj: -900 },
  });
});

test.each([
  ["image.pullPolicy=Allways", "/image/pullPolicy"],
  ["image.repository=REGISTRY/nft-proxier", "/image/repository"],
  ["image.digest=latest", "/image/digest"],
  ["imagePullSecrets={pull}", "/imagePullSecrets/0"],
  ["nameOverride=Edge", "/nameOverride"],
  ["serviceAccount.create=no", "/serviceAccount/create"],
  ["rbac.create=0", "/rbac/create"],
  ["takeover=both", "/takeover"],
  ["apiServer.host=", "/apiServer/host"],
  ["apiServer.host=https://control-plane.example", "/apiServer/host"],
  ["apiServer.port=65536", "/apiServer/port"],
  ["apiServer.kubeconfigSecret=edge", "/apiServer/host"],
  ["clusterCIDR.ipv4=", "/clusterCIDR/ipv4"],
  ["clusterCIDR.ipv4=10.244.0.0/33", "/clusterCIDR/ipv4"],
  ["clusterCIDR.ipv6=10.244.0.0/16", "/clusterCIDR/ipv6"],
  ["detectLocalMode=ClusterCidr", "/detectLocalMode"],
  ["config.mode=iptables", "/config/mode"],
  ["config.metricsBindAddress=0.0.0.0:10249", "/config/metricsBindAddress"],
  [kubeadm, "/apiServer/host"],
  ["verbosity=debug", "/verbosity"],
  ["extraArgs={own-table}", "/extraArgs/0"],
  ["extraEnv[0].name=NODE_NAME", "/extraEnv/0/name"],
  ["extraEnv[0].name=RETRIES,extraEnv[0].value=1", "/extraEnv/0/value"],
  ["extraVolumes[0].name=config", "/extraVolumes/0/name"],
  ["livenessProbe=none", "/livenessProbe"],
  ["metrics.podMonitor.enabled=true", "/metrics/bindAddress"],
  ["metrics.scrapeAnnotations=true", "/metrics/bindAddress"],
  ["metrics.podMonitor.interval=often", "/metrics/podMonitor/interval"],
  ["resources=none", "/resources"],
  ["tolerations=all", "/tolerations"],
  ["updateStrategy.maxUnavailable=0", "/updateStrategy/maxUnavailable"],
  ["updateStrategy.maxSurge=0", "/updateStrategy/maxSurge"],
  [
    "updateStrategy.maxSurge=1,metrics.podMonitor.enabled=true,metrics.bindAddress=0.0.0.0:10249",
    "/updateStrategy/maxSurge",
  ],
])("helm refuses %s, and names %s", (set, place) => {
  const args = ["template", "nft-proxier", chart, ...flags([image, ...required, set])];
  const { status, stderr } = spawnSync(helm(), args, { encoding: "utf8" });
  expect({ status, stderr }).toEqual({ status: 1, stderr: expect.stringContaining(`at '${place}': `) as string });
});

/** The keys of a values file, with those of nested maps: `metrics.podMonitor.enabled`. */
const keysOf = (values: object, isWanted = (_: unknown): boolean => true, prefix = ""): string[] =>
  Object.entries(values).flatMap(([key, value]: [string, unknown]) => [
    ...(isWanted(value) ? [prefix + key] : []),
    ...(isMap(value) ? keysOf(value, isWanted, `${prefix}${key}.`) : []),
  ]);

/** helm also drops the chart's own value of a key that has none, as in `podAnnotations:` with only comments below it. */
describe("a key without a value in the values file", () => {
  const defaults = parse(readFileSync(path.join(chart, "values.yaml"), "utf8")) as object;
  const required = [
    "image",
    "image.repository",
    "apiServer",
    "apiServer.host",
    "clusterCIDR",
    "clusterCIDR.ipv4",
    "livenessProbe.httpGet",
    "readinessProbe.httpGet",
  ];
  const smallest = {
    image: { repository: everything.image.repository },
    apiServer: { host: "control-plane.example" },
    clusterCIDR: { ipv4: "10.244.0.0/16" },
  };

  function template(base: object, key?: string): { readonly stdout: string; readonly stderr: string } {
    const empty = path.join(temporaryDirectory(), "empty.yaml");
    writeFileSync(empty, key?.split(".").reduceRight((inner, name) => `{ ${name}: ${inner} }`, "") ?? "");
    const args = ["template", "nft-proxier", chart, "--values", file(base), "--values", empty];
    return spawnSync(helm(), args, { encoding: "utf8" });
  }

  test("has its default, or leaves the pods' setting out", () => {
    const usual = objectsIn(template(smallest).stdout);
    for (const key of keysOf(defaults).filter((key) => !required.includes(key))) {
      const { stdout, stderr } = template(smallest, key);
      expect({ key, stderr }).toEqual({ key, stderr: "" });
      const objects = objectsIn(stdout);
      expect(checkAgainst("V1DaemonSet", daemonSetOf(objects)), key).toEqual([]);
      if (!/^(?:resources|priorityClassName|tolerations|livenessProbe|readinessProbe)\b/.test(key))
        expect(objects, key).toEqual(usual);
    }
  });

  test.each(required)("is refused by its name if it is %s", (key) => {
    const [last = "", ...parents] = key.split(".").toReversed();
    const place = parents.map((name) => `/${name}`).join("");
    expect(template(smallest, key).stderr).toContain(`at '${place}': missing property '${last}'`);
  });

  test("causes no error of a template beside other values", () => {
    for (const key of keysOf(everything, isMap)) {
      expect({ key, stderr: template(everything, key).stderr }).toEqual({
        key,
        stderr: expect.stringMatching(/^$|at '\S*': missing property '\w+'/) as string,
      });
    }
  });
});

describe("the files in examples/", () => {
  test("are ten needs, and README.md of the chart describes each", () => {
    const page = readFileSync(path.join(chart, "README.md"), "utf8");
    const rows = [...page.matchAll(/^\| \[([\w-]+\.yaml)\]\(examples\/\1\) \| (?:\w.{20,}) \|$/gm)];
    expect(rows.map(([, name]) => name)).toEqual(examples);
    expect(examples.length).toBe(10);
  });

  test.each(examples)("%s: helm accepts it, and Kubernetes' schemas have every field and type", async (name) => {
    const values = example(name.replace(".yaml", ""));
    expect(mustRun(helm(), ["lint", "--strict", chart, ...values])).toContain("0 chart(s) failed");
    const objects = rendered(...values);
    for (const object of objects) expect([object.kind, await schemaProblems(object)]).toEqual([object.kind, []]);
    expect(checkAgainst("V1DaemonSet", daemonSetOf(objects))).toEqual([]);
    const { "config.conf": config } = filesOf(objects);
    if (config !== undefined) expect(parseConfig(config, "config.conf").warnings).toEqual([]);
  });

  test("a wrong object would be noticed", async () => {
    const [daemonSet] = rendered(...example("kubeadm")).filter(({ kind }) => kind === "DaemonSet");
    const wrong = patched(daemonSet, { spec: { selector: null, minReadySeconds: "1" } }) as KubeObject;
    const problems = await schemaProblems(wrong);
    expect(problems.join()).toMatch(/selector/);
    expect((await schemaProblems({ ...daemonSet, apiVersion: "apps/v9" })).join()).toMatch(/no schema/);
  });
});

describe("two releases, for two pools of nodes", () => {
  const renderPools = (): readonly KubeObject[][] =>
    ["edge", "core"].map((pool) => release(`nft-proxier-${pool}`, ...example(`pool-${pool}`)));

  test("share no object, and no selector matches the other's pods", () => {
    const pools = renderPools();
    const names = pools.map((objects) => objects.map(({ kind, metadata }) => `${kind}/${metadata.name}`));
    expect(names[0]).toEqual(names[1].map((name) => name.replace("core", "edge")));
    expect(names[0].filter((name) => names[1].includes(name))).toEqual([]);
    const [edge, core] = pools.map((objects) => daemonSetOf(objects).spec);
    expect(edge?.template.metadata?.labels).toMatchObject(edge?.selector.matchLabels ?? {});
    expect(core?.template.metadata?.labels).not.toMatchObject(edge?.selector.matchLabels ?? {});
  });

  test("mount their own ConfigMaps, and have their own accounts", () => {
    const pools = renderPools();
    for (const [index, name] of ["nft-proxier-edge", "nft-proxier-core"].entries()) {
      const pod = podOf(pools[index]);
      expect([pod.serviceAccountName, pod.volumes?.[0].configMap?.name]).toEqual([name, name]);
    }
  });

  test("are named by a release whose name does not contain the chart's", () => {
    expect(daemonSetOf(release("edge", ...flags([image, ...required]))).metadata?.name).toBe("edge-nft-proxier");
  });
});

test("every object has the labels by which tools find the parts of a release", () => {
  const objects = rendered("--values", file({ ...everything, nameOverride: "", fullnameOverride: "" }));
  for (const { kind, metadata } of [...objects, daemonSetOf(objects).spec?.template as KubeObject]) {
    expect({ kind, labels: (metadata as { labels?: object }).labels }).toMatchObject({
      labels: { "app.kubernetes.io/name": "nft-proxier", "app.kubernetes.io/instance": "nft-proxier" },
    });
    if (kind !== undefined) {
      expect((metadata as { labels?: object }).labels).toMatchObject({
        "app.kubernetes.io/version": version,
        "app.kubernetes.io/managed-by": "Helm",
        "helm.sh/chart": `nft-proxier-${version}`,
      });
    }
  }
  // Commands in the documents select pods by this label.
  expect(daemonSetOf(objects).spec?.template.metadata?.labels).toMatchObject({ "k8s-app": "nft-proxier" });
});

test("without an account and a binding of its own, the pods use the account that exists", () => {
  const none = flags([image, ...required, "serviceAccount.create=false", "rbac.create=false"]);
  expect(rendered(...none).map(({ kind }) => kind)).toEqual(["ConfigMap", "DaemonSet"]);
  expect(podOf(rendered(...none)).serviceAccountName).toBe("default");
  expect(podOf(rendered(...none, "--set", "serviceAccount.name=proxier")).serviceAccountName).toBe("proxier");
});

test("a surge replaces maxUnavailable, because Kubernetes permits one of them", () => {
  const objects = rendered(...flags([image, ...required, "updateStrategy.maxSurge=1"]));
  expect(daemonSetOf(objects).spec?.updateStrategy?.rollingUpdate).toEqual({ maxSurge: 1, maxUnavailable: 0 });
});

test("helm refuses a value that does not exist", () => {
  const args = ["template", "nft-proxier", chart, ...flags([image, ...required, "toleration=x"])];
  expect(() => mustRun(helm(), args)).toThrow("additional properties 'toleration' not allowed");
});

test("all objects are in the release's namespace, and the role is bound to its account", () => {
  const objects = rendered(...flags([image, ...required]), "-n", "network");
  const text = JSON.stringify(meaning(base("kubernetes"))).replaceAll('"kube-system"', '"network"');
  expect(meaning(objects)).toEqual(JSON.parse(text));
});

test("daemon-set.md names the version of helm that runs here", () => {
  const [, tested] = /with helm (\d+):/.exec(pages) ?? [];
  expect(mustRun(helm(), ["version", "--short"])).toMatch(new RegExp(`^v${tested}\\.`));
});

test("the package of a release makes the same objects as the directory", () => {
  const archive = path.join(temporaryDirectory(), `nft-proxier-${version}.tgz`);
  packChart(root, archive, 1_700_000_000);
  const template = (from: string): string =>
    mustRun(helm(), ["template", "nft-proxier", from, "-n", "kube-system", ...example("monitoring")]);
  expect(template(archive)).toBe(template(chart));
});

test("helm lint finds nothing", () => {
  const args = ["lint", "--strict", chart, ...flags([image, ...required])];
  expect(mustRun(helm(), args)).toContain("1 chart(s) linted, 0 chart(s) failed");
});

describe("a pod of the chart", () => {
  const token = "token-of-the-account";
  let cluster: Cluster;
  let api: Api;

  beforeAll(async () => {
    cluster = await Cluster.create([{ name: "a", on: "node" }]);
    const tls = { hosts: ["control-plane.example"] };
    api = await Api.start(cluster.lab.remote, { host: PLAN.remoteNode.ip, port: 6443, tls, tokens: [token] });
    const service = serviceObjects(cluster.lab, { name: "web", n: 1, endpoints: ["a"] });
    await api.call("put", [nodeObject(), serviceCIDRObject(), ...service] as unknown as readonly KubeJson[]);
  });
  afterAll(() => cluster.destroy());

  /** Makes the pod with its files, and runs its init container. */
  async function create(args: readonly string[]): Promise<{ readonly pod: Pod; readonly main: V1Container }> {
    const objects = rendered(...flags([image]), ...args);
    const defaults = filesOf(rendered(...flags([image, ...required])));
    const kubeconfig = defaults["kubeconfig.conf"];
    const spec = podOf(objects);
    const pod = await Pod.create(
      {
        cluster,
        nodeName: NODE,
        configMaps: {
          "nft-proxier": args.includes(kubeadm) ? {} : filesOf(objects),
          edge: { "kubeconfig.conf": kubeconfig },
          "nft-proxier-kubeconfig": { "kubeconfig.conf": kubeconfig.replace(/^ *certificate-authority: .*\n/m, "") },
          "company-authorities": { "ca.crt": api.ca },
          "kube-proxy": {
            "config.conf": KUBEADM_137_CONFIG,
            "kubeconfig.conf": readFileSync(KUBEADM_KUBECONFIG_FILE, "utf8"),
          },
        },
        account: { "ca.crt": api.ca, token },
        hosts: `127.0.0.1 localhost\n${PLAN.remoteNode.ip} control-plane.example\n`,
      },
      spec,
    );
    for (const init of spec.initContainers ?? []) expect(await pod.run(init)).toMatchObject({ code: 0 });
    return { pod, main: spec.containers[0] };
  }

  /** Starts the pod as the kubelet does, and returns the answers of its probes and of the metrics port. */
  async function starts(args: readonly string[], metricsPort: number, ...expected: unknown[]): Promise<unknown[]> {
    const { pod, main } = await create(args);
    const running = pod.start(main);
    await eventually(async () => expect(await probe(cluster, main.readinessProbe ?? {})).toBe(200));
    const metrics = { httpGet: { path: "/metrics", port: metricsPort } };
    const answers = [await probe(cluster, main.livenessProbe ?? {}), await probe(cluster, metrics)];
    expect(await terminate(running)).toBe(0);
    const warnings = running.log().match(/^.*"level":"(?:warn|error)".*$/gm) ?? [];
    // The kubelet lowers the score of a real pod.
    expect(warnings.filter((line) => !line.includes("/proc/self/oom_score_adj"))).toEqual(expected);
    return answers;
  }

  test("starts with the smallest set of values, and keeps its metrics to the node", async () => {
    expect(await starts(flags(required), 10249)).toEqual([200, expect.stringContaining("ECONNREFUSED")]);
  });

  test("starts with a ConfigMap as kubeadm 1.37 writes it, with one warning about its mode", async () => {
    const warning = expect.stringContaining('"msg":"mode is iptables, but this program always uses nftables rules. ');
    const answers = await starts(flags([kubeadm]), 10249, warning);
    expect(answers).toEqual([200, expect.stringContaining("ECONNREFUSED")]);
  });

  test("starts with a kubeconfig in a Secret, metrics on all addresses, and further fields and flags", async () => {
    const { config, extraArgs, metrics, verbosity } = everything;
    const own = { config, extraArgs, metrics, verbosity, detectLocalMode: "NodeCIDR" };
    const values = { ...own, apiServer: { kubeconfigSecret: "edge" } };
    expect(await starts(["--values", file(values)], 9249)).toEqual([200, 200]);
  });

  test("starts with an API server whose authority is in a volume (examples/own-authority.yaml)", async () => {
    const answers = await starts(example("own-authority"), 10249);
    expect(answers).toEqual([200, expect.stringContaining("ECONNREFUSED")]);
  });

  test("takes over from the pod before it in a surge (examples/pool-core.yaml)", async () => {
    const args = [...example("pool-core"), "--set", "apiServer.host=control-plane.example"];
    const { pod: before, main } = await create(args);
    const { pod: after } = await create(args);
    const old = before.start(main);
    const answer = (): Promise<unknown> => probe(cluster, main.readinessProbe ?? {});
    await eventually(async () => expect(await answer()).toBe(200));
    const surge = after.start(main);
    await eventually(() => expect(surge.log()).toContain('"msg":"rules active"'));
    expect(await terminate(old)).toBe(0);
    await eventually(async () => expect(await answer()).toBe(200));
    expect(await terminate(surge)).toBe(0);
    const warnings = surge.log().match(/^.*"level":"(?:warn|error)".*$/gm) ?? [];
    expect(warnings.filter((line) => !/oom_score_adj|EADDRINUSE/.test(line))).toEqual([]);
  });
});

test.each([
  ["replace", required],
  ["canary", ["takeover=canary", kubeadm, "metrics.bindAddress=0.0.0.0:10249"]],
])("the notes for %s name what exists", (takeover, sets) => {
  const args = ["install", "nft-proxier", chart, "-n", "kube-system", "--dry-run=client", ...flags([image, ...sets])];
  const [, notes = ""] = mustRun(helm(), args).split("\nNOTES:\n");
  const pod = daemonSetOf(base("kubernetes"));
  expect(notes).toContain(takeover === "canary" ? "kubectl label node NODE nft-proxier.dev/canary=true" : "every node");
  expect(notes).toContain(`rollout status daemonset/${pod.metadata?.name}\n`);
  expect(notes).toContain("logs -l app.kubernetes.io/instance=nft-proxier ");
  const commands = notes.match(/^ {5}kubectl .*/gm) ?? [];
  expect(commands.length).toBe(takeover === "canary" ? 5 : 4);
  if (takeover === "canary") expect(commands[4]).toContain(" get configmap kube-proxy ");
  expect(commands.filter((line) => !/ -n kube-system | label node /.test(line))).toEqual([]);
});
