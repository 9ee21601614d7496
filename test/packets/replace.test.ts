/**
 * Elements that are replaced while packets look them up.
 *
 * Before Linux 6.17, a lookup may find neither the old nor the new element of a key that a commit on another processor replaces. It has
 * read the old generation, but the old element is already unlinked. The next lookup finds the new one. Stable releases have the fix, too
 * ("netfilter: nf_tables: restart set lookup on base_seq change").
 */
import type { ChildProcess } from "node:child_process";
import { afterAll, beforeAll, expect, test } from "vitest";
import { defaultConfig } from "../../src/config/load.js";
import { CmpOp, Hook } from "../../src/nft/kernel/constants.js";
import { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import type { Expr, Op } from "../../src/nft/kernel/kernel.js";
import { Proxier } from "../../src/proxier/proxier.js";
import { type ApiObject, decoded } from "../support/decoded.js";
import {
  addressMap,
  daddr,
  ip,
  jump,
  lookup,
  newChain,
  newElements,
  newRule,
  newSet,
  newTable,
  noElements,
  noTable,
  T,
  verdict,
} from "../support/operations.ts";
import { patience } from "../lab/patience.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterIP,
  loadBalancer,
  type Manifest,
  nodeObject,
  nodePort,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { underLoad } from "./support/load.ts";
import { SILENT } from "../support/log.ts";

const SECONDS = Number(process.env["REPLACE_SECONDS"] ?? 3);

let cluster: Cluster;
let kernel: NftKernel;
beforeAll(async () => {
  cluster = await Cluster.create();
  kernel = await NftKernel.open({ netns: `/run/netns/${cluster.node.name}` });
});
afterAll(async () => {
  await kernel.close();
  await cluster.destroy();
});

/** Calls `change` with 0, 1, 2, … until the time is over. Returns the number of calls. */
async function again(change: (n: number) => Promise<unknown>): Promise<number> {
  const end = performance.now() + patience(SECONDS * 1000);
  let n = 0;
  while (performance.now() < end) await change(n++);
  return n;
}

/** Sends datagrams as fast as possible to a port of this node on which nothing listens. */
function flood(): ChildProcess {
  const program = `
    const socket = require("node:dgram").createSocket("udp4");
    socket.on("error", () => {});
    const send = () => socket.send("?", 9, "127.0.0.1", send);
    for (let i = 0; i < 8; i++) send();`;
  return cluster.node.spawn([process.execPath, "-e", program], { stdio: "ignore" });
}

/** Lookups per packet: packets are slow compared with lookups. */
const LOOKUPS = 200;
/** Every STICKY_EVERY-th change also affects the service with affinity. */
const STICKY_EVERY = 21;
const counter: Expr = { type: "counter" };
const found: Expr = { type: "immediate", dreg: 0, data: { verdict: "return" } };

test("a lookup that fails while its element is replaced succeeds at the second try", async () => {
  const element = (last: number): Op => newElements("m", [{ key: "127.0.0.1", data: ip(`10.0.0.${last}`) }]);
  const look = newRule("try", daddr, lookup("m", { dreg: 2 }), found);
  await kernel.commit([
    newTable(),
    newSet(addressMap("m", { size: 1024 })),
    element(0),
    newChain("try"),
    look,
    newRule("try", counter),
    look,
    newRule("try", counter),
    newChain("output", { type: "filter", hook: Hook.output, priority: 0 }),
    newRule("output", daddr, { type: "cmp", sreg: 1, op: CmpOp.neq, data: ip("127.0.0.1") }, verdict("accept")),
    newRule("output", counter),
    ...Array.from({ length: LOOKUPS }, () => newRule("output", jump("try"))),
  ]);
  const counts = async (chain: string): Promise<bigint[]> =>
    (await kernel.rules(T, chain))
      .flatMap(({ exprs }) => exprs)
      .flatMap((e) => (e.type === "counter" ? [e.packets ?? 0n] : []));
  const flooding = flood();
  await expect.poll(() => counts("output")).not.toEqual([0n]);
  const replaced = await again((n) => kernel.commit([noElements("m", [{ key: "127.0.0.1" }]), element((n + 1) % 250)]));
  flooding.kill("SIGKILL");
  const [packets = 0n] = await counts("output");
  const [once = 0n, twice = 0n] = await counts("try");
  console.log(
    `${replaced} replacements, ${packets * BigInt(LOOKUPS)} lookups: ${once} found nothing; of those a second time ${twice}`,
  );
  await kernel.commit([noTable()]);
  expect(packets).toBeGreaterThan(0n);
  expect(twice).toBe(0n);
});

test("no connection is lost while a service's endpoint is replaced repeatedly", async () => {
  const services: readonly ServiceSpec[] = [
    { name: "web", n: 1, endpoints: ["a"] },
    { name: "edge", n: 2, endpoints: ["a"], external: "Local" },
    { name: "sticky", n: 3, endpoints: ["a"], affinitySeconds: 60 },
  ];
  const proxier = new Proxier({
    config: defaultConfig(),
    nodeName: "node-1",
    families: ["ip", "ip6"],
    kernel,
    interfaces: kernel.interfaces,
    log: SILENT,
    clock: { now: () => performance.now() },
  });
  const put = (objects: readonly Manifest[]): void => {
    for (const object of objects) {
      proxier.upsert(decoded({ kind: object["kind"], object } as unknown as ApiObject, "node-1"));
    }
  };
  put([nodeObject(), ...services.flatMap((service) => serviceObjects(cluster.lab, service))]);
  proxier.synced();
  expect((await proxier.sync()).ok).toBe(true);
  const lists = [["b"], ["a", "b"], ["a"], ["b", "a"]];
  const [web, edge, sticky] = services;
  const streams = [
    { from: "client", to: loadBalancer(web), protocol: "tcp" },
    { from: "c", to: clusterIP(web), protocol: "udp" },
    { from: "client", to: nodePort(web), protocol: "udp" },
    { from: "client", to: loadBalancer(edge), protocol: "udp" },
    { from: "client", to: nodePort(edge), protocol: "udp" },
    { from: "c", to: clusterIP(sticky), protocol: "udp" },
  ] as const;
  let changes = 0;
  const { connections, failures } = await underLoad(cluster, streams, async () => {
    changes = await again((n) => {
      const endpoints = lists[n % lists.length];
      // Removing sets takes the kernel some time.
      const changed = n % STICKY_EVERY === 0 ? services : [web, edge];
      put(changed.flatMap((service) => serviceObjects(cluster.lab, { ...service, endpoints }).slice(1)));
      return proxier.sync();
    });
  });
  console.log(`${changes} changes, ${connections} connections, ${failures.length} failed`);
  await proxier.stop();
  expect(failures).toEqual([]);
  expect(connections).toBeGreaterThan(100);
});
