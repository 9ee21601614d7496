import { describe, expect, test } from "vitest";
import { parseConfig } from "../../../../src/config/load.js";
import type { IpFamily } from "../../../../src/base/ip.js";
import { nodeFacts, nodePortAddresses } from "../../../../src/node/node-facts.js";
import {
  checkConfig,
  checkConntrack,
  checkDetector,
  checkNodePorts,
  type NodePortFacts,
  type SettingFacts,
} from "../../../../src/migration/preflight/configuration.js";
import type { Said } from "../../../../src/migration/preflight/finding.js";
import { type Mode, type ModeFacts } from "../../../../src/migration/preflight/mode.js";
import { checkPorts, type PortFacts } from "../../../../src/migration/preflight/ports.js";
import type { NodeRecord } from "../../../../src/objects/records.js";
import { nodeRecord } from "../../../support/decoded.ts";
import { NO_MODE } from "./no-mode.ts";

const HEAD = { apiVersion: "kubeproxy.config.k8s.io/v1alpha1", kind: "KubeProxyConfiguration" };
const load = (fields: object) =>
  parseConfig(JSON.stringify({ ...HEAD, clusterCIDR: "10.0.0.0/8", ...fields }), "config");
const said = (findings: readonly Said[]): string[] => findings.map(({ level, what }) => `${level}: ${what}`);

const MODES: Readonly<Record<Exclude<Mode, "nft-proxier">, ModeFacts>> = {
  nftables: { ...NO_MODE, tables: [{ family: "ip", whose: "kube-proxy's" }] },
  iptables: {
    ...NO_MODE,
    iptables: [{ family: "ip", table: "nat", chains: 9, jumps: 3, kept: [] }],
    iptablesNodePorts: 2,
  },
  ipvs: { ...NO_MODE, foreign: [{ kind: "ipvs", seen: "interface kube-ipvs0", command: "" }] },
};
const NODE = nodeRecord({ status: { addresses: [{ type: "InternalIP", address: "192.0.2.1" }] } });

interface Case {
  readonly mode?: ModeFacts;
  readonly node?: typeof NODE;
  readonly addresses?: readonly string[];
  readonly routeLocalnet?: number;
  readonly families?: readonly IpFamily[];
}

function nodePorts(
  fields: object,
  {
    mode = MODES.iptables,
    routeLocalnet = 1,
    addresses = ["192.0.2.1", "198.51.100.7", "127.0.0.1"],
    families = ["ip"],
    ...rest
  }: Case = {},
): Said[] {
  const { config, input } = load(fields);
  const node = "node" in rest ? rest.node : NODE;
  const local = addresses.map((address) => ({ family: address.includes(":") ? "ip6" : "ip", address }) as const);
  const places = families.map((family) => ({
    family,
    places: nodePortAddresses(config, nodeFacts(config, "n", node), family, local),
  }));
  const facts: NodePortFacts = { config, input, mode, places, local, nodeKnown: node !== undefined, routeLocalnet };
  return checkNodePorts(facts);
}

const LOCALHOST = expect.stringMatching(
  /^problem: kube-proxy's iptables mode serves node ports on 127\.0\.0\.1 /,
) as string;
const OTHERS =
  "problem: kube-proxy's mode here serves node ports on all of the node's addresses; nft-proxier would serve them only on 192.0.2.1, no longer on 198.51.100.7";

