/** Features of a kernel, probed with batches that are never committed. */
import { Hook, Priority, TableFlag } from "../kernel/constants.js";
import type { BaseChain, Family, Kernel, Op } from "../kernel/kernel.js";
import { chainOps, type KernelFeatures, PREROUTING, probe, PROBES, refusal, ruleOps, tableOp } from "./quirks.js";

export interface Features extends KernelFeatures {
  /** masquerade with fully random ports. */
  readonly masqueradeFullyRandom: boolean;
  /** snat with fully random ports. */
  readonly snatFullyRandom: boolean;
  /** NFT_TABLE_F_OWNER (Linux 5.12). */
  readonly tableOwner: boolean;
  /** nat chains in `inet` tables (Linux 5.2). */
  readonly inetNat: boolean;
  /** Route look-ups (`fib`). */
  readonly fib: boolean;
  /** Comments of chains in userdata (Linux 5.10). */
  readonly chainUserdata: boolean;
}

const POSTROUTING: BaseChain = { type: "nat", hook: Hook.postrouting, priority: Priority.srcnat };

const MORE_PROBES: { readonly [K in Exclude<keyof Features, keyof KernelFeatures>]: (family: Family) => Op[] } = {
  masqueradeFullyRandom: (family) => ruleOps(family, POSTROUTING, { action: "masquerade", fullyRandom: true }),
  snatFullyRandom: (family) => {
    const address = family === "ip6" ? "2001:db8::1" : "192.0.2.1";
    return ruleOps(family, POSTROUTING, { action: "snat", address, fullyRandom: true });
  },
  tableOwner: (family) => [tableOp(family, TableFlag.owner)],
  inetNat: () => chainOps("inet", { base: { type: "nat", hook: Hook.prerouting, priority: Priority.dstnat } }),
  fib: (family) =>
    ruleOps(family, PREROUTING, { field: { field: "fib", of: ["saddr"], result: "type" }, value: "local" }),
  chainUserdata: (family) => chainOps(family, { userdata: Uint8Array.of(0, 2, 0x78, 0) }),
};

/** Probes the features one after the other. Throws KernelError for anything but a refusal. */
export async function probeFeatures(kernel: Kernel, family: Family): Promise<Features> {
  const features: Partial<Record<keyof Features, boolean>> = {};
  for (const feature of Object.keys(PROBES) as (keyof KernelFeatures)[])
    features[feature] = (await probe(kernel, family, feature))[feature] === true;
  for (const feature of Object.keys(MORE_PROBES) as (keyof typeof MORE_PROBES)[])
    features[feature] = (await refusal(kernel, MORE_PROBES[feature](family))) === undefined;
  return features as Features;
}
