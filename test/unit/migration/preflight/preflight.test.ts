/** All checks together, on a node that does not exist: the results if the kernel must not be asked. */
import { beforeEach, expect, test } from "vitest";
import { parseConfig } from "../../../../src/config/load.js";
import type { Finding } from "../../../../src/migration/preflight/finding.js";
import { readModules } from "../../../../src/migration/preflight/modules.js";
import {
  preflight,
  type PreflightKernel,
  type PreflightOptions,
} from "../../../../src/migration/preflight/preflight.js";
import { interfaceAddress as on } from "../../../fakes/fake-interfaces.ts";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
import { putFile, temporaryDirectory } from "../../../support/temporary-directory.ts";

const CONFIG = JSON.stringify({
  ...{ apiVersion: "kubeproxy.config.k8s.io/v1alpha1", kind: "KubeProxyConfiguration", mode: "nftables" },
  ...{
    clusterCIDR: "10.0.0.0/8",
    conntrack: { maxPerCore: 0, tcpEstablishedTimeout: "0s", tcpCloseWaitTimeout: "0s" },
  },
});

let root: string;
beforeEach(() => {
  root = temporaryDirectory();
});
async function findingsWith(more: Partial<PreflightOptions> = {}): Promise<Finding[]> {
  return preflight({
    ...{
      reading: { loaded: parseConfig(CONFIG, "config") },
      nodeName: "n",
      node: undefined,
      objects: { away: "no API" },
    },
    ...{
      families: { families: ["ip"], noIPv6: "there is no /proc/net/if_inet6" },
      modules: await readModules(false, root),
    },
    ...{ kernel: undefined, mayTry: false, local: [{ family: "ip", address: "192.0.2.1" }], root, ...more },
  });
}

const fake = (): PreflightKernel & FakeKernel =>
  Object.assign(new FakeKernel(), {
    legacy: {
      chains: () => Promise.resolve(["KUBE-SERVICES", "DOCKER"]),
      rules: () => Promise.resolve(0),
      forwardDrops: () => Promise.resolve(true),
      // FORWARD has a rule.
      layout: () => Promise.resolve("640 5 14 0 0 152 456 0 0 0 304 456 0"),
    },
  });

const said = (findings: readonly Finding[], check: string): string[] =>
  findings.filter((one) => one.check === check).map(({ level, what }) => `${level}: ${what}`);

test("if asking would load nf_tables, the report says so, and still has the facts from /proc", async () => {
  await putFile(root, "proc/modules", "ip_tables 1 0 - Live 0x0\n");
  await putFile(root, "proc/net/ip_tables_names", "nat\n");
  const findings = await findingsWith();
  expect(said(findings, "mode")).toEqual([
    expect.stringMatching(/^note: kube-proxy may have rules in .*ip nat: the table exists; its chains were not read/),
  ]);
  expect(said(findings, "rules")).toEqual([
    expect.stringMatching(/^note: the rules were not tried, because the kernel would load modules/),
  ]);
  expect(said(findings, "ipv6")).toHaveLength(1);
  expect(findings.some(({ level }) => level === "problem")).toBe(false);
});

test("a kernel that may be asked for its tables only is not sent any rules", async () => {
  const kernel = fake();
  const commit = kernel.commit.bind(kernel);
  let commits = 0;
  kernel.commit = (...args) => ((commits += 1), commit(...args));
  const findings = await findingsWith({ kernel });
  expect(commits).toBe(0);
  expect(said(findings, "mode")).toEqual([
    "ok: kube-proxy has no rules on this node, so nothing is taken over or removed",
  ]);
});

test("the older iptables: only kube-proxy's chains belong to its mode", async () => {
  await putFile(root, "proc/net/ip_tables_names", "nat\nfilter\n");
  const findings = await findingsWith({ kernel: fake(), mayTry: true });
  expect(said(findings, "mode")).toEqual([
    expect.stringMatching(
      /^problem: kube-proxy has rules in iptables-legacy \(ip nat: KUBE-SERVICES.*; nft-proxier does not remove them/,
    ),
  ]);
  expect(said(findings, "firewalls")).toEqual([
    expect.stringMatching(/^note: .*: not read: filter of iptables-legacy, whose chain FORWARD drops by policy/),
  ]);
  expect(said(findings, "rules")).toEqual([expect.stringMatching(/^ok: IPv4: the kernel accepts the rules/)]);
});

test("VIPs that the IPVS mode adds to the node are not counted as addresses of node ports", async () => {
  await putFile(root, "proc/net/dev", "Inter-|\n kube-ipvs0: 0 0\n");
  const kernel = fake();
  kernel.interfaces.set([on("192.0.2.1"), on("10.96.0.1", "kube-ipvs0")]);
  expect(said(await findingsWith({ kernel }), "node-ports")).toEqual([
    expect.stringMatching(/^ok: nft-proxier would serve node ports on/),
  ]);
  kernel.interfaces.set([on("192.0.2.1"), on("10.96.0.1", "eth1")]);
  expect(said(await findingsWith({ kernel }), "node-ports")).toEqual([
    expect.stringMatching(/^note: .*, no longer on /),
  ]);
});

test("disabled forwarding and a full connection tracking table are notes, because they exist already", async () => {
  await putFile(root, "proc/sys/net/ipv4/ip_forward", "0\n");
  await putFile(root, "proc/sys/net/netfilter/nf_conntrack_count", "1000\n");
  await putFile(root, "proc/sys/net/netfilter/nf_conntrack_max", "1000\n");
  const findings = await findingsWith({ kernel: fake() });
  expect(said(findings, "forwarding")).toEqual([
    expect.stringMatching(/^note: IP forwarding is off \(net\.ipv4\.ip_forward is 0\)/),
  ]);
  expect(said(findings, "conntrack-table")).toEqual([expect.stringMatching(/^note: .*\(1000 of 1000\)/)]);
});
