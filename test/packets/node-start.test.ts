/**
 * How the node decides what the program starts with, waits for and ends at. Runs in a namespace of its own, without
 * traffic.
 */
import type { ChildProcess } from "node:child_process";
import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

import { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import type { FaultEffect, KubeJson } from "../lab/api-server/api-server.ts";
import { type Finished, Namespace } from "../lab/namespace.ts";
import { PLAN } from "../lab/topology.ts";
import { Api } from "./support/api.ts";
import { programWords } from "./support/cluster.ts";
import {
  clusterAddress,
  configuration,
  type Manifest,
  NODE,
  nodeObject,
  serviceCIDRObject,
  serviceObject,
} from "./support/objects.ts";
import { someOf } from "../lab/length.ts";
import { longTest } from "../support/long.ts";
import { temporaryDirectory } from "../support/temporary-directory.ts";

let namespaces = 0;
let directory: string;
let namespace: Namespace;
let kernel: NftKernel;

beforeEach(async () => {
  directory = temporaryDirectory();
  namespace = await Namespace.create(`start-${process.pid}-${namespaces++}`);
  await namespace.ip(["link set lo up"]);
  kernel = await NftKernel.open({ netns: `/run/netns/${namespace.name}` });
});
afterEach(async () => {
  await kernel.close();
  await namespace.destroy();
});

/** Families of the existing tables. */
async function tables(): Promise<string[]> {
  return (await kernel.tables()).map(({ family, table }) => `${family} ${table}`).sort();
}
const BOTH = ["ip kube-proxy", "ip6 kube-proxy"];

async function write(name: string, content: unknown): Promise<string> {
  const file = join(directory, name);
  await writeFile(file, typeof content === "string" ? content : JSON.stringify(content));
  return file;
}

describe("manifests", () => {
  async function once(settings: Manifest, node: Manifest | undefined): Promise<Finished> {
    const config = await write("config.json", configuration(settings));
    const manifests = await mkdtemp(join(directory, "manifests-"));
    const items = [serviceObject({ name: "web", n: 1, endpoints: [] }), ...(node === undefined ? [] : [node])];
    await writeFile(join(manifests, "all.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    return namespace.run(programWords(["run", "--once", "--manifests", manifests, "--config", config]));
  }
  const withoutIPv6 = (): Promise<void> => namespace.sysctl({ "net.ipv6.conf.all.disable_ipv6": 1 });

  test("both families are served if the kernel has both, whatever the Node has, and also without a Node", async () => {
    const four = await once({}, nodeObject({ addresses: [PLAN.node.ip] }));
    expect([four.code, await tables()]).toEqual([0, BOTH]);
    const six = await once({}, nodeObject({ addresses: [PLAN.node.ip6] }));
    expect([six.code, await tables()]).toEqual([0, BOTH]);
    const none = await once({}, undefined);
    expect(none.code).toBe(0);
    expect(none.stderr).toContain("node IP missing; using loopback");
  });

  test("only IPv4 is served if IPv6 is disabled, and the log says why", async () => {
    await withoutIPv6();
    const done = await once({}, nodeObject());
    expect([done.code, await tables()]).toEqual([0, ["ip kube-proxy"]]);
    expect(done.stderr).toContain("net.ipv6.conf.all.disable_ipv6 is 1");
  });

  test.each([
    [
      "the primary family is disabled",
      {},
      { addresses: [PLAN.node.ip6, PLAN.node.ip] },
      "primary address family is IPv6",
    ],
    ["bindAddress has a disabled family", { bindAddress: PLAN.node.ip6 }, {}, "primary address family is IPv6"],
    ["clusterCIDR has only the other family", { clusterCIDR: PLAN.clusterCIDR.ip6 }, {}, "clusterCIDR has only IPv6"],
  ])("exits with 1 and the reason, and writes nothing, if %s", async (_, settings, node, reason) => {
    await withoutIPv6();
    const done = await once(settings, nodeObject(node));
    expect(done.code).toBe(1);
    expect(done.stderr).toContain(reason);
    expect(await tables()).toEqual([]);
  });

  test("exits with 1 if detectLocalMode NodeCIDR finds only podCIDRs of the other family", async () => {
    const spec = { podCIDRs: [PLAN.podCIDR.ip6] };
    const done = await once({ detectLocalMode: "NodeCIDR" }, { ...nodeObject(), spec });
    expect(done.code).toBe(1);
    expect(done.stderr).toContain(`podCIDRs have only IPv6: ${PLAN.podCIDR.ip6}`);
    expect(await tables()).toEqual([]);
  });
});

describe("a cluster", () => {
  let api: Api;
  let log: string;
  let daemon: ChildProcess;
  let ended: Promise<number | null>;

  async function start(settings: Manifest, ...objects: readonly Manifest[]): Promise<void> {
    api = await Api.start(namespace);
    await put(serviceObject({ name: "web", n: 1, endpoints: [] }), ...objects);
    await launch(settings);
  }
  async function launch(settings: Manifest): Promise<void> {
    const kubeconfig = await write("kubeconfig", api.kubeconfig);
    const config = await write("config.json", configuration({ ...settings, clientConnection: { kubeconfig } }));
    daemon = namespace.spawn(programWords(["--config", config]), { stdio: ["ignore", "ignore", "pipe"] });
    log = "";
    daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
    ended = new Promise((resolve) => daemon.once("exit", resolve));
  }
  const put = (...objects: readonly Manifest[]): Promise<void> =>
    api.call("put", objects as unknown as readonly KubeJson[]);
  const says = (text: string): Promise<void> => expect.poll(() => log, { message: text }).toContain(text);
  const written = (): Promise<void> => expect.poll(tables).toEqual(BOTH);
  const withPodCIDRs = (...podCIDRs: readonly string[]): Manifest => ({ ...nodeObject(), spec: { podCIDRs } });

  test("nothing is written before the Node exists and has IPs", async () => {
    await start({});
    await says('"missing":"addresses"');
    await put(nodeObject({ addresses: [] }));
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(await tables()).toEqual([]);
    await put(nodeObject());
    await written();
  });

  test("NodeCIDR: nothing is written before podCIDRs exist; a later change of them ends it with 1, and the tables stay", async () => {
    await start({ detectLocalMode: "NodeCIDR" }, withPodCIDRs());
    await says('"missing":"podCIDRs"');
    expect(await tables()).toEqual([]);
    await put(withPodCIDRs(PLAN.podCIDR.ip, PLAN.podCIDR.ip6));
    await written();
    expect(daemon.exitCode).toBe(null);
    await put(withPodCIDRs("10.244.9.0/24", PLAN.podCIDR.ip6));
    expect(await ended).toBe(1);
    expect(log).toContain(`from ${PLAN.podCIDR.ip}, ${PLAN.podCIDR.ip6} to 10.244.9.0/24, ${PLAN.podCIDR.ip6}`);
    expect(await tables()).toEqual(BOTH);
  });

  describe("the ServiceCIDR list", () => {
    const dropped = async (family: "ip" | "ip6"): Promise<string> => {
      const text = await namespace.mustRun(["nft", "list", "set", family, "kube-proxy", "service-cidrs"]);
      return /elements = \{ (.*) \}/.exec(text)?.[1] ?? "";
    };
    const expectActive = async (): Promise<void> => {
      await expect.poll(() => dropped("ip")).toBe(PLAN.serviceCIDR.ip);
      await expect.poll(() => dropped("ip6")).toBe(PLAN.serviceCIDR.ip6);
    };
    const stop = async (): Promise<void> => {
      daemon.kill("SIGTERM");
      expect(await ended).toBe(0);
    };

    const FAULTS: readonly [string, FaultEffect][] = [
      ["fails with 500", { status: 500 }],
      ["hangs", { hang: true }],
      ["is forbidden", { status: 403 }],
    ];
    test.each(someOf(FAULTS, 3))(
      "a list that %s does not delay the start; a restart keeps the active rules until it arrives",
      async (_, effect) => {
        api = await Api.start(namespace);
        await put(nodeObject(), serviceCIDRObject(), serviceObject({ name: "web", n: 1, endpoints: [] }));
        await api.call("fail", { resource: "servicecidrs" }, effect);
        await launch({});
        await written();
        expect(await dropped("ip")).toBe("");
        await api.call("mend");
        // Do not wait for the end of a hanging request or the long delay after 403.
        await stop();
        await launch({});
        await expectActive();
        await stop();
        await api.call("fail", { resource: "servicecidrs" }, effect);
        await put(serviceObject({ name: "more", n: 2, endpoints: [] }));
        await launch({});
        const clusterIPs = () => namespace.mustRun(["nft", "list", "set", "ip", "kube-proxy", "cluster-ips"]);
        await expect.poll(clusterIPs).toContain(clusterAddress(2).ip);
        await expectActive();
      },
    );

    test("a list that fails at first is served once it succeeds", async () => {
      api = await Api.start(namespace);
      await put(nodeObject(), serviceCIDRObject());
      await api.call("fail", { resource: "servicecidrs" }, { status: 500 });
      await launch({});
      await written();
      expect(await dropped("ip")).toBe("");
      await api.call("mend");
      await expectActive();
    });

    longTest("a list that the server does not support removes the rules that were active", async () => {
      await start({}, nodeObject(), serviceCIDRObject());
      await expectActive();
      await stop();
      await api.call("fail", { resource: "servicecidrs" }, { status: 404 });
      await launch({});
      await expect.poll(() => dropped("ip")).toBe("");
      await expect.poll(() => dropped("ip6")).toBe("");
    });
  });

  test("a field of the Node that cannot be read is logged once, and the rest of the Node is used", async () => {
    await namespace.ip([`addr add ${PLAN.node.ip}/32 dev lo`]);
    const addresses = [
      { type: "InternalIP", address: PLAN.node.ip },
      { type: "ExternalIP", address: "192.0.2.999" },
    ];
    const node = { ...nodeObject(), spec: { podCIDRs: ["10.244.0.0/99"] }, status: { addresses } };
    await start({}, node);
    await written();
    const nodePortIPs = () => namespace.mustRun(["nft", "list", "set", "ip", "kube-proxy", "nodeport-ips"]);
    expect(await nodePortIPs()).toContain(PLAN.node.ip);
    await put({ ...node, metadata: { name: NODE, labels: { later: "yes" } } });
    await put(nodeObject({ addresses: [PLAN.nodeSecond.ip] }));
    await says("node IPs changed");
    const lines = log.split("\n").filter((line) => line.includes('"msg":"ignored"'));
    expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { level: "warn", kind: "Node", object: NODE, field: "spec.podCIDRs[0]" },
      { level: "warn", kind: "Node", object: NODE, field: "status.addresses[1].address" },
    ]);
  });

  test("deleting the Node, or changing its IPs, ends nothing", async () => {
    await start({}, nodeObject());
    await written();
    await api.call("delete", "Node", "node-1");
    await says("Node object deleted; keeping its last state");
    await put(nodeObject({ addresses: [PLAN.nodeSecond.ip] }));
    await says("node IPs changed");
    expect(daemon.exitCode).toBe(null);
  });
});