describe("checkNodePorts, for node ports of kube-proxy's iptables mode", () => {
  test("without a list, node ports on other addresses and on loopback would be lost", () => {
    expect(said(nodePorts({}))).toEqual([OTHERS, LOCALHOST]);
  });

  test.each([
    ["the node's own IPs, listed explicitly", { nodePortAddresses: ["primary"] }],
    ["all and loopback", { nodePortAddresses: ["all", "localhost"] }],
    [
      "all, if the mode had none on loopback",
      { nodePortAddresses: ["0.0.0.0/0"], iptables: { localhostNodePorts: false } },
    ],
  ])("a list keeps them: %s", (_, fields) => {
    expect(nodePorts(fields).map(({ level }) => level)).toEqual(["ok"]);
  });

  test("with all addresses, only those on loopback are lost", () => {
    expect(said(nodePorts({ nodePortAddresses: ["0.0.0.0/0"] }))).toEqual([LOCALHOST]);
  });

  test("the field of the iptables mode, if set, keeps loopback", () => {
    expect(said(nodePorts({ iptables: { localhostNodePorts: true } }))).toEqual([
      expect.stringMatching(/^problem: kube-proxy's mode here serves node ports on all/),
    ]);
  });

  test("if the kernel does not route loopback, there are no node ports to lose on it", () => {
    expect(said(nodePorts({}, { routeLocalnet: 0 }))).toEqual([OTHERS]);
  });

  test("a node with one address loses no node ports on it", () => {
    expect(said(nodePorts({}, { addresses: ["192.0.2.1", "127.0.0.1", "fe80::1"] }))).toEqual([LOCALHOST]);
  });

  test("a family without a known node IP has all its addresses, and loses none", () => {
    const addresses = ["192.0.2.1", "198.51.100.7", "127.0.0.1", "2001:db8::1"];
    expect(said(nodePorts({}, { routeLocalnet: 0, addresses, families: ["ip", "ip6"] }))).toEqual([
      OTHERS.replace("192.0.2.1,", "192.0.2.1, all local IPv6 addresses except loopback,"),
    ]);
  });

  test("without the Node, the node's own address is not named", () => {
    const [first] = said(nodePorts({}, { node: undefined, routeLocalnet: 0 }));
    expect(first).toMatch(
      /^problem: .* only on the node's own IPs, no longer on the others among 192\.0\.2\.1, 198\.51\.100\.7$/,
    );
    expect(nodePorts({}, { node: undefined, routeLocalnet: 0, addresses: ["192.0.2.1"] })[0].level).toBe("ok");
    // The node has one address of each family; ::1 does not count.
    const addresses = ["192.0.2.1", "198.51.100.7", "::1"];
    expect(nodePorts({}, { node: undefined, routeLocalnet: 0, addresses })[0].level).toBe("problem");
  });

  test("without a service with a node port, nothing is lost", () => {
    const mode = { ...MODES.iptables, iptablesNodePorts: 0 };
    expect(said(nodePorts({}, { mode }))).toEqual(["ok: kube-proxy serves no node port on this node, so none is lost"]);
  });
});

describe("checkNodePorts, for kube-proxy's iptables mode in the older iptables", () => {
  const mode: ModeFacts = {
    ...NO_MODE,
    foreign: [{ kind: "iptables-legacy", seen: "ip nat: KUBE-SERVICES", command: "" }],
  };

  test.each([
    [2, [OTHERS, LOCALHOST]],
    [0, ["ok: kube-proxy serves no node port on this node, so none is lost"]],
  ])("its %i node ports are counted like those of iptables-nft", (legacyNodePorts, findings) => {
    expect(said(nodePorts({}, { mode: { ...mode, legacyNodePorts } }))).toEqual(findings);
  });

  test("unreadable rules are a note", () => {
    const findings = nodePorts({}, { mode: { ...mode, legacyNodePorts: undefined } });
    expect(findings.map(({ level }) => level)).toEqual(["note", "note"]);
  });
});

describe("checkNodePorts in other modes", () => {
  test("nftables: nothing changes", () => {
    expect(nodePorts({}, { mode: MODES.nftables }).map(({ level }) => level)).toEqual(["ok"]);
  });

  test("ipvs: node ports are not visible, so there is a note, and loopback had none", () => {
    expect(said(nodePorts({}, { mode: MODES.ipvs }))).toEqual([OTHERS.replace("problem", "note")]);
  });
});

describe("checkConfig", () => {
  test("each refused field is a problem", () => {
    const refused = [
      { path: "mode", message: "must not be" },
      { path: "", message: "is wrong" },
    ];
    expect(said(checkConfig({ loaded: load({ mode: "nftables" }), refused, file: "f.yaml" }))).toEqual([
      "problem: f.yaml: mode: must not be",
      "problem: f.yaml: is wrong",
      "note: the other checks ran with the defaults",
    ]);
  });

  test("an ignored setting is a note, and none is ok", () => {
    expect(said(checkConfig({ loaded: load({ mode: "nftables", oomScoreAdjust: 1 }) }))).toEqual([
      expect.stringMatching(/^note: oomScoreAdjust is not a field/),
    ]);
    expect(said(checkConfig({ loaded: load({ mode: "nftables" }) }))).toEqual([
      "ok: the configuration is valid, and no field is ignored",
    ]);
  });
});

describe("checkConntrack", () => {
  const max: SettingFacts = {
    file: "proc/sys/net/netfilter/nf_conntrack_max",
    desired: 131_072,
    onlyUpwards: true,
    present: 65_536,
    writable: true,
    remedy: "sysctl -w",
  };

  test("a setting that would be raised is a note, with both values", () => {
    expect(said(checkConntrack([max]))).toEqual([
      "note: the first start would change net.netfilter.nf_conntrack_max 65536 → 131072",
    ]);
    expect(checkConntrack([max])[0].remedy).toBeUndefined();
  });

  test("a setting that cannot be written is reported with what to do", () => {
    const [first] = checkConntrack([{ ...max, writable: false }]);
    expect(first.what).toMatch(/; this process cannot write net\.netfilter\.nf_conntrack_max$/);
    expect(first.remedy).toMatch(/--init-only: sysctl -w$/);
  });

  test("a larger value, and the expected value, are ok", () => {
    expect(
      checkConntrack([
        { ...max, present: 262_144 },
        { ...max, present: 131_072 },
      ]),
    ).toMatchObject([{ level: "ok" }]);
  });

  test("an unreadable setting is a note", () => {
    expect(said(checkConntrack([{ ...max, present: undefined }]))).toEqual([
      "note: the kernel does not have these settings yet; the first start sets them: net.netfilter.nf_conntrack_max",
    ]);
  });
});

describe("checkDetector", () => {
  const families = { families: ["ip", "ip6"] } as const;
  const detector = (fields: object, node?: NodeRecord): string[] => {
    const { config } = load(fields);
    const facts = node === undefined ? undefined : nodeFacts(config, "n", node);
    return said(checkDetector({ config, interfaces: ["lo", "eth0", "cni0"], node: facts, families }));
  };

  test.each([
    ["ok: pods are identified by clusterCIDR 10.0.0.0/8", {}],
    [
      "ok: pods are identified by interface cni0",
      { detectLocalMode: "BridgeInterface", detectLocal: { bridgeInterface: "cni0" } },
    ],
    [
      "ok: pods are identified by interfaces eth…; this node has 1 now",
      { detectLocalMode: "InterfaceNamePrefix", detectLocal: { interfaceNamePrefix: "eth" } },
    ],
    [
      "note: pods are identified by the Node's podCIDRs (detectLocalMode NodeCIDR), but the Node object was not read",
      { detectLocalMode: "NodeCIDR" },
    ],
  ])("%s", (text, fields) => {
    expect(detector(fields)).toEqual([text]);
  });

  test("a missing interface is a problem, and a prefix without interfaces is a note", () => {
    expect(detector({ detectLocalMode: "BridgeInterface", detectLocal: { bridgeInterface: "br0" } })[0]).toMatch(
      /^problem: there is no interface br0/,
    );
    expect(
      detector({ detectLocalMode: "InterfaceNamePrefix", detectLocal: { interfaceNamePrefix: "cali" } })[0],
    ).toMatch(/^note: no interface name begins with cali/);
  });

  test("a Node without podCIDRs is a problem if they are needed", () => {
    expect(detector({ detectLocalMode: "NodeCIDR" }, NODE).at(-1)).toMatch(
      /^problem: detectLocalMode is NodeCIDR, but the Node has no podCIDRs/,
    );
    expect(detector({ detectLocalMode: "NodeCIDR" }, nodeRecord({ spec: { podCIDRs: ["10.1.0.0/24"] } }))).toEqual([
      "ok: pods are identified by the Node's podCIDRs 10.1.0.0/24",
    ]);
  });
});

describe("checkPorts", () => {
  const config = { healthzBindAddress: "0.0.0.0:10256", metricsBindAddress: "", bindAddressHardFail: false };
  const on = (address: string, process?: { pid: number; name: string }) => ({
    address,
    port: 10_256,
    inode: "1",
    ...(process && { process }),
  });
  const ports = (facts: Partial<PortFacts>): string =>
    said(checkPorts({ config, listeners: [], local: [], proxyHere: true, ...facts }))[0] ?? "";

  test("a port can be free, kube-proxy's own, or another program's", () => {
    expect(ports({})).toBe("ok: healthzBindAddress 0.0.0.0:10256 is free");
    expect(ports({ listeners: [on("::", { pid: 7, name: "kube-proxy" })] })).toMatch(
      /^ok: .* is in use by kube-proxy, and free after it exits/,
    );
    expect(ports({ listeners: [on("::", { pid: 7, name: "nginx" })] })).toMatch(
      /^problem: .* is in use by nginx \(7\)$/,
    );
  });

  test("an unknown owner is kube-proxy if it has rules, and otherwise a note", () => {
    expect(ports({ listeners: [on("0.0.0.0")] })).toMatch(/^ok: .* not visible from here; it is probably kube-proxy/);
    expect(ports({ listeners: [on("0.0.0.0")], proxyHere: false })).toMatch(/^note: /);
  });

  test("another address with the same port does not collide", () => {
    const other = { ...config, healthzBindAddress: "192.0.2.1:10256" };
    const local = [{ family: "ip", address: "192.0.2.1" }] as const;
    expect(ports({ config: other, local, listeners: [on("127.0.0.1")] })).toBe(
      "ok: healthzBindAddress 192.0.2.1:10256 is free",
    );
  });

  test("an address that the node does not have is a note, and a problem if it ends the program", () => {
    const other = { ...config, healthzBindAddress: "[2001:db8::1]:10256" };
    expect(ports({ config: other })).toMatch(/^note: .* no interface has that address/);
    expect(ports({ config: { ...other, bindAddressHardFail: true } })).toMatch(/^problem: .*bindAddressHardFail/);
  });
});
