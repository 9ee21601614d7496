/** Objects that wait for the node, for how long, and events that end the program. */
import type { V1Node } from "@kubernetes/client-node";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { defaultConfig } from "../../../src/config/load.js";
import { type ProxyConfig } from "../../../src/config/proxy-config.js";
import type { KernelFamilies, NodeError } from "../../../src/node/kernel-families.js";
import { NodeGate } from "../../../src/node/node-gate.js";
import type { KubeObject } from "../../../src/objects/object-sink.js";
import { decoded, nodeRecord } from "../../support/decoded.js";
import type { NodeRecord } from "../../../src/objects/records.js";
import { keptIn } from "../../support/log.ts";

const NODE = "this-node";
const DUAL: KernelFamilies = { families: ["ip", "ip6"] };

/** Calls that passed the gate, in order. */
let passed: string[];
let logged: Record<string, unknown>[];
let fatal: NodeError[];
let gate: NodeGate;
let lastNode: NodeRecord | undefined;
/** Arguments of `onNode`. */
let told: NodeRecord[] = [];

function make(changes: Partial<ProxyConfig> = {}, { cluster = true, kernel = DUAL } = {}): void {
  passed = [];
  const describeObject = (object: KubeObject): string => `upsert ${object.kind} ${object.name}`;
  const sink = {
    upsert: (object: KubeObject) => {
      if (object.kind === "Node") lastNode = object.record;
      passed.push(describeObject(object));
    },
    remove: (kind: string, name: string) => void passed.push(`remove ${kind} ${name}`),
    synced: () => void passed.push("synced"),
    flush: () => void passed.push("flush"),
  };
  gate = new NodeGate(sink, {
    config: { ...defaultConfig(), clusterCIDRs: ["10.244.0.0/16"], ...changes },
    nodeName: NODE,
    kernel,
    cluster,
    log: keptIn(logged, "info"),
    onNode: (said) => void told.push(said),
    onFatal: (error) => void fatal.push(error),
  });
}

beforeEach(() => {
  vi.useFakeTimers();
  logged = [];
  fatal = [];
  lastNode = undefined;
  told = [];
});
afterEach(() => {
  gate.stop();
  vi.useRealTimers();
});

function node(addresses: readonly string[] = ["192.0.2.1"], podCIDRs?: string[], name = NODE): V1Node {
  return {
    metadata: { name },
    ...(podCIDRs && { spec: { podCIDR: podCIDRs[0], podCIDRs } }),
    status: { addresses: addresses.map((address) => ({ type: "InternalIP", address })) },
  };
}
/** Like a source: an object, then the end of its group. */
function put(object: V1Node): void {
  gate.upsert(decoded({ kind: "Node", object }));
  gate.flush();
}
function list(...nodes: V1Node[]): void {
  for (const object of nodes) gate.upsert(decoded({ kind: "Node", object }));
  gate.upsert(decoded({ kind: "Service", object: { metadata: { name: "web", namespace: "shop" } } }));
  gate.synced();
  gate.flush();
}
const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);
const messages = (level: string): unknown[] => logged.filter((line) => line["level"] === level).map(({ msg }) => msg);
const warnings = (): unknown[] => messages("warn");
const isOpen = (): boolean => passed.includes("synced");

describe("a Node with IPs in the first list", () => {
  it("delays nothing: every call is passed on, once and in order", async () => {
    make();
    list(node());
    gate.remove("Service", "shop/web");
    gate.flush();
    expect(passed).toEqual([
      "upsert Node this-node",
      "upsert Service shop/web",
      "synced",
      "flush",
      "remove Service shop/web",
      "flush",
    ]);
    await gate.opened;
    await pass(3_600_000);
    expect(passed).toHaveLength(6);
    expect([warnings(), fatal]).toEqual([[], []]);
  });

  it("is required only when the list is complete", () => {
    make();
    put(node());
    expect(passed).toEqual(["upsert Node this-node"]);
  });
});

