/** The proxier from a user's view: what it writes, when, and what it logs. */
import type { V1EndpointSlice, V1Service } from "@kubernetes/client-node";
import { beforeEach, describe, expect, it } from "vitest";
import { KernelError } from "../../../src/nft/kernel/errors.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Proxier } from "../../../src/proxier/proxier.js";
import { makeService, makeSlice } from "../../bench/cluster.js";
import { keptIn } from "../../support/log.ts";
import { outcomesOf } from "./support/packets.js";
import { makeProxier, putService } from "./support/proxier.js";
import { refuse } from "./support/refusing.js";
import { decoded, putObjects } from "../../support/decoded.js";

const TABLE = { family: "ip", table: "kube-proxy" } as const;

let kernel: FakeKernel;
let logged: Record<string, unknown>[];
let proxier: Proxier;

function make(families: readonly ("ip" | "ip6")[] = ["ip"]): Proxier {
  return makeProxier(kernel, { families, log: keptIn(logged) });
}

beforeEach(() => {
  kernel = new FakeKernel();
  logged = [];
  proxier = make();
});

const put = (index: number, pods: readonly number[], change?: Partial<V1Service["spec"]>): void =>
  putService(proxier, index, pods, change);

/** Counts the elements of a set, or of all its shards. */
async function count(set: string): Promise<number> {
  const found = (await kernel.sets(TABLE)).filter((info) => info.set.replace(/-[0-9a-f]$/, "") === set);
  if (found.length === 0) throw new Error(`no set ${set}`);
  const batches = await Promise.all(found.map((info) => kernel.elements(TABLE, info)));
  return batches.reduce((sum, batch) => sum + batch.count, 0);
}

const errors = (): Record<string, unknown>[] => logged.filter(({ level }) => level === "error");

