/** The families that a kernel supports, and configurations that do not fit a node: each of kube-proxy's answers. */
import { beforeEach, describe, expect, it } from "vitest";
import { defaultConfig } from "../../../src/config/load.js";
import { type ProxyConfig } from "../../../src/config/proxy-config.js";
import { nodeFacts } from "../../../src/node/node-facts.js";
import {
  checkFamilies,
  type FamilyCheck,
  type KernelFamilies,
  kernelFamilies,
} from "../../../src/node/kernel-families.js";
import { nodeRecord } from "../../support/decoded.ts";
import { putFile, temporaryDirectory } from "../../support/temporary-directory.ts";

describe("kernelFamilies", () => {
  let proc: string;
  beforeEach(() => {
    proc = temporaryDirectory();
  });
  const DISABLE = "sys/net/ipv6/conf/all/disable_ipv6";

  it("has no IPv6 without if_inet6, and says so", async () => {
    await putFile(proc, DISABLE, "0\n");
    const { families, noIPv6 } = kernelFamilies(proc);
    expect(families).toEqual(["ip"]);
    expect(noIPv6).toContain("net/if_inet6");
  });
  it.each(["1\n", "2\n"])("has no IPv6 if disable_ipv6 is %j", async (value) => {
    await putFile(proc, "net/if_inet6", "");
    await putFile(proc, DISABLE, value);
    const { families, noIPv6 } = kernelFamilies(proc);
    expect(families).toEqual(["ip"]);
    expect(noIPv6).toContain(`disable_ipv6 is ${value.trim()}`);
  });
  it("has both families otherwise, even if no interface has an IPv6 address, or the setting is hidden", async () => {
    await putFile(proc, "net/if_inet6", "");
    expect(kernelFamilies(proc)).toEqual({ families: ["ip", "ip6"] });
    await putFile(proc, DISABLE, "0\n");
    expect(kernelFamilies(proc)).toEqual({ families: ["ip", "ip6"] });
  });
});

const DUAL: KernelFamilies = { families: ["ip", "ip6"] };
const IPV4: KernelFamilies = { families: ["ip"], noIPv6: "net.ipv6.conf.all.disable_ipv6 is 1" };
const FOUR = "10.244.0.0/16";
const SIX = "fd00:10:244::/56";

interface NodeOptions {
  readonly ips?: readonly string[];
  readonly podCIDRs?: readonly string[];
}

/** By default everything fits: a clusterCIDR of the primary family, primary node-port addresses. */
function check(
  kernel: KernelFamilies,
  changes: Partial<ProxyConfig>,
  { ips = ["192.0.2.1"], podCIDRs = [] }: NodeOptions = {},
): FamilyCheck {
  const config = { ...defaultConfig(), clusterCIDRs: [ips[0]?.includes(":") ? SIX : FOUR], ...changes };
  const addresses = ips.map((address) => ({ type: "InternalIP", address }));
  const node = nodeRecord({ spec: { podCIDRs }, status: { addresses } });
  return checkFamilies(config, nodeFacts(config, "n1", node), kernel);
}

const FINE: FamilyCheck = { warnings: [], notes: [] };
const warns = (...texts: readonly string[]): unknown => ({
  warnings: texts.map((text) => expect.stringContaining(text) as unknown),
  notes: [],
});

describe("primary family", () => {
  it("is fatal if the kernel does not have it, with the reason", () => {
    const { fatal } = check(IPV4, {}, { ips: ["2001:db8::1", "192.0.2.1"] });
    expect(fatal?.code).toBe("primary-family");
    expect(fatal?.message).toContain("IPv6");
    expect(fatal?.message).toContain("disable_ipv6 is 1");
    expect(check(IPV4, { bindAddress: "2001:db8::1" }).fatal?.code).toBe("primary-family");
  });
  it("is the only family that the kernel must have", () => {
    expect(check(IPV4, {}, { ips: ["192.0.2.1", "2001:db8::1"] })).toEqual(FINE);
    expect(check(DUAL, {}, { ips: ["2001:db8::1"] })).toEqual(FINE);
    const bound = { bindAddress: "192.0.2.1", clusterCIDRs: [FOUR] };
    expect(check(IPV4, bound, { ips: ["2001:db8::1"] })).toEqual(FINE);
  });
});