describe("no Node, or one without IPs", () => {
  it("is awaited: only objects are passed on until the Node appears", async () => {
    make();
    list();
    gate.remove("Service", "shop/other");
    gate.flush();
    await pass(29_000);
    put(node([]));
    put(node(["192.0.2.1"], undefined, "another-node"));
    expect(isOpen()).toBe(false);
    expect(passed).not.toContain("flush");
    put(node());
    expect(passed.slice(-3)).toEqual(["upsert Node this-node", "synced", "flush"]);
    await pass(60_000);
    expect(passed.filter((call) => call === "synced" || call === "flush")).toEqual(["synced", "flush"]);
    expect(warnings()).toEqual([]);
  });

  it("is awaited for 30 s at most; then loopback is used as its IPs, with a warning", async () => {
    make();
    list(node([]));
    await pass(29_999);
    expect(isOpen()).toBe(false);
    await pass(1);
    expect(passed.slice(-2)).toEqual(["synced", "flush"]);
    expect(warnings()).toEqual(["node IP missing; using loopback"]);
    expect(fatal).toEqual([]);
    // The node appears after all: no reason to restart.
    put(node());
    expect(passed.slice(-2)).toEqual(["upsert Node this-node", "flush"]);
    expect(fatal).toEqual([]);
  });

  it("is awaited from the first list on, however long that took", async () => {
    make();
    await pass(3_600_000);
    list();
    await pass(29_999);
    expect(isOpen()).toBe(false);
  });

  it("does not matter with bindAddress, after the wait", async () => {
    make({ bindAddress: "192.0.2.1" });
    list();
    await pass(30_000);
    expect(isOpen()).toBe(true);
    expect(warnings()).toEqual([]);
  });

  it("is still awaited if the Node appears and is deleted again", async () => {
    make({ detectLocalMode: "NodeCIDR" });
    list(node());
    gate.remove("Node", NODE);
    expect(passed.at(-1)).toBe(`remove Node ${NODE}`);
    await pass(30_000 + 5 * 60_000);
    expect(fatal[0]?.message).toContain("the Node does not exist");
  });
});

describe("detectLocalMode NodeCIDR", () => {
  const mode = { detectLocalMode: "NodeCIDR" } as const;

  it("waits 5 minutes for podCIDRs, then fails fatally, and passes nothing on", async () => {
    make(mode);
    list(node());
    await pass(5 * 60_000 - 1);
    expect([isOpen(), fatal]).toEqual([false, []]);
    await pass(1);
    expect(fatal.map(({ code }) => code)).toEqual(["pod-cidrs-timeout"]);
    expect(fatal[0]?.message).toContain(NODE);
    const before = [...passed];
    put(node(["192.0.2.1"], ["10.244.1.0/24"]));
    gate.synced();
    gate.flush();
    gate.remove("Service", "shop/web");
    await pass(3_600_000);
    expect([passed, fatal.length]).toEqual([before, 1]);
  });

  it("continues when they appear, and the 5 minutes start when the IPs exist", async () => {
    make(mode);
    list();
    await pass(20_000);
    put(node());
    await pass(5 * 60_000 - 1);
    expect(isOpen()).toBe(false);
    put(node(["192.0.2.1"], ["10.244.1.0/24"]));
    expect(isOpen()).toBe(true);
    expect(fatal).toEqual([]);
  });

  it("does not wait for IPs longer than 30 s, either", async () => {
    make(mode);
    list(node([], ["10.244.1.0/24"]));
    await pass(30_000);
    expect(isOpen()).toBe(true);
  });

  it.each([
    ["others", ["10.244.2.0/24"]],
    ["more", ["10.244.1.0/24", "fd00:10:244:1::/64"]],
    ["none", []],
  ])("fails fatally if there are %s later, and the tables stay unchanged", (_, later) => {
    make(mode);
    list(node(["192.0.2.1"], ["10.244.1.0/24"]));
    put(node(["192.0.2.1"], ["10.244.1.0/24"]));
    expect(fatal).toEqual([]);
    const before = [...passed];
    put(node(["192.0.2.1"], later));
    expect(fatal.map(({ code }) => code)).toEqual(["pod-cidrs-changed"]);
    expect(fatal[0]?.message).toContain("10.244.1.0/24");
    expect(passed).toEqual(before);
  });

  it("fails fatally if podCIDRs have only the other family", () => {
    make(mode);
    list(node(["192.0.2.1"], ["fd00:10:244:1::/64"]));
    expect(fatal.map(({ code }) => code)).toEqual(["pod-cidrs"]);
    expect(isOpen()).toBe(false);
  });

  it("is not checked in other modes", async () => {
    make();
    list(node(["192.0.2.1"], ["10.244.1.0/24"]));
    put(node(["192.0.2.1"], ["10.244.2.0/24"]));
    expect([isOpen(), fatal]).toEqual([true, []]);
  });
});

