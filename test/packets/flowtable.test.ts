/** `--flowtable`: established connections to services bypass the rules, and nothing else about them changes. */
import { randomBytes } from "node:crypto";
import { release } from "node:os";
import type { ChildProcess } from "node:child_process";
import { pino } from "pino";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { loggerOptions } from "../../src/base/logger.ts";
import { Flowtable } from "../../src/flowtable/flowtable.ts";
import { createTable, FLOWTABLE_REF } from "../../src/flowtable/operations.ts";
import { NftKernel } from "../../src/nft/kernel/nft-kernel.ts";
import { eventually } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES } from "../lab/topology.ts";
import { isAtLeast } from "../support/kernel-facts.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterIP, type EndpointSpec, type Manifest, nodePort, type ServiceSpec } from "./support/objects.ts";
import { Tracked } from "./support/tracked.ts";
import {
  ECHO_PORT,
  type NamedConversation,
  allAnswer,
  closeConversations,
  converse,
  echoObjects,
  openConversation,
  say,
  startEchoServers,
} from "./support/echo.ts";

/**
 * Checks in the tests' own network namespace and rolls back. Not called for kernels for which the program uses no
 * flowtable.
 */
async function hasFlowtables(): Promise<boolean> {
  if (!isAtLeast(release(), [6, 4]) || isAtLeast(release(), [6, 14])) return false;
  const kernel = await NftKernel.open();
  try {
    await kernel.commit(createTable([]), { dryRun: true });
    return true;
  } catch {
    return false;
  } finally {
    await kernel.close();
  }
}
const supported = await hasFlowtables();

const OFFLOADED = 1 << 14;
/** More packets than a connection needs before it is offloaded. */
const WORDS = 12;
const INTERFACES = "eth0,eth1,pod*,cbr0";
const RESETS = { "nft-proxier.dev/reset-removed-endpoints": "true" };

let cluster: Cluster;
beforeAll(async () => {
  cluster = await Cluster.create([
    { name: "a", on: "node" },
    { name: "b", on: "node" },
    { name: "c", on: "node", link: "bridge" },
    { name: "r1", on: "remote" },
  ]);
  await startEchoServers(cluster, "a", "b", "c");
});
afterAll(() => cluster.destroy());
afterEach(closeConversations);

function chat(endpoints: ServiceSpec["endpoints"], annotations: Readonly<Record<string, string>> = RESETS): Manifest[] {
  const spec: ServiceSpec = { name: "chat", n: 1, endpoints, protocols: ["tcp"], metadata: { annotations } };
  return echoObjects(cluster.lab, spec);
}
const WAYS = [clusterIP, nodePort].map((way) => way({ name: "chat", n: 1, endpoints: [] }));

const connect = (sources = ["client", "b"], ways = WAYS) => converse(cluster, sources, ways);

async function talk(connections: readonly NamedConversation[]): Promise<void> {
  for (let i = 0; i < WORDS; i++)
    expect(await say(connections, `word ${i}`)).toEqual(allAnswer(connections, `word ${i}`));
}

const table = async (): Promise<string> =>
  (await cluster.node.run(["nft", "list", "table", FLOWTABLE_REF.family, FLOWTABLE_REF.table])).stdout;

const [where, because] = supported
  ? [describe, ""]
  : [describe.skip, ": skipped, as this kernel has no flowtables for it"];

