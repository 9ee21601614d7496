/**
 * The manifests in deploy/, and the commands of its documents, start this version: each container runs with the command
 * line, files and rights that it has there. Only the API server and the image differ.
 */
import type { V1Container, V1DaemonSet, V1Job, V1PodSpec, V1Probe } from "@kubernetes/client-node";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import type { KubeJson } from "../lab/api-server/api-server.ts";
import { eventually } from "../lab/eventually.ts";
import { PLAN } from "../lab/topology.ts";
import { deployPages } from "../support/deploy-pages.ts";
import { kustomize, type KubeObject, patched } from "../support/kustomize.ts";
import {
  KUBEADM_137_CONFIG,
  KUBEADM_CONFIG,
  KUBEADM_DAEMON_SET,
  KUBEADM_KUBECONFIG_FILE,
} from "../unit/config/kubeadm.ts";
import { Api } from "./support/api.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterIP, NODE, nodeObject, serviceCIDRObject, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { Pod, type PodWorld, probe, terminate } from "./support/pod.ts";
import { checkRow, type Row } from "./support/rows.ts";

const DEPLOY = join(import.meta.dirname, "../../deploy");
const pages = deployPages();
const job = parse(readFileSync(join(DEPLOY, "preflight/job.yaml"), "utf8")) as V1Job;
const jobSpec = job.spec?.template.spec as V1PodSpec;

/** The server of kubeadm's kubeconfig in the tests, and of deploy/kubernetes. */
const CONTROL_PLANE = "control-plane.example";
const TOKEN = "token-of-the-account";
const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };

type Built = V1DaemonSet & KubeObject;

let cluster: Cluster;
let api: Api;
let world: PodWorld;
beforeAll(async () => {
  cluster = await Cluster.create([
    { name: "a", on: "node" },
    { name: "b", on: "node" },
  ]);
  api = await Api.start(cluster.lab.remote, {
    host: PLAN.remoteNode.ip,
    port: 6443,
    tls: { hosts: [CONTROL_PLANE] },
    tokens: [TOKEN],
  });
  const objects = [nodeObject(), serviceCIDRObject(), ...serviceObjects(cluster.lab, web)];
  await api.call("put", objects as unknown as readonly KubeJson[]);
  world = {
    cluster,
    nodeName: NODE,
    configMaps: {
      "kube-proxy": {
        "config.conf": KUBEADM_CONFIG,
        "kubeconfig.conf": readFileSync(KUBEADM_KUBECONFIG_FILE, "utf8"),
      },
    },
    account: { "ca.crt": api.ca, token: TOKEN },
    hosts: `127.0.0.1 localhost\n${PLAN.remoteNode.ip} ${CONTROL_PLANE}\n`,
  };
});
afterAll(() => cluster.destroy());

interface Deployed {
  readonly spec: V1PodSpec;
  readonly main: V1Container;
  readonly pod: Pod;
}

async function deployed(daemonSet: Built, changes: Partial<PodWorld> = {}): Promise<Deployed> {
  const spec = daemonSet.spec?.template.spec as V1PodSpec;
  return { spec, main: spec.containers[0], pod: await Pod.create({ ...world, ...changes }, spec) };
}

/** The DaemonSet of a kustomization, together with its ConfigMap if it has one. */
async function fromKustomization(name: string, changes: Partial<PodWorld> = {}): Promise<Deployed> {
  const objects = kustomize(join(DEPLOY, name));
  const maps = objects.filter(({ kind }) => kind === "ConfigMap") as (KubeObject & { data: Record<string, string> })[];
  const daemonSet = objects.find(({ kind }) => kind === "DaemonSet") as Built;
  const configMaps = Object.fromEntries(maps.map(({ metadata, data }) => [metadata.name, data]));
  return deployed(daemonSet, { ...changes, configMaps: { ...world.configMaps, ...configMaps } });
}

type Exec = (command: readonly string[]) => ReturnType<Pod["exec"]>;

/**
 * Runs the pod as the kubelet does: init containers, the container until its probes succeed, the hook before the end, SIGTERM.
 * Returns the log.
 */
