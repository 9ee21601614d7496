import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { defaultConfig, loadConfig, parseConfig } from "../../../src/config/load.js";
import { parseDuration } from "../../../src/config/duration.js";
import { temporaryDirectory } from "../../support/temporary-directory.ts";
import { HEAD, parse, problemsOf } from "./parsing.ts";

/** Avoids the warning that every configuration without clusterCIDR gets. */
const POD_CIDR = "clusterCIDR: 10.244.0.0/16\n";

test("the defaults are used", () => {
  expect(defaultConfig()).toMatchObject({
    hostnameOverride: "",
    bindAddress: "0.0.0.0",
    healthzBindAddress: "0.0.0.0:10256",
    metricsBindAddress: "127.0.0.1:10249",
    clusterCIDRs: [],
    detectLocalMode: "ClusterCIDR",
    detectLocal: { bridgeInterface: "", interfaceNamePrefix: "" },
    nodePortAddresses: ["primary"],
    nftables: { masqueradeAll: false, masqueradeBit: 14, minSyncPeriod: 0, syncPeriod: 30_000 },
    allowExternalIPs: true,
  });
  expect(parse("").config).toEqual(defaultConfig());
});

test("the result is frozen at every level", () => {
  const frozen = (value: unknown): boolean =>
    typeof value !== "object" || value === null || (Object.isFrozen(value) && Object.values(value).every(frozen));
  expect(frozen(parse("nodePortAddresses: [10.0.0.0/8]\nfeatureGates: {A: true}").config)).toBe(true);
});

describe("KubeProxyConfiguration: fields that are used", () => {
  test.each<[string, object]>([
    ['hostnameOverride: " Node-A "', { hostnameOverride: "node-a" }],
    ["bindAddress: 010.0.0.5", { bindAddress: "10.0.0.5" }],
    ["bindAddress: FD00::0:5", { bindAddress: "fd00::5" }],
    ['bindAddress: ""', { bindAddress: "0.0.0.0" }],
    ["clusterCIDR: 10.244.1.2/16", { clusterCIDRs: ["10.244.0.0/16"] }],
    ["clusterCIDR: 10.244.0.0/16,fd00:10::/64", { clusterCIDRs: ["10.244.0.0/16", "fd00:10::/64"] }],
    ["clusterCIDR: fd00:10::/64, 10.244.0.0/16", { clusterCIDRs: ["fd00:10::/64", "10.244.0.0/16"] }],
    ['clusterCIDR: ""', { clusterCIDRs: [] }],
    ["clusterCIDR:", { clusterCIDRs: [] }],
    ["detectLocalMode: NodeCIDR", { detectLocalMode: "NodeCIDR" }],
    ['detectLocalMode: ""', { detectLocalMode: "ClusterCIDR" }],
    [
      "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cbr0}",
      { detectLocalMode: "BridgeInterface", detectLocal: { bridgeInterface: "cbr0", interfaceNamePrefix: "" } },
    ],
    [
      "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: veth}",
      { detectLocalMode: "InterfaceNamePrefix", detectLocal: { bridgeInterface: "", interfaceNamePrefix: "veth" } },
    ],
    ["nodePortAddresses: [192.168.1.1/24, '::/0']", { nodePortAddresses: ["192.168.1.0/24", "::/0"] }],
    ["nodePortAddresses: [primary]", { nodePortAddresses: ["primary"] }],
    [
      "nodePortAddresses: [primary, ' localhost ', 127.0.0.1/8, all, primary]",
      { nodePortAddresses: ["primary", "localhost", "127.0.0.0/8", "all"], localhostNodePorts: true },
    ],
    [
      "nodePortAddresses: [localhost]\nfeatureGates: {KubeProxyNFTablesLocalhostNodePorts: false}",
      { nodePortAddresses: ["localhost"], localhostNodePorts: false },
    ],
    ["nodePortAddresses: []", { nodePortAddresses: ["primary"] }],
    ["nodePortAddresses: null", { nodePortAddresses: ["primary"] }],
    [
      "nftables: {masqueradeAll: true, masqueradeBit: 0, minSyncPeriod: 500ms, syncPeriod: 1m30s}",
      { nftables: { masqueradeAll: true, masqueradeBit: 0, minSyncPeriod: 500, syncPeriod: 90_000 } },
    ],
    ["nftables: {masqueradeBit: 31}", { nftables: { ...defaultConfig().nftables, masqueradeBit: 31 } }],
    ["nftables: {syncPeriod: 0s}", { nftables: { ...defaultConfig().nftables, syncPeriod: 30_000 } }],
    ["nftables: {masqueradeBit: null, syncPeriod:}", { nftables: defaultConfig().nftables }],
    ["nftables:", { nftables: defaultConfig().nftables }],
    ["featureGates: {AllowServiceExternalIPs: false}", { allowExternalIPs: false }],
    ["featureGates: {Other: true}", { allowExternalIPs: true }],
    ["healthzBindAddress: 0.0.0.0:10256", { healthzBindAddress: "0.0.0.0:10256" }],
    ["healthzBindAddress: ':10256'", { healthzBindAddress: "0.0.0.0:10256" }],
    ["metricsBindAddress: '[::1]:10249'", { metricsBindAddress: "[::1]:10249" }],
    ["metricsBindAddress: ''", { metricsBindAddress: "127.0.0.1:10249" }],
    ["mode: nftables", {}],
    ['mode: ""', {}],
  ])("%s", (body, expected) => {
    expect(parse(body).config).toMatchObject(expected);
  });

  test("JSON", () => {
    const text = JSON.stringify({
      apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
      kind: "KubeProxyConfiguration",
      nftables: { masqueradeAll: true },
    });
    expect(parseConfig(text, "proxy.json").config.nftables.masqueradeAll).toBe(true);
  });
});