where(`with a flowtable${because}`, () => {
  let tracked: Tracked;
  let kernel: NftKernel;
  let flowtable: Flowtable;
  const lines: string[] = [];
  beforeAll(async () => {
    tracked = await Tracked.start(cluster);
    kernel = await NftKernel.open({ netns: `/run/netns/${cluster.node.name}` });
    const log = pino(loggerOptions("warn"), { write: (line: string) => void lines.push(line) });
    const shared = { kernel, links: kernel.interfaces, log };
    flowtable = new Flowtable({ ...shared, interfaces: INTERFACES.split(","), checkIntervalMs: 200 });
    await flowtable.start();
  });
  afterAll(async () => {
    await flowtable.close();
    await kernel.close();
    await tracked.stop();
  });
  afterEach(async () => {
    await tracked.apply([]);
    await tracked.conntrack.idle();
    await tracked.table.deleteMatching({});
    expect(flowtable.failures()).toEqual([]);
    expect(lines.splice(0)).toEqual([]);
  });

  const apply = async (...args: Parameters<typeof chat>): Promise<void> => {
    await tracked.apply(chat(...args));
    await tracked.conntrack.idle();
  };
  const entries = async () => (await tracked.entries()).filter(({ original }) => original.protocol === 6);
  const offloaded = async () => (await entries()).filter(({ status }) => (status & OFFLOADED) !== 0);
  const connectOffloaded = async (...args: Parameters<typeof connect>): Promise<readonly NamedConversation[]> => {
    const connections = await connect(...args);
    await talk(connections);
    expect(await offloaded()).toHaveLength(connections.length);
    return connections;
  };

  test("nft prints it, with the existing interfaces", async () => {
    expect(flowtable.devices.toSorted()).toEqual(["cbr0", "eth0", "eth1", "pod0", "pod1", "pod2"]);
    const text = await table();
    expect(text).toContain("devices = { cbr0, eth0, eth1, pod0, pod1, pod2 }");
    expect(text).toMatch(/counter\n/);
    expect(text).toContain("ct packets > 20 flow add @services counter packets 0 bytes 0");
    expect(text).toContain("ct state established ct status dnat meta l4proto tcp goto incoming");
    expect(text).toContain('iifname "pod*" goto outgoing');
    expect(text).toContain('oifname "eth0" goto offload');
  });

  test.each(["a", "c"])("data of both directions arrives unchanged, and is counted: endpoint %s", async (pod) => {
    await apply([pod]);
    const connections = await connectOffloaded();
    const word = randomBytes(128 << 10).toString("hex");
    expect(await say(connections, word)).toEqual(allAnswer(connections, word));
    const found = await entries();
    expect(found).toHaveLength(connections.length);
    for (const { counters } of found) {
      expect(counters?.original.bytes).toBeGreaterThan(word.length);
      expect(counters?.reply.bytes).toBeGreaterThan(word.length);
    }
  });

  test("short connections, connections that use no service, and those over other interfaces are not offloaded", async () => {
    await apply(["a"]);
    const [first] = await connect(["client"], WAYS.slice(0, 1));
    await first.conversation.say("hello");
    expect(await entries()).not.toEqual([]);
    expect(await offloaded()).toEqual([]);
    const direct = await openConversation(cluster.lab.client, cluster.lab.pod("a").address.ip, ECHO_PORT);
    await talk([{ name: "direct", conversation: direct }]);
    await cluster.node.ip(["link set pod1 name other1"]);
    try {
      await talk(await connect(["b"], WAYS.slice(0, 1)));
      expect(await offloaded()).toEqual([]);
    } finally {
      await cluster.node.ip(["link set other1 name pod1"]);
    }
    await eventually(() => expect(flowtable.devices).toContain("pod1"));
  });

  test("a removed endpoint's connections are reset if the service requests it, whether or not another endpoint is left", async () => {
    for (const left of [["r1"], []]) {
      await apply(["a"]);
      const connections = await connectOffloaded();
      await apply(left);
      expect(await offloaded()).toEqual([]);
      expect(await say(connections, "after")).toEqual(allAnswer(connections, "ECONNRESET"));
    }
  });

  test("connections continue if the service does not request resets, or if their endpoint remains", async () => {
    await apply(["a"], {});
    const connections = await connectOffloaded();
    await apply(["r1"], {});
    expect(await say(connections, "still")).toEqual(allAnswer(connections, "still"));
    await apply([], {});
    expect(await say(connections, "still there")).toEqual(allAnswer(connections, "still there"));
    expect(await offloaded()).toHaveLength(connections.length);
  });

  test("connections to a terminating endpoint are reset when their drain time is over", async () => {
    const terminating: EndpointSpec = { pod: "a", ready: false, serving: true, terminating: true };
    const isDrained = async (seconds: number): Promise<boolean> => {
      const annotations = { "nft-proxier.dev/drain-seconds": String(seconds) };
      await apply(["a"], annotations);
      const connections = await connectOffloaded();
      const began = performance.now();
      await apply([terminating, "r1"], annotations);
      const still = await say(connections, "still");
      if (performance.now() > began + seconds * 1000) return false;
      expect(still).toEqual(allAnswer(connections, "still"));
      await eventually(async () => expect(await entries()).toEqual([]));
      expect(await say(connections, "after")).toEqual(allAnswer(connections, "ECONNRESET"));
      return true;
    };
    // A slow machine gets a longer drain time.
    for (let seconds = patience(2); !(await isDrained(seconds)); seconds *= 2) {
      closeConversations();
      await apply([]);
      await tracked.table.deleteMatching({});
    }
  });

  test("offloaded connections count for a service's limit until they are closed", async () => {
    await apply(["a"], { "nft-proxier.dev/max-connections": "1" });
    const [vip] = WAYS;
    for (const family of FAMILIES) {
      const { namespace } = cluster.source("client");
      const connectOne = () => openConversation(namespace, vip.address[family], vip.port);
      const first = await connectOne();
      await talk([{ name: family, conversation: first }]);
      await expect(connectOne()).rejects.toThrow("ECONNREFUSED");
      first.close();
      const second = await eventually(connectOne);
      await expect(connectOne()).rejects.toThrow("ECONNREFUSED");
      second.close();
    }
  });

  test("no write fails while interfaces are added and removed, and new ones are in the flowtable", async () => {
    await apply(["a"]);
    const connections = await connectOffloaded(["client"]);
    for (let i = 0; i < 20; i++) {
      await cluster.node.ip([`link add podnew${i % 3} type dummy`, `link set podnew${i % 3} up`]);
      await apply(i % 2 === 0 ? ["a", "b"] : ["a"]);
      if (i % 3 === 0) await eventually(() => expect(flowtable.devices).toContain("podnew0"));
      await cluster.node.ip([`link delete podnew${i % 3}`]);
    }
    await cluster.node.ip(["link add podlast type dummy"]);
    await eventually(async () => expect(await table()).toContain("podlast"));
    await cluster.node.ip(["link set podlast name podrenamed"]);
    await eventually(() => expect(flowtable.devices).toContain("podrenamed"));
    await cluster.node.ip(["link delete podrenamed"]);
    await eventually(() => expect(flowtable.devices).not.toContain("podrenamed"));
    expect(await table()).not.toMatch(/podnew|podlast|podrenamed/);
    expect(await say(connections, "still")).toEqual(allAnswer(connections, "still"));
    // The program may have logged a rejected link that disappeared while being added.
    lines.splice(0);
  });

  test("more interfaces than fit one message are accepted", async () => {
    const names = Array.from({ length: 600 }, (_, i) => `podmany${i}`);
    await cluster.node.ip(names.map((name) => `link add ${name} type dummy`));
    await eventually(() => expect(flowtable.devices).toHaveLength(6 + names.length));
    expect(await table()).toContain("podmany599");
    await cluster.node.ip(names.map((name) => `link delete ${name}`));
    await eventually(() => expect(flowtable.devices).toHaveLength(6));
    lines.splice(0);
  });

  test("a removal of interfaces by another process ends no connection", async () => {
    await apply(["a"]);
    const connections = await connectOffloaded(["client"]);
    const devices = ["eth1", "pod0"];
    const theirs = { ...FLOWTABLE_REF, kind: "flowtable", flowtable: "services", priority: 0 } as const;
    await kernel.commit([{ op: "delete", ...theirs, devices }]);
    await talk(connections);
    await kernel.commit([{ op: "add", ...theirs, flags: 2, devices }]);
    await talk(connections);
    expect(await offloaded()).toHaveLength(connections.length);
  });

  test("it is created again after another process removed it, and connections continue", async () => {
    await apply(["a"]);
    const connections = await connectOffloaded(["client"]);
    await cluster.node.mustRun(["nft", "delete", "table", FLOWTABLE_REF.family, FLOWTABLE_REF.table]);
    expect(await say(connections, "still")).toEqual(allAnswer(connections, "still"));
    await eventually(async () => expect(await table()).toContain("pod2"));
    await talk(connections);
    expect(await offloaded()).toHaveLength(connections.length);
    expect(lines.splice(0).join()).toContain("another process removed the flowtable");
  });
});

