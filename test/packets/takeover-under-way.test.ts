/**
 * Packets that are inside kube-proxy's rules at the moment at which ours replace them. They continue in the old rules, but each lookup uses
 * the current maps. If a lookup finds nothing, the packet keeps the service's address, and our rules at the next hooks reject it. The test
 * slows kube-proxy's rules down, so that each of many takeovers has packets inside them.
 */
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, expect, test } from "vitest";

import { defaultConfig } from "../../src/config/load.ts";
import { NftKernel } from "../../src/nft/kernel/nft-kernel.ts";
import { Proxier } from "../../src/proxier/proxier.ts";
import { clusterIPOf, makeService, makeSlice, podsOf } from "../bench/cluster.ts";
import {
  CLIENT,
  CLUSTER_CIDR,
  destroyRoad,
  ENDPOINTS,
  makeRoad,
  NODE_IP,
  type Road,
  serve,
  SERVICE_CIDR,
} from "../bench/road.ts";
import { buildHelper } from "../lab/build.ts";
import { eventually } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
import { FakeInterfaces } from "../fakes/fake-interfaces.ts";
import { decoded, putObjects } from "../support/decoded.ts";
import { SILENT } from "../support/log.ts";
import { atLength } from "../lab/length.ts";

/** When no maps or only named maps were kept, at least one in ten takeovers had a packet rejected, on 2 shared cores. */
const TAKEOVERS = atLength({ short: 5, usual: 20, nightly: 100 });
const SERVICES = 10;
/** Number of packets that must pass before each takeover. */
const FLOWING = 200;
/** Some 100 µs of each packet's way from the hook to the first lookup. */
const SLOW_RULES = 400;
const SLOW_RULE = "fib saddr type unicast fib saddr type unicast fib saddr type local counter";

let road: Road;
let kernel: NftKernel;
beforeAll(async () => {
  road = await makeRoad("under-way");
  kernel = await NftKernel.open({ netns: `/run/netns/${road.node.name}` });
  await road.node.sysctl({ "net.ipv4.icmp_ratemask": 0 });
  // Drop the packets after both programs' rules, before they become tracked connections, which would fill the table.
  await nft(
    "table ip sink { counter served { }; chain forward { type filter hook forward priority 50; counter name served drop; }; }",
  );
});
afterAll(async () => {
  await kernel.close();
  await destroyRoad(road);
});

function nft(input: string): Promise<string> {
  return road.node.mustRun(["nft", "-f", "-"], { input: `${input}\n` });
}

async function theirs(): Promise<void> {
  await serve(road, { by: "kube-proxy", services: SERVICES }, "UDP");
  await nft(`insert rule ip kube-proxy services ${SLOW_RULE}\n`.repeat(SLOW_RULES));
}

/** Takes over the table in one write. */
async function ours(): Promise<void> {
  const proxier = new Proxier({
    config: { ...defaultConfig(), bindAddress: NODE_IP, clusterCIDRs: [CLUSTER_CIDR] },
    nodeName: "node",
    families: ["ip"],
    kernel,
    log: SILENT,
    clock: { now: () => performance.now() },
    interfaces: new FakeInterfaces(),
  });
  const cidrs = { metadata: { name: "kubernetes" }, spec: { cidrs: [SERVICE_CIDR] } };
  proxier.upsert(decoded({ kind: "ServiceCIDR", object: cidrs }));
  for (let i = 0; i < SERVICES; i++) {
    putObjects(proxier, makeService(i, "UDP"), makeSlice(i, podsOf(i, ENDPOINTS), "UDP"));
  }
  proxier.synced();
  const { ok } = await proxier.sync();
  await proxier.stop();
  expect(ok).toBe(true);
}

/** Number of datagrams that an endpoint would have received. */
async function served(): Promise<number> {
  const text = await road.node.mustRun(["nft", "list", "counters", "table", "ip", "sink"]);
  return Number(/packets (\d+)/.exec(text)?.[1]);
}

/** Number of datagrams that this node's rules have rejected. */
async function rejected(): Promise<number> {
  const lines = (await road.node.mustRun(["cat", "/proc/net/snmp"])).split("\n");
  const [names, values] = lines.filter((line) => line.startsWith("Icmp: ")).map((line) => line.split(" "));
  return Number(values[names.indexOf("OutDestUnreachs")]);
}

const LIMIT = { timeout: patience(Math.max(180_000, TAKEOVERS * 30_000)) };
test("no connection is rejected, whichever of its lookups happens after the takeover", LIMIT, async () => {
  await theirs();
  const args = [CLIENT, clusterIPOf(0), String(SERVICES), "80"];
  const flood = road.client.spawn([buildHelper("flood"), ...args], { stdio: ["pipe", "pipe", "inherit"] });
  const said = text(flood.stdout!);
  const takeovers: number[] = [];
  for (let i = 0; i < TAKEOVERS; i++) {
    await theirs();
    // Packets are on their way through kube-proxy's rules, however late this machine runs the flood.
    const servedBefore = await served();
    await eventually(async () => expect(await served()).toBeGreaterThan(servedBefore + FLOWING));
    const before = await rejected();
    await ours();
    takeovers.push((await rejected()) - before);
  }
  const exit = once(flood, "exit");
  flood.stdin!.end();
  expect(await exit).toEqual([0, null]);
  console.log(`${TAKEOVERS} takeovers; ${(await said).trim()} new connections, ${await served()} served`);
  expect(takeovers).toEqual(takeovers.map(() => 0));
});