test("every other field of v1alpha1 is accepted silently", () => {
  const body = `
clientConnection: {kubeconfig: /etc/kube.conf, acceptContentTypes: "", contentType: application/json, qps: 5.5, burst: 10}
logging:
  format: json
  flushFrequency: 5s
  verbosity: 2
  vmodule: [{filePattern: x, verbosity: 3}]
  options: {text: {splitStream: false, infoBufferSize: 0}, json: {splitStream: true, infoBufferSize: 64Ki}}
bindAddressHardFail: true
enableProfiling: false
showHiddenMetricsForVersion: "1.35"
iptables: {masqueradeBit: 14, masqueradeAll: false, localhostNodePorts: false, syncPeriod: 30s, minSyncPeriod: 1s}
ipvs:
  syncPeriod: 30s
  minSyncPeriod: 0s
  scheduler: rr
  excludeCIDRs: [10.0.0.0/8]
  strictARP: false
  tcpTimeout: 0s
  tcpFinTimeout: 0s
  udpTimeout: 0s
winkernel: {networkName: "", sourceVip: "", enableDSR: false, rootHnsEndpointName: "", forwardHealthCheckVip: false}
oomScoreAdj: -999
conntrack:
  maxPerCore: 32768
  min: 131072
  tcpEstablishedTimeout: 24h
  tcpCloseWaitTimeout: 1h0m0s
  tcpBeLiberal: true
  udpTimeout: 0s
  udpStreamTimeout: 0s
configSyncPeriod: 15m
portRange: ""
windowsRunAsService: false
`;
  expect(parse(POD_CIDR + body).warnings).toEqual([]);
});