describe("clusterCIDR of only the other family", () => {
  const clusterCIDRs = [SIX];
  it("is fatal on a single stack in mode ClusterCIDR", () => {
    const { fatal } = check(IPV4, { clusterCIDRs });
    expect(fatal?.code).toBe("cluster-cidr");
    expect(fatal?.message).toContain(SIX);
  });
  it("is a warning in other modes, and on a dual stack", () => {
    const bridge = {
      detectLocalMode: "BridgeInterface",
      detectLocal: { bridgeInterface: "b", interfaceNamePrefix: "" },
    };
    expect(check(IPV4, { clusterCIDRs, ...bridge } as Partial<ProxyConfig>)).toEqual(
      warns("clusterCIDR has only IPv6"),
    );
    const dual = check(DUAL, { clusterCIDRs });
    expect(dual.fatal).toBeUndefined();
    expect(dual.warnings).toHaveLength(1);
    expect(dual.notes).toEqual([expect.stringContaining("no IPv4 traffic is recognized as traffic from pods")]);
  });
  it("is accepted together with one of the primary family", () => {
    expect(check(IPV4, { clusterCIDRs: [SIX, FOUR] })).toEqual(FINE);
  });
});

describe("podCIDRs of only the other family", () => {
  const node = { podCIDRs: [SIX] };
  it("are fatal in mode NodeCIDR, whatever the stack", () => {
    for (const kernel of [IPV4, DUAL]) {
      const { fatal } = check(kernel, { detectLocalMode: "NodeCIDR" }, node);
      expect(fatal?.code).toBe("pod-cidrs");
      expect(fatal?.message).toContain(SIX);
    }
  });
  it("are a warning in other modes", () => {
    expect(check(DUAL, {}, node)).toEqual(warns("podCIDRs have only IPv6"));
  });
  it("are accepted together with one of the primary family", () => {
    expect(check(IPV4, { detectLocalMode: "NodeCIDR" }, { podCIDRs: [SIX, FOUR] })).toEqual(FINE);
  });
});

describe("a detector without a CIDR of the primary family", () => {
  it("is reported, because pods then count as strangers", () => {
    expect(check(DUAL, { clusterCIDRs: [] }).notes).toEqual([
      expect.stringContaining("clusterCIDR has no IPv4 network"),
    ]);
    const node = check(DUAL, { detectLocalMode: "NodeCIDR" }, { ips: ["2001:db8::1"] });
    expect(node.notes).toEqual([expect.stringContaining("the Node's podCIDRs have no IPv6 network")]);
  });
});

describe("health and metrics addresses of a missing family", () => {
  it("are warnings, unless the address stands for all", () => {
    const addresses = { healthzBindAddress: "[2001:db8::1]:10256", metricsBindAddress: "[::1]:10249" };
    expect(check(IPV4, addresses)).toEqual(warns("healthzBindAddress is IPv6", "metricsBindAddress is IPv6"));
    expect(check(IPV4, { healthzBindAddress: "[::]:10256", metricsBindAddress: "" })).toEqual(FINE);
    expect(check(DUAL, addresses)).toEqual(FINE);
  });
});

describe("nodePortAddresses", () => {
  it("CIDRs of only the primary family cause a warning if the cluster looks dual-stack", () => {
    const nodePortAddresses = ["192.0.2.0/24"];
    expect(check(DUAL, { nodePortAddresses })).toEqual(FINE);
    expect(check(DUAL, { nodePortAddresses, clusterCIDRs: [FOUR, SIX] })).toEqual(warns("all local IPv6 addresses"));
    expect(check(DUAL, { nodePortAddresses }, { podCIDRs: [FOUR, SIX] })).toEqual(warns("all local IPv6 addresses"));
  });
  it("CIDRs of only the other family cause a warning", () => {
    expect(check(DUAL, { nodePortAddresses: ["2001:db8::/64"] })).toEqual(warns("all local IPv4 addresses"));
  });
  it("CIDRs of both families, or primary, are accepted", () => {
    const both = ["192.0.2.0/24", "2001:db8::/64"];
    expect(check(DUAL, { nodePortAddresses: both, clusterCIDRs: [FOUR, SIX] })).toEqual(FINE);
    expect(check(DUAL, { nodePortAddresses: ["primary"], clusterCIDRs: [FOUR, SIX] })).toEqual(FINE);
  });
  it("cause a warning if there are none at all", () => {
    expect(check(DUAL, { nodePortAddresses: [] })).toEqual(warns("all local addresses"));
  });
});
