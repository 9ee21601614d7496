import type { V1Service } from "@kubernetes/client-node";
import { defaultConfig } from "../../../../src/config/load.js";
import type { Kernel } from "../../../../src/nft/kernel/kernel.js";
import { Proxier, type ProxierOptions } from "../../../../src/proxier/proxier.js";
import type { ApplyResult } from "../../../../src/nft/sync/apply-result.js";
import { makeService, makeSlice } from "../../../bench/cluster.js";
import { FakeInterfaces, interfaceAddress } from "../../../fakes/fake-interfaces.ts";
import { putObjects } from "../../../support/decoded.ts";
import { SILENT } from "../../../support/log.ts";

/** A proxier with the default configuration on a node with the address 192.0.2.1. IPv4 only by default. */
export function makeProxier(kernel: Kernel, options: Partial<ProxierOptions> = {}): Proxier {
  return new Proxier({
    config: defaultConfig(),
    nodeName: "this-node",
    families: ["ip"],
    kernel,
    log: SILENT,
    clock: { now: () => performance.now() },
    interfaces: new FakeInterfaces([interfaceAddress("192.0.2.1")]),
    ...options,
  });
}

/** Adds service `index` of the benchmarks' cluster (test/bench/cluster.ts), with these pods. */
export function putService(
  proxier: Proxier,
  index: number,
  pods: readonly number[],
  change: Partial<V1Service["spec"]> = {},
): void {
  const service = makeService(index);
  putObjects(proxier, { ...service, spec: { ...service.spec, ...change } }, makeSlice(index, pods));
}

/** Writes, with a proxier of one family. Returns the write; throws if it failed. */
export async function sync(proxier: Proxier): Promise<ApplyResult> {
  const [{ outcome }] = (await proxier.sync()).families;
  if (!outcome.ok) throw outcome.error;
  return outcome.result;
}