describe("KubeProxyConfiguration: warnings", () => {
  test.each<[string, string]>([
    ["bindAdress: 10.0.0.1", "bindAdress is not a field of KubeProxyConfiguration: did you mean bindAddress?"],
    ["clustercidr: 10.0.0.0/8", "clustercidr is not a field of KubeProxyConfiguration: did you mean clusterCIDR?"],
    [
      "nftables: {masqueradeall: true}",
      "nftables.masqueradeall is not a field of KubeProxyConfiguration: did you mean nftables.masqueradeAll?",
    ],
    ["logging: {options: {text: {split: 1}}}", "logging.options.text.split is not a field of KubeProxyConfiguration"],
    [
      "masqueradeAll: true",
      "masqueradeAll is not a field of KubeProxyConfiguration: did you mean nftables.masqueradeAll?",
    ],
    [
      "ipvs: {masqueradeal: true}",
      "ipvs.masqueradeal is not a field of KubeProxyConfiguration: did you mean nftables.masqueradeAll?",
    ],
    ["udpTimeout: 30s", "udpTimeout is not a field of KubeProxyConfiguration: did you mean conntrack.udpTimeout?"],
    [
      "localhostNodePorts: true",
      "localhostNodePorts is not a field of KubeProxyConfiguration: did you mean iptables.localhostNodePorts?",
    ],
    [
      "logging: {infoBufferSize: 1Ki}",
      "logging.infoBufferSize is not a field of KubeProxyConfiguration: did you mean logging.options.text.infoBufferSize or logging.options.json.infoBufferSize?",
    ],
    [
      "nftables: {clusterCIDR: 10.0.0.0/8}",
      "nftables.clusterCIDR is not a field of KubeProxyConfiguration: did you mean clusterCIDR?",
    ],
    ["somethingElse: 1", "somethingElse is not a field of KubeProxyConfiguration"],
    ["mode: nftables\nmode: nftables", "mode is set twice (line 5); the last value is used"],
    ["toString: 1", "toString is not a field of KubeProxyConfiguration"],
  ])("%s", (body, warning) => {
    expect(parse(POD_CIDR + body).warnings).toEqual([warning]);
  });

  test("the last value of a repeated field counts", () => {
    expect(parse("hostnameOverride: a\nhostnameOverride: b").config.hostnameOverride).toBe("b");
  });

  test("mode ClusterCIDR without clusterCIDR is reported", () => {
    expect(parse("").warnings).toEqual([expect.stringContaining("clusterCIDR is empty")]);
    expect(parse("detectLocalMode: NodeCIDR").warnings).toEqual([]);
  });
});