describe("Proxier", () => {
  it("writes nothing before the first full list, however often it is asked", async () => {
    put(0, [1, 2]);
    proxier.flush();
    proxier.flush();
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(kernel.commits).toEqual([]);
    proxier.synced();
    proxier.flush();
    await expect.poll(() => kernel.commits.length).toBe(1);
    await proxier.stop();
  });

  it("keeps the active ServiceCIDRs of an earlier run until their list is complete", async () => {
    const cidr = (cidrs: string[]) =>
      ({ kind: "ServiceCIDR", object: { metadata: { name: "kubernetes" }, spec: { cidrs } } }) as const;
    proxier.upsert(decoded(cidr(["10.96.0.0/16"])));
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    const cidrs = await count("service-cidrs");
    expect(cidrs).toBeGreaterThan(0);
    await proxier.stop();
    proxier = make();
    put(0, [1]);
    proxier.synced(["ServiceCIDR"]);
    expect((await proxier.sync()).ok).toBe(true);
    expect([await count("service-cidrs"), await count("endpoints")]).toEqual([cidrs, 1]);
    // Half of a list is not written before the rest arrives.
    proxier.upsert(decoded(cidr(["10.97.0.0/16", "10.99.0.0/16"])));
    expect((await proxier.sync()).ok).toBe(true);
    expect(await count("service-cidrs")).toBe(cidrs);
    proxier.listed("ServiceCIDR");
    expect((await proxier.sync()).ok).toBe(true);
    expect(await count("service-cidrs")).toBe(2 * cidrs);
    await proxier.stop();
    proxier = make();
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    expect(await count("service-cidrs")).toBe(0);
  });

  it("keeps the old ruleset active when it cannot write, and tries again", async () => {
    put(0, [1, 2]);
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    const before = await count("endpoints");
    const commit = kernel.commit.bind(kernel);
    kernel.commit = () => Promise.reject(new KernelError("system", "no memory to send", { action: "commit" }));
    put(1, [3, 4, 5]);
    expect((await proxier.sync()).ok).toBe(false);
    expect(await count("endpoints")).toBe(before);
    expect(errors()).toHaveLength(1);
    expect(errors()[0]).toMatchObject({ family: "ip", msg: "writing the table failed" });
    kernel.commit = commit;
    expect((await proxier.sync()).ok).toBe(true);
    expect(await count("endpoints")).toBe(before + 3);
  });

  it("keeps the event loop responsive while it reports many lost claims", async () => {
    const services = 20;
    for (let i = 0; i < services; i++) put(i, [i], { externalIPs: ["192.0.2.1"] });
    let turns = 0;
    let next: NodeJS.Immediate;
    const count = (): void => void (next = setImmediate(() => (turns++, count())));
    const turnsAt: number[] = [];
    logged.push = ({ msg }) => {
      if (msg !== "ignored") return 0;
      // Longer than a time slice: no two claims are reported in one turn.
      for (const until = performance.now() + 6; performance.now() < until;);
      return turnsAt.push(turns);
    };
    count();
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    clearImmediate(next!);
    expect(turnsAt).toHaveLength(services - 1);
    expect(new Set(turnsAt).size).toBe(services - 1);
  });

  it("later removes elements that it left for packets in flight when a list shrank", async () => {
    put(0, [1, 2]);
    proxier.synced();
    proxier.flush();
    await expect.poll(() => kernel.commits.length).toBe(1);
    put(0, [1]);
    proxier.flush();
    await expect.poll(() => count("endpoints")).toBe(1);
    await proxier.stop();
  });

  it("continues with one family when the other fails", async () => {
    proxier = make(["ip", "ip6"]);
    const refusals = refuse(kernel);
    refusals.refuses = (op) => op.family === "ip6" && op.kind === "rule";
    put(0, [1]);
    proxier.synced();
    const { ok, families } = await proxier.sync();
    expect(ok).toBe(false);
    expect(families.map(({ family, outcome }) => [family, outcome.ok])).toEqual([
      ["ip", true],
      ["ip6", false],
    ]);
  });

  it("reports an object that cannot be served, and serves the rest", async () => {
    put(0, [1]);
    put(1, [2], { clusterIP: "10.96.0.300", clusterIPs: ["10.96.0.300"] });
    put(2, [3], { externalIPs: ["203.0.113.1", "nonsense"] });
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    expect(await count("services")).toBe(3);
    const left = logged.filter(({ msg }) => msg === "ignored");
    expect(left.map(({ kind, object, field }) => [kind, object, field])).toEqual([
      ["Service", "bench/svc-1", expect.stringContaining("spec.clusterIP")],
      ["Service", "bench/svc-2", "spec.externalIPs[1]"],
    ]);
    for (const { reason } of left) expect(reason).toEqual(expect.stringMatching(/./));
  });

  it("moves an address, in whatever order the two services change", async () => {
    const shared = { clusterIP: "10.96.0.77", clusterIPs: ["10.96.0.77"] };
    put(1, [1, 2], shared);
    put(2, [3], shared);
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    expect([await count("services"), await count("endpoints")]).toEqual([1, 2]);
    // The winner is deleted: the other one has been waiting.
    proxier.remove("Service", "bench/svc-1");
    expect((await proxier.sync()).ok).toBe(true);
    expect(await count("services")).toBe(1);
    expect(await outcomesOf(kernel, "10.96.0.77", 80)).toEqual(["11.0.0.4 8080"]);
    // An older service appears, and takes the address back.
    put(0, [5, 6, 7], shared);
    expect((await proxier.sync()).ok).toBe(true);
    expect(await count("services")).toBe(1);
    proxier.remove("Service", "bench/svc-0");
    proxier.remove("Service", "bench/svc-2");
    put(3, [8], shared);
    expect((await proxier.sync()).ok).toBe(true);
    expect([await count("services"), await count("cluster-ips")]).toEqual([1, 1]);
  });

  it("serves a service whatever its name is", async () => {
    const long = "n".repeat(63);
    const names = [`${long}-${long}-${long}`, 'quo"ted', "späße", "a b", "-", "x".repeat(300)];
    names.forEach((name, index) => {
      const affine: V1Service = {
        ...makeService(index),
        metadata: { namespace: long, name },
        spec: {
          ...makeService(index).spec,
          type: "LoadBalancer",
          sessionAffinity: "ClientIP",
          loadBalancerSourceRanges: ["198.51.100.0/24", "203.0.113.0/24"],
        },
        status: { loadBalancer: { ingress: [{ ip: `203.0.113.${index + 1}` }] } },
      };
      const slice: V1EndpointSlice = {
        ...makeSlice(index, [index]),
        metadata: { namespace: long, name: `s${index}`, labels: { "kubernetes.io/service-name": name } },
      };
      putObjects(proxier, affine, slice);
    });
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    expect(errors()).toEqual([]);
    expect(await count("services")).toBe(2 * names.length);
    expect(await count("firewall-ips")).toBe(names.length);
    for (const { chain } of await kernel.chains(TABLE)) expect(chain).toMatch(/^[a-z][a-z0-9_.-]{0,254}$/);
  });

  it("removes all of a service's own chains and sets with it", async () => {
    proxier.synced();
    await proxier.sync();
    const names = async (): Promise<string[]> =>
      [
        ...(await kernel.chains(TABLE)).map(({ chain }) => chain),
        ...(await kernel.sets(TABLE)).map(({ set }) => set),
      ].filter((name) => /^(sticky|source)-.*-[0-9a-f]{10}/.test(name));
    put(0, [1, 2, 3], {
      sessionAffinity: "ClientIP",
      externalIPs: ["203.0.113.9"],
      ports: [{ name: "http", port: 80, protocol: "TCP", nodePort: 30080 }],
    });
    expect((await proxier.sync()).ok).toBe(true);
    // A set of clients and three chains for the list: one that finds the client in it, one that remembers it, and one that masquerades
    // first. None of them belongs to an endpoint.
    expect((await names()).length).toBe(1 + 3);
    put(0, [1, 4], { sessionAffinity: "ClientIP" });
    expect((await proxier.sync()).ok).toBe(true);
    expect((await names()).length).toBe(1 + 3);
    put(0, [1, 4]);
    expect((await proxier.sync()).ok).toBe(true);
    expect(await names()).toEqual([]);
    expect(errors()).toEqual([]);
    // Deleted while nothing ran: the chain and the elements that lead to it are deleted at once, after packets in flight at the first write
    // have passed.
    put(0, [1, 4], { sessionAffinity: "ClientIP" });
    expect((await proxier.sync()).ok).toBe(true);
    expect(await names()).not.toEqual([]);
    await proxier.stop();
    proxier = make();
    proxier.synced();
    expect((await proxier.sync()).ok).toBe(true);
    proxier.flush();
    await expect.poll(names).toEqual([]);
    expect(errors()).toEqual([]);
  });
});