async function lives({ spec, main, pod }: Deployed, meanwhile?: (exec: Exec) => Promise<void>): Promise<string> {
  let log = "";
  for (const init of spec.initContainers ?? []) {
    const { code, stderr } = await pod.run(init);
    expect({ code, stderr }).toMatchObject({ code: 0 });
    log += stderr;
  }
  const running = pod.start(main);
  // kubeadm's DaemonSet has none.
  const probes = [main.readinessProbe, main.livenessProbe].filter((one) => one !== undefined);
  for (const one of probes.length > 0 ? probes : [{ httpGet: { path: "/healthz", port: 10256 } }]) {
    await eventually(async () => expect([await probe(cluster, one), running.log()]).toEqual([200, running.log()]));
  }
  const row: Row = { rule: "", from: "b", to: clusterIP(web), expect: { pods: ["a"], masq: false } };
  expect(await checkRow(cluster, row)).toEqual([]);
  const exec: Exec = (command) => pod.exec(running, main, command);
  await meanwhile?.(exec);
  const hook = main.lifecycle?.preStop?.exec?.command;
  if (hook !== undefined) expect(await exec(hook)).toMatchObject({ code: 0 });
  expect(await terminate(running)).toBe(0);
  return log + running.log();
}

/** Expects the log that the documents describe: one line `rules active`, and nothing else that its command selects. */
function expectQuiet(log: string): void {
  const [, pattern = ""] = /logs -l k8s-app=nft-proxier .* grep -E '(.*)'/.exec(pages) ?? [];
  const lines = log.split("\n").filter((line) => new RegExp(pattern).test(line));
  // The kubelet lowers the score of a real pod.
  const messages = lines.filter((line) => !line.includes('"file":"/proc/self/oom_score_adj"'));
  expect(messages).toEqual([expect.stringContaining('"msg":"rules active"')]);
}

describe("the manifests", () => {
  test.each(["kubernetes", "kubeadm"])("%s: the pod serves, logs no warning, and exits with 0", async (name) => {
    expectQuiet(await lives(await fromKustomization(name)));
  });

  describe("kubernetes: a restart would not help, so the liveness probe succeeds", () => {
    const expectProbes = (probes: readonly (V1Probe | undefined)[], answers: readonly number[]): Promise<void> =>
      eventually(async () => {
        expect(await Promise.all(probes.map((one = {}) => probe(cluster, one)))).toEqual(answers);
      });

    test("while no API server answers, and the pod is not ready", async () => {
      const { main, pod } = await fromKustomization("kubernetes", { hosts: `127.0.0.1 localhost ${CONTROL_PLANE}\n` });
      const running = pod.start(main);
      await expectProbes([main.livenessProbe, main.readinessProbe], [200, 503]);
      expect(await terminate(running)).toBe(0);
    });

    test("while load balancers should not send traffic to the node", async () => {
      const taint = { key: "ToBeDeletedByClusterAutoscaler", effect: "NoSchedule" };
      const node = nodeObject() as unknown as KubeJson & { spec: object };
      await api.call("put", [{ ...node, spec: { ...node.spec, taints: [taint] } }]);
      try {
        const { main, pod } = await fromKustomization("kubernetes");
        const running = pod.start(main);
        const forLoadBalancers = { httpGet: { path: "/healthz", port: 10256 } };
        await expectProbes([main.livenessProbe, main.readinessProbe, forLoadBalancers], [200, 200, 503]);
        expect(await terminate(running)).toBe(0);
      } finally {
        await api.call("put", [node]);
      }
    });
  });

  test("preflight: the job finds no problems, and exits with 0", async () => {
    const pod = await Pod.create(world, jobSpec);
    const done = await pod.run(jobSpec.containers[0]);
    const end = expect.stringMatching(/: 0 problems, .*\n$/) as string;
    expect(done).toMatchObject({ code: 0, stdout: end, stderr: "" });
    expect(done.stdout).toContain(`${NODE}: `);
  });

  test("a misspelled flag in any of them is noticed", async () => {
    const { spec, pod } = await fromKustomization("kubernetes");
    const containers = [...(spec.initContainers ?? []), ...spec.containers].map((container) => ({ container, pod }));
    const preflight = { container: jobSpec.containers[0], pod: await Pod.create(world, jobSpec) };
    const wrong = [...containers, preflight].flatMap(({ container, pod }) => misspelled(container, pod));
    expect(wrong.length).toBe(7);
    const ends = await Promise.all(wrong.map(({ container, pod }) => pod.run(container)));
    for (const { code, stderr } of ends) {
      expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining("unknown option") as string });
    }
  });
});

/** Copies of the container, each without the last letter of one flag. */
function misspelled(container: V1Container, pod: Pod): { readonly container: V1Container; readonly pod: Pod }[] {
  const command = container.command ?? [];
  const flags = command.filter((word) => word.startsWith("--"));
  return flags.map((flag) => {
    const wrong = flag.replace(/[a-z](?=$|=)/, "");
    return { container: { ...container, command: command.map((word) => (word === flag ? wrong : word)) }, pod };
  });
}