describe("KubeProxyConfiguration: errors", () => {
  test.each<[string, string]>([
    ["hostnameOverride: 5", "hostnameOverride: must be a string"],
    ["bindAddress: 10.0.0.300", 'bindAddress: "10.0.0.300" is not an IP address'],
    ["bindAddress: 5", "bindAddress: must be a string"],
    ["clusterCIDR: 10.0.0.0", 'clusterCIDR: "10.0.0.0" is not a CIDR'],
    ["clusterCIDR: 10.0.0.0/8,10.1.0.0/16", 'clusterCIDR: "10.1.0.0/16" is a second CIDR of the same family'],
    [
      "detectLocalMode: Guess",
      "detectLocalMode: must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
    ],
    ["detectLocalMode: BridgeInterface", "detectLocal.bridgeInterface: must be set in mode BridgeInterface"],
    [
      "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {bridgeInterface: x}",
      "detectLocal.interfaceNamePrefix: must be set in mode InterfaceNamePrefix",
    ],
    [
      "detectLocal: {bridgeInterface: sixteen-letters!}",
      "detectLocal.bridgeInterface: must be an interface name of at most 15 characters",
    ],
    [
      "nodePortAddresses: [10.0.0.0/8, 10.0.0.1]",
      'nodePortAddresses[1]: "10.0.0.1" is an address, not a CIDR, "primary", "all" or "localhost": did you mean 10.0.0.1/32?',
    ],
    [
      "nodePortAddresses: ['::1']",
      'nodePortAddresses[0]: "::1" is an address, not a CIDR, "primary", "all" or "localhost": did you mean ::1/128?',
    ],
    [
      "nodePortAddresses: [primary, Localhost]",
      'nodePortAddresses[1]: "Localhost" must be a CIDR, "primary", "all" or "localhost": did you mean "localhost"?',
    ],
    ["nodePortAddresses: ['']", 'nodePortAddresses[0]: "" must be a CIDR, "primary", "all" or "localhost"'],
    [
      "nodePortAddresses: [127.0.0.0/33]",
      'nodePortAddresses[0]: "127.0.0.0/33" must be a CIDR, "primary", "all" or "localhost"',
    ],
    ["nodePortAddresses: [1]", "nodePortAddresses[0]: must be a string"],
    ["nodePortAddresses: 10.0.0.0/8", "nodePortAddresses: must be a list"],
    ["nftables: {masqueradeBit: 32}", "nftables.masqueradeBit: must be from 0 to 31"],
    ["nftables: {masqueradeBit: -1}", "nftables.masqueradeBit: must be from 0 to 31"],
    ["nftables: {masqueradeBit: 1.5}", "nftables.masqueradeBit: must be a whole number"],
    ["nftables: {masqueradeAll: 'yes'}", "nftables.masqueradeAll: must be true or false"],
    ["nftables: {syncPeriod: 30}", 'nftables.syncPeriod: must be a duration such as "30s"'],
    ["nftables: {syncPeriod: 30x}", 'nftables.syncPeriod: "30x" is not a duration such as "30s" or "1m30s"'],
    ["nftables: {syncPeriod: -1s}", "nftables.syncPeriod: must not be negative"],
    [
      "nftables: {syncPeriod: 1s, minSyncPeriod: 2s}",
      "nftables.minSyncPeriod: must not be longer than nftables.syncPeriod",
    ],
    ["nftables: {minSyncPeriod: 31s}", "nftables.minSyncPeriod: must not be longer than nftables.syncPeriod"],
    ["nftables: 5", "nftables: must be an object"],
    ["iptables: {syncPeriod: soon}", 'iptables.syncPeriod: "soon" is not a duration such as "30s" or "1m30s"'],
    ["oomScoreAdj: 1001", "oomScoreAdj: must be from -1000 to 1000"],
    ["featureGates: {AllowServiceExternalIPs: 'false'}", "featureGates.AllowServiceExternalIPs: must be true or false"],
    ["featureGates: [a]", "featureGates: must be an object of true or false"],
    ["healthzBindAddress: localhost:80", "healthzBindAddress: must be an address and port such as 0.0.0.0:10256"],
    ["metricsBindAddress: '127.0.0.1:70000'", "metricsBindAddress: must be an address and port such as 0.0.0.0:10256"],
    ["metricsBindAddress: '::1:80000'", "metricsBindAddress: must be an address and port such as 0.0.0.0:10256"],
    ["mode: iptabels", 'mode: "iptabels" must be nftables, iptables or ipvs: did you mean iptables?'],
    ["mode: IPVS", 'mode: "IPVS" must be nftables, iptables or ipvs: did you mean ipvs?'],
    ["mode: nft-tables", 'mode: "nft-tables" must be nftables, iptables or ipvs: did you mean nftables?'],
    ["mode: kernelspace", 'mode: "kernelspace" must be nftables, iptables or ipvs'],
    ["mode: 5", "mode: 5 must be nftables, iptables or ipvs"],
    // kube-proxy checks the values of the mode's own section.
    ["iptables: {syncPeriod: -1s}", "iptables.syncPeriod: must not be negative"],
    ["mode: ipvs\nipvs: {minSyncPeriod: -1s}", "ipvs.minSyncPeriod: must not be negative"],
    [
      "mode: iptables\niptables: {syncPeriod: 5s, minSyncPeriod: 10s}",
      "iptables.minSyncPeriod: must not be longer than iptables.syncPeriod",
    ],
    ["mode: ipvs\nipvs: {minSyncPeriod: 31s}", "ipvs.minSyncPeriod: must not be longer than nftables.syncPeriod"],
  ])("%s", (body, problem) => {
    expect(problemsOf(HEAD + body)).toEqual([problem]);
  });

  test("all errors are reported at once", () => {
    const body =
      "bindAddress: x\nmode: ebpf\nnftables: {masqueradeBit: 99, syncPeriod: 1s, minSyncPeriod: 2s}\ndetectLocalMode: BridgeInterface\n";
    expect(problemsOf(HEAD + body).map((line) => line.split(":")[0])).toEqual([
      "bindAddress",
      "mode",
      "nftables.masqueradeBit",
      "detectLocal.bridgeInterface",
      "nftables.minSyncPeriod",
    ]);
  });

  test("errors are reported together with misspelt, unknown and repeated fields", () => {
    const body = "mode: ipv\nbindAdress: 10.0.0.1\nnftables: {masquerade: true}\noomScoreAdj: 0\noomScoreAdj: 1\n";
    expect(problemsOf(HEAD + body)).toEqual([
      'mode: "ipv" must be nftables, iptables or ipvs: did you mean ipvs?',
      "oomScoreAdj: is set twice (line 7); the last value is used",
      "bindAdress: is not a field of KubeProxyConfiguration: did you mean bindAddress?",
      expect.stringContaining("nftables.masquerade: is not a field of KubeProxyConfiguration"),
    ]);
    expect(problemsOf("apiVersion: v1\nkind: Service\nspec: {}")).toHaveLength(2);
  });

  test.each<[string, string[]]>([
    ["", [": is empty; expected a KubeProxyConfiguration"]],
    [`${HEAD}---\n${HEAD}`, [": contains 2 documents; expected one"]],
    ["just text", [": is not a KubeProxyConfiguration"]],
    ["- a", [": is not a KubeProxyConfiguration"]],
    ["kind: KubeProxyConfiguration", ["apiVersion: is missing: it must be kubeproxy.config.k8s.io/v1alpha1"]],
    [
      "apiVersion: v1\nkind: Service",
      ["apiVersion: must be kubeproxy.config.k8s.io/v1alpha1", "kind: must be KubeProxyConfiguration"],
    ],
    [`${HEAD}nftables: [`, [expect.stringMatching(/^: line 3, column \d+: /)]],
  ])("the file as a whole: %j", (text, problems) => {
    expect(problemsOf(text)).toEqual(problems);
  });
});

