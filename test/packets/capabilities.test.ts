/**
 * The pods in deploy/ have enough rights: only their capabilities, and nothing writable. Features that need more are
 * logged, and do not stop the rest from working.
 */
import type { V1DaemonSet } from "@kubernetes/client-node";
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { parse } from "yaml";

import { Cluster } from "./support/cluster.ts";
import { clusterIP, nodePort, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { checkRow } from "./support/rows.ts";

const daemonSet = parse(
  readFileSync(new URL("../../deploy/kubernetes/daemon-set.yaml", import.meta.url), "utf8"),
) as V1DaemonSet;
const { capabilities, readOnlyRootFilesystem } = daemonSet.spec?.template.spec?.containers[0].securityContext ?? {};

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const sticky: ServiceSpec = { name: "sticky", n: 2, endpoints: ["a"], affinitySeconds: 60 };

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create();
});
afterAll(async () => {
  await cluster.destroy();
});

/** The command that starts a program as root in a container with these capabilities and a read-only file system. */
function container(): readonly string[] {
  const bounding = ["-all", ...(capabilities?.add ?? []).map((name) => `+${name.toLowerCase()}`)].join(",");
  const rights = ["setpriv", `--bounding-set=${bounding}`, "--inh-caps=-all", "--no-new-privs"];
  const script = 'mount -o remount,bind,ro / && exec "$@"';
  return ["unshare", "--mount", "sh", "-c", script, "sh", ...rights];
}

test("the container has the capabilities of its manifest", async () => {
  expect([capabilities?.drop, capabilities?.add, readOnlyRootFilesystem]).toEqual([["ALL"], ["NET_ADMIN"], true]);
  const { node } = cluster.lab;
  const CAP_NET_ADMIN = 12;
  const status = await node.mustRun([...container(), "grep", "^CapEff:", "/proc/self/status"]);
  expect(BigInt(`0x${status.split(/\s+/)[1]}`)).toBe(1n << BigInt(CAP_NET_ADMIN));
  expect((await node.run([...container(), "touch", "/somewhere"])).stderr).toContain("Read-only file system");
});

test("preflight inspects the node in the container, and tries the rules", async () => {
  const objects = [web, sticky].flatMap((service) => serviceObjects(cluster.lab, service));
  const { code, stdout } = await cluster.commandThrough(container(), ["preflight", ...(await cluster.write(objects))]);
  expect({ code, stdout }).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/no obstacles|\(not checked: rules\)/) as string,
  });
  expect(stdout).toMatch(/accepts the rules with the cluster's services|the rules were not tried/);
});

test("the program serves in the container", async () => {
  const objects = [web, sticky].flatMap((service) => serviceObjects(cluster.lab, service));
  const done = await cluster.commandThrough(container(), ["run", ...(await cluster.write(objects)), "--once"]);
  expect(done).toMatchObject({ code: 0 });
  const wrong = await Promise.all([
    checkRow(cluster, { rule: "", from: "b", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: false } }),
    checkRow(cluster, { rule: "", from: "client", to: nodePort(sticky), expect: { pods: ["a"], masq: true } }),
  ]);
  expect(wrong.flat()).toEqual([]);
});

test("cleanup works in the container", async () => {
  await cluster.apply(serviceObjects(cluster.lab, web));
  expect(await cluster.commandThrough(container(), ["cleanup"])).toMatchObject({ code: 0 });
  expect(await cluster.lab.node.mustRun(["nft", "list", "tables"])).not.toContain("kube-proxy");
});
