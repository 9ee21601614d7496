/**
 * The quick start for kind in README.md, as far as it runs without containers. kind writes the cluster's configuration
 * for a docker that only records it. helm renders the chart for that cluster.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { parseConfig } from "../../src/config/load.ts";
import { mustRun } from "../lab/debian.ts";
import { temporaryDirectory } from "../support/temporary-directory.ts";
import { HAS_HELM, helm, kind } from "./helm.ts";

const root = path.resolve(import.meta.dirname, "../..");
const readme = readFileSync(path.join(root, "README.md"), "utf8");
const [block = ""] = readme.match(/^ {4}docker build .*(?:\n {4}.*)+/m) ?? [];
const commands = block
  .replaceAll(/ \\\n +/g, " ")
  .split("\n")
  .map((line) => line.trim().split(/ +/));

/** Answers as docker does while kind makes the nodes, up to the start of kubeadm. */
const DOCKER = `#!/bin/sh
here=$(dirname "$0")
case "$*" in
info*) echo '{}' ;;
run*) touch "$here/started" ;;
ps*) [ ! -e "$here/started" ] || printf 'kind-control-plane\\nkind-worker\\n' ;;
*kind.role*worker) echo worker ;;
*kind.role*) echo control-plane ;;
*IPAddress*) echo 10.0.0.1,fd00::1 ;;
logs*) echo 'Reached target Multi-User System' ;;
*"cat /kind/version") echo v1.36.0 ;;
*"-i kind-control-plane cp /dev/stdin /kind/kubeadm.conf") cat > "$here/kubeadm.conf" ;;
*"kubeadm init"*) exit 1 ;;
esac
`;

type Documents = readonly Readonly<Record<string, unknown>>[];

/** Returns kubeadm's configuration in the cluster that the command makes. */
function kubeadmConfig(args: readonly string[]): Documents {
  const directory = temporaryDirectory();
  writeFileSync(path.join(directory, "docker"), DOCKER, { mode: 0o755 });
  const home = path.join(directory, "home");
  mkdirSync(home);
  const env = { PATH: `${directory}:${process.env["PATH"]}`, HOME: home };
  const { stderr } = spawnSync(kind(), args, { cwd: root, env, encoding: "utf8" });
  expect(stderr).toContain("failed to init node with kubeadm");
  const text = readFileSync(path.join(directory, "kubeadm.conf"), "utf8");
  return parseAllDocuments(text).map((document) => document.toJS() as Documents[number]);
}

const argsOf = (...start: readonly string[]): readonly string[] =>
  commands.find((words) => start.every((word, index) => words[index] === word))?.slice(1) ?? [];

test("README.md's quick start for kind has at most 10 lines", () => {
  expect(block.split("\n").length).toBeLessThanOrEqual(10);
  expect(commands.map(([program]) => program)).toEqual(["docker", "kind", "kind", "helm", "kubectl", "kubectl"]);
});

test.skipIf(!HAS_HELM)("the image that is built is the one that is loaded and started", () => {
  const build = argsOf("docker", "build");
  const image = build[build.indexOf("-t") + 1];
  expect(existsSync(path.join(root, build[build.indexOf("-f") + 1]))).toBe(true);
  expect(build.at(-1)).toBe(".");
  expect(argsOf("kind", "load")).toEqual(["load", "docker-image", image]);
  const [, ...install] = argsOf("helm", "install");
  const text = mustRun(helm(), ["template", ...install], { cwd: root });
  expect(new Set(text.match(/(?<= image: ).*/g))).toEqual(new Set([image]));
  // Kubernetes pulls an image with the tag "latest", or with this policy, from a registry.
  expect(text).not.toMatch(/:latest|imagePullPolicy/);
});

test.skipIf(!HAS_HELM)("the cluster has no kube-proxy, and the chart has its API server and pod network", () => {
  const [cluster, init] = kubeadmConfig(argsOf("kind", "create"));
  expect(init["skipPhases"]).toContain("addon/kube-proxy");
  const [, ...install] = argsOf("helm", "install");
  const text = mustRun(helm(), ["template", ...install], { cwd: root });
  const objects = parseAllDocuments(text).map(
    (document) => document.toJS() as { kind: string; data: Documents[number] },
  );
  const files = objects.find((object) => object.kind === "ConfigMap")?.data as Readonly<Record<string, string>>;
  expect(parse(files["kubeconfig.conf"])).toMatchObject({
    clusters: [{ cluster: { server: `https://${String(cluster["controlPlaneEndpoint"])}` } }],
  });
  const { podSubnet } = cluster["networking"] as { readonly podSubnet: string };
  expect(parse(files["config.conf"])).toMatchObject({ clusterCIDR: podSubnet });
  const { config, warnings } = parseConfig(files["config.conf"], "config.conf");
  // Nodes of kind share the host's connection tracking table, so its size stays.
  expect([warnings, config.conntrack.maxPerCore]).toEqual([[], 0]);
});