describe("KubeProxyConfiguration: files", () => {
  test("are read", async () => {
    const directory = temporaryDirectory();
    const path = join(directory, "proxy.yaml");
    await writeFile(path, `${HEAD}hostnameOverride: a\n`);
    expect((await loadConfig(path)).config.hostnameOverride).toBe("a");
  });

  test("a missing file is named", async () => {
    await expect(loadConfig("/nonexistent/proxy.yaml")).rejects.toMatchObject({
      code: "ECONFIG",
      message: expect.stringMatching(/^\/nonexistent\/proxy\.yaml: cannot be read: ENOENT/),
    });
  });
});

describe("KubeProxyConfiguration: durations", () => {
  test.each<[string, number | undefined]>([
    ["0", 0],
    ["30s", 30_000],
    ["1h2m3.5s", 3_723_500],
    ["1.5h", 5_400_000],
    ["300ms", 300],
    ["5us", 0.005],
    ["5\u00b5s", 0.005],
    ["1ns", 1e-6],
    [".5s", 500],
    ["1.s", 1000],
    ["+2m", 120_000],
    ["-1s", -1000],
    ["-0", 0],
    ["", undefined],
    ["-", undefined],
    ["30", undefined],
    ["s", undefined],
    [".s", undefined],
    ["1d", undefined],
    ["1s ", undefined],
    [" 1s", undefined],
    ["1s2", undefined],
    ["1s,2s", undefined],
    ["1S", undefined],
  ])("%j", (text, ms) => {
    expect(parseDuration(text)).toEqual(ms);
  });
});