describe("a ConfigMap as kubeadm 1.37 writes it", () => {
  const later = { "config.conf": KUBEADM_137_CONFIG, "kubeconfig.conf": readFileSync(KUBEADM_KUBECONFIG_FILE, "utf8") };
  const daemonSets = [
    ["kubeadm's DaemonSet with only another image", () => KUBEADM_DAEMON_SET],
    ["deploy/kubeadm", () => kustomize(join(DEPLOY, "kubeadm")).find(({ kind }) => kind === "DaemonSet") as Built],
  ] as const;

  test.each(daemonSets)(
    "%s: the pod serves with nftables, and logs one warning with the differences",
    async (_, make) => {
      const pod = await deployed(make(), { configMaps: { "kube-proxy": later } });
      let mode: unknown;
      const log = await lives(pod, async (exec) => {
        const script = "fetch('http://127.0.0.1:10249/proxyMode').then((r) => r.text()).then(console.log)";
        mode = (await cluster.node.mustRun([process.execPath, "-e", script])).trim();
        expect(await exec(["nft-proxier", "status"])).toMatchObject({ code: 0 });
      });
      expect(mode).toBe("nftables");
      const warnings = log
        .split("\n")
        .filter((line) => /"level":"(warn|error)"/.test(line) && !line.includes("oom_score_adj"));
      const messages = warnings.map((line) => (JSON.parse(line) as { readonly msg: string }).msg);
      const about = /^mode is iptables, but this program always uses nftables rules\. Node ports .* 127\.0\.0\.1 /;
      // The init container reads the same file.
      expect(messages.length).toBe(1 + (pod.spec.initContainers?.length ?? 0));
      for (const message of messages) expect(message).toMatch(about);
    },
  );
});

describe("the documents", () => {
  /** Patches that change how a container starts, with the DaemonSet that each changes and the fields that it sets. */
  const patches = [...pages.matchAll(/ patch daemonset (\S+) -p '(.*"containers".*)'$/gm)].map(
    ([, name = "", json = ""]) => {
      const patch = JSON.parse(json) as V1DaemonSet;
      return [name, Object.keys(patch.spec?.template.spec?.containers[0] ?? {}).join(", "), patch] as const;
    },
  );

  test.each(patches)("%s serves with a patch of %s, and exits with 0", async (name, _fields, patch) => {
    const objects = [KUBEADM_DAEMON_SET, ...kustomize(join(DEPLOY, "kubeadm"))];
    const daemonSet = objects.find(({ kind, metadata }) => kind === "DaemonSet" && metadata.name === name);
    expectQuiet(await lives(await deployed(patched(daemonSet as Built, patch) as Built)));
  });

  /** Commands of the program, in code blocks and in the text. Some options of `handover` stand without the program's name. */
  const code = [...pages.matchAll(/`([^`\n]+)`|^ {4,}(\S.*)$/gm)].map(([, span, line = ""]) => span ?? line);
  const command = /(?:^|exec POD -- )((?:\S*\/)?(?:nft-proxier|kube-proxy) (?:--)?[a-z].*|handover --.*)$/;
  const texts = code.flatMap((text) => command.exec(text)?.[1] ?? []);
  const commands = [...new Set(texts)].map((text) =>
    text
      .replace(/^handover/, "nft-proxier handover")
      .replace("/path/to/", "/var/lib/kube-proxy/")
      .split(" "),
  );
  const cleanup = commands.filter((words) => words.some((word) => word.endsWith("cleanup")));

  test("its commands work in a running pod, and cleanup after its end", async () => {
    const { spec, main, pod } = await fromKustomization("kubeadm");
    const others = commands.filter((words) => !cleanup.includes(words));
    expect(new Set(others.map((words) => words[1]))).toEqual(
      new Set(["--version", "preflight", "status", "services", "handover"]),
    );
    await lives({ spec, main, pod }, async (exec) => {
      for (const words of others)
        expect([words, await exec(words)]).toEqual([words, expect.objectContaining({ code: 0 })]);
    });
    expect(cleanup.length).toBeGreaterThan(1);
    for (const [name = "", ...words] of cleanup) {
      const container = { ...main, command: [`/usr/local/bin/${name}`, ...words] };
      expect([words, await pod.run(container)]).toEqual([words, expect.objectContaining({ code: 0 })]);
    }
    expect(await cluster.node.mustRun(["nft", "list", "tables"])).toBe("");
  });
});
