import { defaultConfig } from "../../../../src/config/load.js";
import type { Kernel } from "../../../../src/netlink/kernel.js";
import { Proxier, type ProxierOptions } from "../../../../src/proxier/proxier.js";
import { FakeInterfaces, interfaceAddress } from "../../../fakes/fake-interfaces.ts";
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
