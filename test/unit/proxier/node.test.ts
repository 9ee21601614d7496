/** Effects of changes of the node itself in the kernel: its interfaces' addresses, its zone, its own IPs. */
import type { V1EndpointSlice, V1Node, V1Service } from "@kubernetes/client-node";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { defaultConfig } from "../../../src/config/load.js";
import { type ProxyConfig } from "../../../src/config/proxy-config.js";
import { interfaceAddress as on } from "../../fakes/fake-interfaces.ts";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import { Proxier } from "../../../src/proxier/proxier.js";
import { addressBytes } from "../../../src/base/ip.js";
import { keptIn } from "../../support/log.ts";
import { outcomesOf } from "./support/packets.js";
import { decoded, putObjects } from "../../support/decoded.js";

const NODE = "this-node";

let kernel: FakeKernel;
let logged: Record<string, unknown>[];
let proxier: Proxier;

function make(changes: Partial<ProxyConfig> = {}): void {
  proxier = new Proxier({
    config: { ...defaultConfig(), ...changes },
    nodeName: NODE,
    families: ["ip", "ip6"],
    kernel,
    interfaces: kernel.interfaces,
    log: keptIn(logged),
    clock: { now: () => performance.now() },
  });
}

beforeEach(() => {
  kernel = new FakeKernel();
  logged = [];
});
afterEach(() => proxier.stop());

function putNode(addresses: readonly string[], zone = "a"): void {
  const node: V1Node = {
    metadata: { name: NODE, labels: { "topology.kubernetes.io/zone": zone } },
    status: { addresses: addresses.map((address) => ({ type: "InternalIP", address })) },
  };
  proxier.upsert(decoded({ kind: "Node", object: node }));
}

const SERVICE: V1Service = {
  metadata: { namespace: "shop", name: "web" },
  spec: {
    type: "NodePort",
    clusterIP: "10.96.0.1",
    clusterIPs: ["10.96.0.1"],
    ipFamilies: ["IPv4"],
    ports: [{ name: "http", port: 80, protocol: "TCP", nodePort: 30080 }],
  },
};
/** One endpoint in each of the zones a and b. */
const SLICE: V1EndpointSlice = {
  metadata: { namespace: "shop", name: "web-1", labels: { "kubernetes.io/service-name": "web" } },
  addressType: "IPv4",
  ports: [{ name: "http", port: 8080, protocol: "TCP" }],
  endpoints: ["a", "b"].map((zone, i) => ({
    addresses: [`10.1.0.${i + 1}`],
    hints: { forZones: [{ name: zone }] },
  })),
};

function start(): void {
  putObjects(proxier, SERVICE, SLICE);
  proxier.synced();
  proxier.flush();
}

/** The addresses on which node ports answer, as in the kernel; "all" if there is no list. */
async function served(family: "ip" | "ip6"): Promise<string[]> {
  const ref = { family, table: "kube-proxy" } as const;
  const info = (await kernel.sets(ref)).find(({ set }) => set === "nodeport-ips");
  if (info === undefined) return ["all"];
  const { bytes, keyLen } = await kernel.elements(ref, info);
  return Array.from({ length: bytes.length / keyLen }, (_, i) =>
    Buffer.from(bytes.subarray(i * keyLen, (i + 1) * keyLen)).toString("hex"),
  ).sort();
}
const hex = (...addresses: readonly string[]): string[] =>
  addresses.map((address) => Buffer.from(addressBytes(address)!).toString("hex")).sort();

describe("interface addresses", () => {
  it("are served while the kernel reports them, in both families, and nothing else is written", async () => {
    make({ nodePortAddresses: ["192.0.2.0/24", "2001:db8::/64"] });
    kernel.interfaces.set([on("192.0.2.1"), on("127.0.0.1"), on("198.51.100.1")]);
    start();
    await expect.poll(() => served("ip")).toEqual(hex("192.0.2.1"));
    await expect.poll(() => kernel.commits.length).toBe(2);
    kernel.interfaces.set([on("192.0.2.1"), on("192.0.2.7"), on("2001:db8::7"), on("fe80::1")]);
    await expect.poll(() => served("ip")).toEqual(hex("192.0.2.1", "192.0.2.7"));
    await expect.poll(() => served("ip6")).toEqual(hex("2001:db8::7"));
    kernel.interfaces.set([on("192.0.2.7")]);
    await expect.poll(() => served("ip")).toEqual(hex("192.0.2.7"));
    await expect.poll(() => served("ip6")).toEqual([]);
    for (const ops of kernel.commits.slice(2)) expect(ops.map(({ kind }) => kind)).toEqual(["elements"]);
  });

  it("changes of addresses without node ports cause no write", async () => {
    make({ nodePortAddresses: ["192.0.2.0/24", "2001:db8::/64"] });
    kernel.interfaces.set([on("192.0.2.1")]);
    start();
    await expect.poll(() => kernel.commits.length).toBe(2);
    kernel.interfaces.set([on("192.0.2.1"), on("198.51.100.1")]);
    await expect.poll(() => logged.filter(({ msg }) => msg === "nothing written").length).toBe(2);
    expect(kernel.commits).toHaveLength(2);
  });

  it("may arrive before the first full list, and cause no write", async () => {
    make();
    kernel.interfaces.set([on("192.0.2.1")]);
    await proxier.prepare();
    kernel.interfaces.set([on("192.0.2.2")]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(kernel.commits).toEqual([]);
  });
});

describe("the Node object", () => {
  it("defines primary: its own IP of each family, if an interface has it", async () => {
    make();
    kernel.interfaces.set([on("192.0.2.1"), on("192.0.2.2"), on("2001:db8::1"), on("2001:db8::2")]);
    putNode(["192.0.2.1", "2001:db8::1"]);
    start();
    await expect.poll(() => served("ip")).toEqual(hex("192.0.2.1"));
    await expect.poll(() => served("ip6")).toEqual(hex("2001:db8::1"));
    // The node gets other addresses; one of them is not on an interface yet.
    putNode(["192.0.2.2", "2001:db8::3"]);
    proxier.flush();
    await expect.poll(() => served("ip")).toEqual(hex("192.0.2.2"));
    await expect.poll(() => served("ip6")).toEqual([]);
    kernel.interfaces.set([on("192.0.2.2"), on("2001:db8::3")]);
    await expect.poll(() => served("ip6")).toEqual(hex("2001:db8::3"));
  });

  it("a new zone in the Node makes the proxier choose endpoints again", async () => {
    make();
    putObjects(proxier, SERVICE, SLICE);
    proxier.synced();
    /** Targets of connections to the ClusterIP, with the node in this zone. */
    const chosen = async (zone: string): Promise<string[]> => {
      putNode(["192.0.2.1"], zone);
      expect((await proxier.sync()).ok).toBe(true);
      return outcomesOf(kernel, "10.96.0.1", 80);
    };
    expect(await chosen("a")).toEqual(["10.1.0.1 8080"]);
    expect(await chosen("b")).toEqual(["10.1.0.2 8080"]);
    expect(await chosen("elsewhere")).toEqual(["10.1.0.1 8080", "10.1.0.2 8080"]);
  });
});