describe("the program", () => {
  let daemon: ChildProcess;
  let log = "";
  const begin = async (...flags: readonly string[]): Promise<void> => {
    log = "";
    daemon = cluster.start(["run", ...(await cluster.write(chat(["a"]))), ...flags]);
    daemon.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
    await eventually(() => expect(log).toContain('"msg":"rules active"'));
  };
  const end = async (): Promise<void> => {
    const ended = new Promise((resolve) => daemon.once("exit", resolve));
    daemon.kill("SIGTERM");
    expect(await ended).toBe(0);
  };

  test("leaves no trace without the flag, and removes the leftovers of an earlier run", async () => {
    if (supported) {
      await begin("--flowtable", INTERFACES);
      await eventually(async () => expect(await table()).toContain("pod2"));
      await talk(await connect(["client", "b"]));
      expect(await table()).toContain("flow add @services counter packets 8 ");
      const { code, stdout } = await cluster.command(["status"]);
      expect([code, stdout]).toEqual([0, expect.not.stringContaining("flowtable")]);
      await end();
      expect(await table()).toContain("pod2");
    } else {
      await cluster.node.mustRun(["nft", "add", "table", FLOWTABLE_REF.family, FLOWTABLE_REF.table]);
    }
    await begin();
    await eventually(async () => expect(await table()).toBe(""));
    await end();
  });

  test("removes it at cleanup", async () => {
    await cluster.node.mustRun(["nft", "add", "table", FLOWTABLE_REF.family, FLOWTABLE_REF.table]);
    expect((await cluster.command(["cleanup"])).code).toBe(0);
    expect(await table()).toBe("");
  });

  if (!supported)
    test("reports once that the kernel has no flowtables, and serves", async () => {
      await begin("--flowtable", INTERFACES);
      await eventually(() => expect(log).toContain("no flowtable; connections use the rules"));
      const connections = await connect(["client"]);
      await talk(connections);
      expect((await cluster.command(["status"])).stdout).toContain("no flowtable: ");
      await end();
      expect(log.match(/no flowtable/g)).toHaveLength(1);
      expect(await table()).toBe("");
    });
});
