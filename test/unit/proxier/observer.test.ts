/** The calls to observers: metrics and health are only as correct as these. */
import type { V1EndpointSlice } from "@kubernetes/client-node";
import { beforeEach, describe, expect, it } from "vitest";
import { DATA_VERDICT, DataTypeId, SetFlag } from "../../../src/nft/kernel/constants.js";
import { KernelError } from "../../../src/nft/kernel/errors.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { Op } from "../../../src/nft/kernel/kernel.js";
import type { ProxierObserver, SyncReport } from "../../../src/proxier/observer.js";
import type { Proxier } from "../../../src/proxier/proxier.js";
import { makeService, makeSlice } from "../../bench/cluster.js";
import { makeProxier } from "./support/proxier.js";
import { decoded, putObjects } from "../../support/decoded.js";

let kernel: FakeKernel;
let told: string[];
let received: Record<"Service" | "EndpointSlice", number>;
let reports: SyncReport[];
let nodePorts: unknown[];
let noLocal: unknown[];
let found: unknown[];
let proxier: Proxier;

function make(): Proxier {
  const observer: ProxierObserver = {
    received: (kind) => void received[kind]++,
    changed: (kind) => void told.push(`changed ${kind}`),
    queued: () => void told.push("queued"),
    nodePortAddresses: (_family, addresses) => void nodePorts.push(addresses),
    found: (claims) => void found.push(claims),
    noLocalEndpoints: (_family, counts) => void noLocal.push(counts),
    taken: () => void told.push("taken"),
    synced: (report) => {
      told.push(`synced ${report.ok}`);
      reports.push(report);
    },
  };
  return makeProxier(kernel, { observers: [observer] });
}

beforeEach(() => {
  kernel = new FakeKernel();
  told = [];
  received = { Service: 0, EndpointSlice: 0 };
  reports = [];
  nodePorts = [];
  noLocal = [];
  found = [];
  proxier = make();
});

function slice(index: number, pods: readonly number[], triggeredAt?: number): V1EndpointSlice {
  const object = makeSlice(index, pods);
  if (triggeredAt === undefined) return object;
  const annotations = { "endpoints.kubernetes.io/last-change-trigger-time": new Date(triggeredAt).toISOString() };
  return { ...object, metadata: { ...object.metadata, annotations } };
}

function put(index: number, pods: readonly number[], triggeredAt?: number): void {
  putObjects(proxier, makeService(index), slice(index, pods, triggeredAt));
}

/** The next commit fails without reaching the kernel. */
function failNextCommit(): void {
  const commit = kernel.commit.bind(kernel);
  kernel.commit = () => {
    kernel.commit = commit;
    return Promise.reject(new KernelError("system", "no memory to send", { action: "commit", errno: "ENOBUFS" }));
  };
}

