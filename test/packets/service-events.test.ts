/**
 * The whole program with an API server, on a kernel that rejects one service: the others are served, and the Service
 * gets an Event. Only the connection tracking table, which is real, needs the network namespace.
 */
import { execFileSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { parseConfig } from "../../src/config/load.js";
import { runDaemon } from "../../src/daemon/daemon.js";
import { FakeKernel } from "../fakes/fake-kernel.ts";
import type { NftKernel } from "../../src/nft/kernel/nft-kernel.js";
import { makeService, makeSlice } from "../bench/cluster.js";
import { ApiServer, type KubeJson } from "../lab/api-server/api-server.ts";
import { eventually } from "../lab/eventually.ts";
import { isOfService, refuse } from "../unit/proxier/support/refusing.js";
import { nodeObject, configuration } from "./support/objects.ts";
import { SILENT } from "../support/log.ts";
import { temporaryDirectory } from "../support/temporary-directory.ts";

let api: ApiServer;
beforeAll(async () => {
  execFileSync("ip", ["link", "set", "lo", "up"]);
  api = await ApiServer.start();
});
afterAll(() => api.stop());

test("a service that the kernel refuses gets an Event, found by its uid, and the others are served", async () => {
  const kubeconfig = join(temporaryDirectory(), "kubeconfig");
  await writeFile(kubeconfig, api.kubeconfig());
  api.put(nodeObject() as unknown as KubeJson);
  for (const index of [0, 1, 2]) {
    api.put(makeService(index) as unknown as KubeJson);
    api.put(makeSlice(index, [index]) as unknown as KubeJson);
  }
  const fake = new FakeKernel();
  refuse(fake).refuses = isOfService(new Set([1]));
  const missing = {
    connection: { releaseMemory: () => Promise.resolve() },
    legacy: { forwardDrops: () => Promise.resolve(false), layout: () => Promise.resolve("") },
  };
  const kernel = Object.assign(fake, missing) as unknown as NftKernel;
  const { config } = parseConfig(JSON.stringify(configuration({ clientConnection: { kubeconfig } })), "config.yaml");
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  const running = runDaemon({
    config,
    nodeName: config.hostnameOverride,
    kernel,
    families: { families: ["ip"] },
    clock: { now: () => performance.now() },
    log: SILENT,
    version: "0",
    manifests: undefined,
    node: undefined,
    ownTable: false,
    serviceCounters: "off",
    allowIncomplete: false,
    ended,
    onStatusRequest: () => undefined,
  });
  try {
    const event = await eventually(() => {
      const found = api.events.find(({ reason }) => reason === "ServiceNotProgrammed");
      if (found === undefined) throw new Error("there is no Event yet");
      return found;
    });
    const list = (await (await fetch(`${api.url}/api/v1/services`)).json()) as { readonly items: readonly KubeJson[] };
    const uid = list.items.find(({ metadata }) => metadata.name === "svc-1")?.metadata["uid"];
    expect(uid).toMatch(/^[0-9a-f-]{36}$/);
    expect(event).toMatchObject({
      type: "Warning",
      regarding: { kind: "Service", namespace: "bench", name: "svc-1", uid },
      note: expect.stringMatching(
        /^node \S+ does not serve the current IPv4 configuration .*10\.96\.0\.2:80\/TCP.*ENOMEM/,
      ) as string,
    });
    await eventually(async () => {
      const table = { family: "ip", table: "kube-proxy" } as const;
      const info = (await fake.sets(table)).find(({ set }) => set === "services");
      if (info === undefined) throw new Error("there are no rules yet");
      expect((await fake.elements(table, info)).count).toBe(2);
    });
    expect(api.events.filter(({ reason }) => reason === "ServiceNotProgrammed")).toHaveLength(1);
  } finally {
    end();
    expect(await running).toBe(0);
  }
});