describe("families", () => {
  const kernel: KernelFamilies = { families: ["ip"], noIPv6: "there is no /proc/net/if_inet6" };

  it("a primary family that the kernel lacks is fatal", () => {
    make({}, { kernel });
    list(node(["2001:db8::1", "192.0.2.1"]));
    expect(fatal.map(({ code }) => code)).toEqual(["primary-family"]);
    expect(isOpen()).toBe(false);
  });

  it("a mismatch is reported, and served", () => {
    make({ clusterCIDRs: ["fd00:10:244::/56"] });
    list(node());
    expect(warnings()).toEqual([expect.stringContaining("clusterCIDR has only IPv6")]);
    expect(isOpen()).toBe(true);
  });
});

describe("a Node that changes while it is served", () => {
  it("new IPs are used without a restart", () => {
    make();
    list(node());
    put(node(["192.0.2.7", "2001:db8::7"]));
    expect(passed.slice(-2)).toEqual(["upsert Node this-node", "flush"]);
    const moved = logged.find(({ msg }) => msg === "node IPs changed");
    expect(moved).toMatchObject({ was: ["192.0.2.1"], now: ["192.0.2.7", "2001:db8::7"] });
    expect(fatal).toEqual([]);
  });

  it("onNode receives the Node's data; another Node and the deletion cause no call", () => {
    make();
    const [first, bare] = [node(), node([])];
    list(first);
    put(node(["192.0.2.5"], undefined, "another-node"));
    put(bare);
    gate.remove("Node", NODE);
    expect(told).toEqual([nodeRecord(first), nodeRecord(bare)]);
  });

  it("IPs that disappear without new ones stay in use", () => {
    make();
    list(node());
    put({ ...node([]), metadata: { name: NODE, labels: { "topology.kubernetes.io/zone": "b" } } });
    expect(lastNode?.hostIPs).toEqual(["192.0.2.1"]);
    expect(lastNode?.zone).toBe("b");
    put(node(["192.0.2.9"]));
    expect(lastNode?.hostIPs).toEqual(["192.0.2.9"]);
  });

  it("a deleted Node keeps its last data, and one that returns without IPs has the last ones", () => {
    make();
    list(node());
    gate.remove("Node", NODE);
    gate.remove("Node", "another-node");
    expect(passed.filter((call) => call.startsWith("remove"))).toEqual(["remove Node another-node"]);
    expect(warnings()).toEqual(["Node object deleted; keeping its last state"]);
    put(node([]));
    expect(lastNode?.hostIPs).toHaveLength(1);
    expect(fatal).toEqual([]);
  });
});

describe("manifests", () => {
  const cluster = false;

  it("are not awaited: without a Node, or with an incomplete one, the start continues at once", () => {
    make({}, { cluster });
    list();
    expect(passed.slice(-2)).toEqual(["synced", "flush"]);
    expect(warnings()).toEqual([expect.stringContaining("loopback")]);
    make({ detectLocalMode: "NodeCIDR" }, { cluster });
    list(node([]));
    expect(passed.slice(-2)).toEqual(["synced", "flush"]);
  });

  it("are followed in every edit, like at a restart", () => {
    make({ detectLocalMode: "NodeCIDR" }, { cluster });
    list(node(["192.0.2.1"], ["10.244.1.0/24"]));
    put(node([], ["10.244.2.0/24"]));
    expect(lastNode?.hostIPs).toEqual([]);
    gate.remove("Node", NODE);
    expect(passed.at(-1)).toBe(`remove Node ${NODE}`);
    expect(fatal).toEqual([]);
  });

  it("objects that can never fit are also fatal", () => {
    make({ clusterCIDRs: ["fd00::/56"] }, { cluster, kernel: { families: ["ip"] } });
    list();
    expect(fatal.map(({ code }) => code)).toEqual(["cluster-cidr"]);
  });
});

it("stop ends all waiting", async () => {
  make();
  list();
  gate.stop();
  await pass(3_600_000);
  put(node());
  expect([isOpen(), fatal, passed.filter((call) => call === "flush")]).toEqual([false, [], []]);
});