describe("observers of the proxier", () => {
  it("receive changes that matter, nothing else, and each write", async () => {
    put(0, [1, 2]);
    put(0, [1, 2]);
    proxier.remove("EndpointSlice", "bench/no-such-slice");
    proxier.remove("Service", "bench/no-such-service");
    proxier.synced();
    await proxier.sync();
    expect(told).toEqual(["changed Service", "changed EndpointSlice", "taken", "synced true"]);
  });

  it("receive each added, changed or deleted Service and slice, whether it changes rules or not", () => {
    put(0, [1]);
    put(0, [1]);
    proxier.remove("EndpointSlice", `bench/${makeSlice(0, [1]).metadata?.name}`);
    proxier.remove("Service", "bench/svc-0");
    expect(received).toEqual({ Service: 3, EndpointSlice: 3 });
    // As in kube-proxy: slices of neither family, or of no service.
    proxier.upsert(decoded({ kind: "EndpointSlice", object: { ...slice(1, [1]), addressType: "FQDN" } }));
    proxier.upsert(
      decoded({
        kind: "EndpointSlice",
        object: { ...slice(1, [1]), metadata: { name: "s", namespace: "bench" } },
      }),
    );
    expect(received).toEqual({ Service: 3, EndpointSlice: 3 });
  });

  it("learn that the first write compared everything, and later ones did not", async () => {
    put(0, [1]);
    proxier.synced();
    await proxier.sync();
    put(0, [1, 2]);
    await proxier.sync();
    expect(reports.map(({ ok, full, settled }) => ({ ok, full, settled }))).toEqual([
      { ok: true, full: true, settled: true },
      { ok: true, full: false, settled: true },
    ]);
    expect(reports[0]?.ms).toBeGreaterThan(0);
  });

  it("receive a change's trigger time with the write that activated it, even if an earlier write failed", async () => {
    const later = Date.now() + 1000;
    put(0, [1]);
    proxier.synced();
    await proxier.sync();
    failNextCommit();
    put(0, [2], later);
    await proxier.sync();
    put(1, [3], later + 1);
    await proxier.sync();
    await proxier.sync();
    expect(reports.map(({ ok, triggers }) => [ok, triggers])).toEqual([
      [true, []],
      [false, []],
      [true, [later, later + 1]],
      [true, []],
    ]);
  });

  it("never receive a trigger time from before the start, of a removed slice, or of no time at all", async () => {
    proxier.synced();
    put(0, [1], Date.now() - 60_000);
    put(1, [2], Date.now() + 1000);
    proxier.remove("EndpointSlice", `bench/${makeSlice(1, [2]).metadata?.name}`);
    put(2, [3], Date.now() + 1000);
    const odd = slice(2, [3, 4], Date.now());
    odd.metadata!.annotations!["endpoints.kubernetes.io/last-change-trigger-time"] = "yesterday";
    proxier.upsert(decoded({ kind: "EndpointSlice", object: odd }));
    await proxier.sync();
    expect(reports[0]?.triggers).toHaveLength(1);
  });

  it("receive the services that a write activated, and a failed one's with the next success", async () => {
    put(0, [1]);
    proxier.synced();
    await proxier.sync();
    failNextCommit();
    put(0, [2]);
    await proxier.sync();
    proxier.remove("Service", "bench/svc-0");
    put(1, [3]);
    await proxier.sync();
    expect(reports.map(({ services }) => services)).toEqual([["bench/svc-0"], [], ["bench/svc-0", "bench/svc-1"]]);
  });

  it("receive the addresses of node ports, and the number of policies without a local endpoint", async () => {
    const service = makeService(0);
    proxier.upsert(
      decoded({
        kind: "Service",
        object: { ...service, spec: { ...service.spec, internalTrafficPolicy: "Local" } },
      }),
    );
    proxier.upsert(decoded({ kind: "EndpointSlice", object: slice(0, [1]) }));
    proxier.synced();
    await proxier.sync();
    expect(nodePorts).toEqual(["all"]);
    expect(noLocal.at(-1)).toEqual({ internal: 1, external: 0 });
  });

  it("receive once the addresses that the existing table serves and no service has", async () => {
    put(0, [1]);
    put(1, [2]);
    proxier.synced();
    await proxier.sync();
    expect(found).toEqual([[]]);
    const before = proxier;
    proxier = make();
    put(1, [2]);
    proxier.synced();
    await proxier.sync();
    expect(found.at(-1)).toEqual([{ family: "ip", address: "10.96.0.1", protocol: "TCP", port: 80 }]);
    put(1, [2, 3]);
    await proxier.sync();
    expect(found).toHaveLength(2);
    await before.stop();
  });

  it.each(["at once", "after the first successful write"])(
    "receive the addresses in kube-proxy's maps as well, %s",
    async (when) => {
      const table = { family: "ip", table: "kube-proxy" } as const;
      const maps: readonly (readonly [string, readonly number[], readonly (readonly number[])[]])[] = [
        [
          "service-ips",
          [DataTypeId.ipv4_addr, DataTypeId.inet_proto, DataTypeId.inet_service],
          [
            [10, 96, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0],
            [10, 96, 0, 2, 6, 0, 0, 0, 0, 80, 0, 0],
          ],
        ],
        ["service-nodeports", [DataTypeId.inet_proto, DataTypeId.inet_service], [[17, 0, 0, 0, 0x75, 0x31, 0, 0]]],
      ];
      const dropped = (key: readonly number[]): number[] => [...key, 0, 0, 0, 0];
      await kernel.commit([
        { op: "add", kind: "table", ...table },
        ...maps.flatMap(([set, types, keys]): Op[] => [
          {
            op: "add",
            kind: "set",
            ...table,
            set,
            flags: SetFlag.map,
            keyType: types.reduce((all, id) => (all << 6) | id, 0),
            keyLen: keys[0].length,
            dataType: DATA_VERDICT,
          },
          {
            op: "add",
            kind: "elements",
            ...table,
            set,
            elements: {
              count: keys.length,
              keyLen: keys[0].length,
              dataLen: 4,
              verdicts: [{ verdict: "drop" }],
              bytes: Uint8Array.from(keys.flatMap(dropped)),
            },
          },
        ]),
      ]);
      put(0, [1]);
      proxier.synced();
      if (when !== "at once") failNextCommit();
      await proxier.sync();
      await proxier.sync();
      expect(found).toEqual([
        [
          { family: "ip", address: "10.96.0.2", protocol: "TCP", port: 80 },
          { family: "ip", address: "", protocol: "UDP", port: 30001 },
        ],
      ]);
      const left = (await kernel.sets(table)).map(({ set }) => set);
      for (const [set] of maps) expect(left).not.toContain(set);
    },
  );
});
