import { describe, expect, test } from "vitest";
import { configFromFlags, parseConfig } from "../../../src/config/load.js";
import { toYAML } from "../../../src/config/document.js";
import { formatDuration, parseDuration } from "../../../src/config/duration.js";
import { KUBEADM_137_CONFIG, KUBEADM_CONFIG } from "./kubeadm.js";
import { HEAD, parse, problemsOf } from "./parsing.ts";

describe("effective configuration: kubeadm's stock configuration", () => {
  const loaded = parseConfig(KUBEADM_CONFIG, "config.conf");

  test("means kube-proxy's defaults", () => {
    expect(loaded.config).toMatchObject({
      allowExternalIPs: true,
      clientConnection: {
        kubeconfig: "/var/lib/kube-proxy/kubeconfig.conf",
        qps: 5,
        burst: 10,
      },
      master: "",
      logging: { format: "", verbosity: 0 },
      hostnameOverride: "",
      bindAddress: "0.0.0.0",
      healthzBindAddress: "0.0.0.0:10256",
      metricsBindAddress: "127.0.0.1:10249",
      bindAddressHardFail: false,
      enableProfiling: false,
      clusterCIDRs: ["10.244.0.0/16"],
      detectLocalMode: "ClusterCIDR",
      detectLocal: { bridgeInterface: "", interfaceNamePrefix: "" },
      nodePortAddresses: ["primary"],
      localhostNodePorts: true,
      nftables: { masqueradeAll: false, masqueradeBit: 14, minSyncPeriod: 0, syncPeriod: 30_000 },
      ipvs: { excludeCIDRs: [] },
      oomScoreAdj: -999,
      conntrack: {
        maxPerCore: 32_768,
        min: 131_072,
        tcpEstablishedTimeout: 86_400_000,
        tcpCloseWaitTimeout: 3_600_000,
        tcpBeLiberal: false,
        udpTimeout: 0,
        udpStreamTimeout: 0,
      },
    });
  });

  test("needs no warning, and one note about the differences from the iptables mode", () => {
    expect(loaded.warnings).toEqual([]);
    expect(loaded.notes).toEqual([
      expect.stringMatching(
        /^mode is not set, and the default is nftables\. Node ports are reachable only on the node's own IPs\. .*0\.0\.0\.0\/0.*not reachable on 127\.0\.0\.1/,
      ),
    ]);
  });

  test("means the same with the mode that kubeadm 1.37 writes, with one warning instead of the note", () => {
    const later = parseConfig(KUBEADM_137_CONFIG, "config.conf");
    expect(later.config).toEqual(loaded.config);
    expect(later.document).toEqual(loaded.document);
    expect(later.document.mode).toBe("nftables");
    expect(later.notes).toEqual([]);
    expect(later.warnings).toEqual([
      expect.stringMatching(
        /^mode is iptables, but this program always uses nftables rules\. Node ports are reachable only on the node's own IPs\. .*0\.0\.0\.0\/0.*not reachable on 127\.0\.0\.1.*`preflight`/,
      ),
    ]);
  });
});

describe("effective configuration: addresses of the servers", () => {
  test.each<[string, string, string]>([
    ["", "0.0.0.0:10256", "127.0.0.1:10249"],
    ["bindAddress: '::'", "[::]:10256", "[::1]:10249"],
    ["bindAddress: fd00::5", "[::]:10256", "[::1]:10249"],
    ["bindAddress: fd00::5\nhealthzBindAddress: 0.0.0.0:1", "0.0.0.0:1", "[::1]:10249"],
    ["healthzBindAddress: 192.0.2.1\nmetricsBindAddress: 0.0.0.0", "192.0.2.1:10256", "0.0.0.0:10249"],
    ["healthzBindAddress: FD00::0:1\nmetricsBindAddress: '::'", "[fd00::1]:10256", "[::]:10249"],
    ["healthzBindAddress: '[FD00::1]:80'", "[fd00::1]:80", "127.0.0.1:10249"],
    ["bindAddress: '::'\nhealthzBindAddress: ':80'", "[::]:80", "[::1]:10249"],
  ])("%s", (body, healthz, metrics) => {
    expect(parse(body).config).toMatchObject({ healthzBindAddress: healthz, metricsBindAddress: metrics });
  });
});

describe("effective configuration: values", () => {
  test.each<[string, string]>([
    ["healthzBindAddress: 0.0.0.0:0", "healthzBindAddress: must be an address and port such as 0.0.0.0:10256"],
    ["healthzBindAddress: '[::1]'", "healthzBindAddress: must be an address and port such as 0.0.0.0:10256"],
    ["healthzBindAddress: 0.0.0.0:http", "healthzBindAddress: must be an address and port such as 0.0.0.0:10256"],
    ["hostnameOverride: '  '", "hostnameOverride: must not be blank"],
    ["conntrack: {maxPerCore: -1}", "conntrack.maxPerCore: must not be negative"],
    ["conntrack: {min: 3000000000}", "conntrack.min: is too large"],
    ["conntrack: {tcpEstablishedTimeout: -1s}", "conntrack.tcpEstablishedTimeout: must not be negative"],
    ["conntrack: {udpTimeout: 30}", 'conntrack.udpTimeout: must be a duration such as "30s"'],
    ["conntrack: {tcpBeLiberal: 1}", "conntrack.tcpBeLiberal: must be true or false"],
    ["clientConnection: {qps: fast}", "clientConnection.qps: must be a number"],
    ["clientConnection: {burst: -1}", "clientConnection.burst: must not be negative"],
    ["clientConnection: {burst: 1.5}", "clientConnection.burst: must be a whole number"],
    ["logging: {format: xml}", "logging.format: must be text or json"],
    ["logging: {verbosity: -1}", "logging.verbosity: must not be negative"],
    ["logging: {flushFrequency: often}", "logging.flushFrequency: must be a duration, or a number of nanoseconds"],
    ["logging: {flushFrequency: -5s}", "logging.flushFrequency: must not be negative"],
    [
      "logging: {options: {text: {infoBufferSize: much}}}",
      'logging.options.text.infoBufferSize: must be a quantity such as "64Ki"',
    ],
    ["logging: {vmodule: proxier=4}", "logging.vmodule: must be a list"],
    [
      "logging: {vmodule: [{filePattern: 'a=b', verbosity: 1}]}",
      'logging.vmodule[0].filePattern: must be a pattern without "=" and ","',
    ],
    ["showHiddenMetricsForVersion: v1.35.0", 'showHiddenMetricsForVersion: must be a version such as "1.35"'],
    ["configSyncPeriod: -1s", "configSyncPeriod: must not be negative"],
    ["iptables: {masqueradeBit: 32}", "iptables.masqueradeBit: must be from 0 to 31"],
    ["ipvs: {excludeCIDRs: 10.0.0.0/8}", "ipvs.excludeCIDRs: must be a list"],
    ["winkernel: {enableDSR: 'on '}", "winkernel.enableDSR: must be true or false"],
    ["windowsRunAsService: maybe", "windowsRunAsService: must be true or false"],
    ["portRange: 5", "portRange: must be a string"],
  ])("%s", (body, problem) => {
    expect(problemsOf(HEAD + body)).toEqual([problem]);
  });

  test.each([
    // kube-proxy checks the values of another mode's section only in that mode.
    "mode: nftables\niptables: {syncPeriod: -1s, minSyncPeriod: 10h}",
    "mode: ipvs\niptables: {syncPeriod: -1s, minSyncPeriod: 10h}",
    "ipvs: {syncPeriod: 0s, tcpTimeout: -1s, scheduler: none, excludeCIDRs: [x]}",
    "nodePortAddresses: []",
    "oomScoreAdj: -1000",
    "clientConnection: {qps: -1}",
  ])("%s is accepted", (body) => {
    expect(problemsOf(HEAD + body)).toEqual([]);
  });

  test("old spellings of booleans that kube-proxy's YAML accepts are read", () => {
    const { config } = parse("bindAddressHardFail: yes\nenableProfiling: on\nnftables: {masqueradeAll: Off}");
    expect(config).toMatchObject({
      bindAddressHardFail: true,
      enableProfiling: true,
      nftables: { masqueradeAll: false },
    });
    expect(parse("hostnameOverride: 'no'").config.hostnameOverride).toBe("no");
  });

  test("JSON with tabs is read", () => {
    const text = JSON.stringify(
      { apiVersion: "kubeproxy.config.k8s.io/v1alpha1", kind: "KubeProxyConfiguration" },
      null,
      "\t",
    );
    expect(parseConfig(text, "x.json").config.oomScoreAdj).toBe(-999);
  });

  test("an invalid clusterCIDR in a mode that does not use it is a warning", () => {
    const { config, warnings } = parse("detectLocalMode: NodeCIDR\nclusterCIDR: 10.0.0.0/8,nonsense");
    expect(config.clusterCIDRs).toEqual([]);
    expect(warnings).toEqual(['clusterCIDR: "nonsense" is not a CIDR; mode NodeCIDR does not use it']);
  });

  test.each(["[127.0.0.0/8]", "[primary, localhost]", "['::1/128']", "[0.0.0.0/0]", "[all]", "['::/0']"])(
    "loopback addresses may be in the list: nodePortAddresses %s",
    (list) => {
      const body = `clusterCIDR: 10.0.0.0/8\nnodePortAddresses: ${list}\nfeatureGates: `;
      for (const gates of ["{}", "{KubeProxyNFTablesLocalhostNodePorts: true}"]) {
        expect(parse(body + gates).warnings).toEqual([]);
      }
    },
  );

  test("a feature gate that forbids loopback addresses overrides the list, with a warning", () => {
    const gate = "clusterCIDR: 10.0.0.0/8\nfeatureGates: {KubeProxyNFTablesLocalhostNodePorts: false}";
    expect(parse(`${gate}\nnodePortAddresses: [primary, localhost]`).warnings).toEqual([
      "nodePortAddresses has loopback addresses, but featureGates sets KubeProxyNFTablesLocalhostNodePorts=false, " +
        "so node ports are not reachable on them",
    ]);
    expect(parse(`${gate}\nnodePortAddresses: [all]`).warnings).toEqual([]);
  });

  test("an unknown field in a list is named with its index", () => {
    const body = "clusterCIDR: 10.0.0.0/8\nlogging: {vmodule: [{filePattern: a, verbosity: 1, verbosty: 2}]}";
    expect(parse(body).warnings).toEqual([
      "logging.vmodule[0].verbosty is not a field of KubeProxyConfiguration: did you mean logging.vmodule[0].verbosity?",
    ]);
  });
});

describe("effective configuration: feature gates", () => {
  const pods = "clusterCIDR: 10.0.0.0/8\n";
  test.each<[string, string[]]>([
    ["featureGates: {AllowServiceExternalIPs: true, NFTablesProxyMode: true, AllAlpha: false}", []],
    [
      "featureGates: {AllowServiceExternalIP: false}",
      [
        expect.stringMatching(
          /^featureGates: AllowServiceExternalIP has no effect, .* Did you mean AllowServiceExternalIPs\?$/,
        ) as string,
      ],
    ],
    [
      "featureGates: {MemoryQoS: true}",
      [
        expect.stringMatching(
          /^featureGates: MemoryQoS has no effect, .*Known gates: AllowServiceExternalIPs, /,
        ) as string,
      ],
    ],
  ])("%s", (body, warnings) => {
    expect(parse(pods + body).warnings).toEqual(warnings);
  });
});

describe("effective configuration: iptables.localhostNodePorts", () => {
  const list = (body: string) => parse(`clusterCIDR: 10.0.0.0/8\n${body}`).config.nodePortAddresses;

  test("counts if it is set, the mode is iptables or not set, and the list does not contradict it", () => {
    expect(list("mode: iptables\niptables: {localhostNodePorts: true}")).toEqual(["primary", "127.0.0.0/8"]);
    expect(list("iptables: {localhostNodePorts: true}")).toEqual(["primary", "127.0.0.0/8"]);
    expect(list("nodePortAddresses: [0.0.0.0/0]\niptables: {localhostNodePorts: true}")).toEqual([
      "0.0.0.0/0",
      "127.0.0.0/8",
    ]);
  });

  test.each([
    "",
    "iptables: {localhostNodePorts: null}",
    "iptables: {localhostNodePorts: false}",
    "mode: nftables\niptables: {localhostNodePorts: true}",
    "mode: ipvs\niptables: {localhostNodePorts: true}",
    "mode: iptables",
  ])("has no effect: %s", (body) => {
    expect(list(body)).toEqual(["primary"]);
  });

  test("a list that leaves out loopback, or contains it, is kept", () => {
    const on = "iptables: {localhostNodePorts: true}";
    expect(list(`nodePortAddresses: [10.0.0.0/8]\n${on}`)).toEqual(["10.0.0.0/8"]);
    expect(list(`nodePortAddresses: [0.0.0.0/0, 127.0.0.1/32]\n${on}`)).toEqual(["0.0.0.0/0", "127.0.0.1/32"]);
  });
});

describe("effective configuration: notes", () => {
  const notes = (body: string) => parse(`clusterCIDR: 10.0.0.0/8\n${body}`).notes;

  test("appear only without a mode", () => {
    expect(notes("mode: nftables\niptables: {masqueradeAll: true, masqueradeBit: 15, syncPeriod: 1m}")).toEqual([]);
  });

  test.each<[string, string[]]>([
    ["nodePortAddresses: [10.0.0.0/8]", []],
    ["nodePortAddresses: [0.0.0.0/0]", ["127.0.0.1"]],
    ["nodePortAddresses: [primary]", []],
    ["nodePortAddresses: [primary, localhost]", []],
    ["nodePortAddresses: [127.0.0.0/8]", []],
    ["nodePortAddresses: [primary]\niptables: {localhostNodePorts: true}", []],
    [
      "nodePortAddresses: [0.0.0.0/0]\niptables: {localhostNodePorts: true}",
      ["node ports are also reachable on 127.0.0.0/8"],
    ],
    ["iptables: {localhostNodePorts: true}", ["node ports are also reachable on 127.0.0.0/8"]],
    ["mode: nftables\niptables: {localhostNodePorts: true}", []],
    ["iptables: {localhostNodePorts: false}", ["0.0.0.0/0"]],
    ["nodePortAddresses: [primary]\niptables: {masqueradeAll: true, masqueradeBit: 0, syncPeriod: 1m}", []],
    ["mode: nftables\nlogging: {vmodule: [{filePattern: proxier, verbosity: 5}]}", ["logging.vmodule"]],
  ])("%s", (body, words) => {
    expect(notes(body)).toEqual(words.map((word) => expect.stringContaining(word) as string));
  });
});

describe("effective configuration: settings of the mode that the file was written for", () => {
  const others =
    "iptables: {masqueradeBit: 0, masqueradeAll: true, syncPeriod: 1m, minSyncPeriod: 2s}\nipvs: {syncPeriod: 5m, minSyncPeriod: 3s}\n";
  const given = { masqueradeBit: 0, masqueradeAll: true, syncPeriod: 60_000, minSyncPeriod: 2000 };
  test.each<[string, object]>([
    ["", given],
    ["mode: iptables\n", given],
    // kube-proxy's IPVS mode masquerades as the iptables section says.
    ["mode: ipvs\n", { ...given, syncPeriod: 300_000, minSyncPeriod: 3000 }],
    ["mode: nftables\n", { masqueradeBit: 14, masqueradeAll: false, syncPeriod: 30_000, minSyncPeriod: 0 }],
  ])("%s", (mode, nftables) => {
    expect(parse(mode + others).config.nftables).toEqual(nftables);
  });

  test("are used only where nftables does not set them; kubeadm writes periods of 0 there", () => {
    const nftables = "nftables: {masqueradeAll: false, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}";
    expect(parse(`mode: iptables\n${others}${nftables}`).config.nftables).toEqual(given);
    const own = "nftables: {masqueradeBit: 3, syncPeriod: 10s}";
    expect(parse(`mode: iptables\n${others}${own}`).config.nftables).toEqual({
      ...given,
      masqueradeBit: 3,
      syncPeriod: 10_000,
    });
  });
});

describe("effective configuration: the configuration in effect", () => {
  test("has every field of v1alpha1 with its default, as /configz serves it", () => {
    expect(parse("").document).toEqual({
      apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
      kind: "KubeProxyConfiguration",
      bindAddress: "0.0.0.0",
      bindAddressHardFail: false,
      clientConnection: {
        acceptContentTypes: "",
        burst: 10,
        contentType: "application/vnd.kubernetes.protobuf",
        kubeconfig: "",
        qps: 5,
      },
      clusterCIDR: "",
      configSyncPeriod: "15m0s",
      conntrack: {
        maxPerCore: 32_768,
        min: 131_072,
        tcpBeLiberal: false,
        tcpCloseWaitTimeout: "1h0m0s",
        tcpEstablishedTimeout: "24h0m0s",
        udpStreamTimeout: "0s",
        udpTimeout: "0s",
      },
      detectLocal: { bridgeInterface: "", interfaceNamePrefix: "" },
      detectLocalMode: "ClusterCIDR",
      enableProfiling: false,
      healthzBindAddress: "0.0.0.0:10256",
      hostnameOverride: "",
      iptables: {
        localhostNodePorts: true,
        masqueradeAll: false,
        masqueradeBit: 14,
        minSyncPeriod: "1s",
        syncPeriod: "30s",
      },
      ipvs: {
        excludeCIDRs: null,
        minSyncPeriod: "0s",
        scheduler: "",
        strictARP: false,
        syncPeriod: "30s",
        tcpFinTimeout: "0s",
        tcpTimeout: "0s",
        udpTimeout: "0s",
      },
      logging: {
        flushFrequency: "5s",
        options: { json: { infoBufferSize: "0" }, text: { infoBufferSize: "0" } },
        verbosity: 0,
      },
      metricsBindAddress: "127.0.0.1:10249",
      mode: "nftables",
      nftables: { masqueradeAll: false, masqueradeBit: 14, minSyncPeriod: "0s", syncPeriod: "30s" },
      nodePortAddresses: ["primary"],
      oomScoreAdj: -999,
      portRange: "",
      showHiddenMetricsForVersion: "",
      winkernel: {
        enableDSR: false,
        forwardHealthCheckVip: false,
        networkName: "",
        rootHnsEndpointName: "",
        sourceVip: "",
      },
    });
  });

  test.each([
    ["nothing", ""],
    [
      "a bit of everything",
      `featureGates: {AllowServiceExternalIPs: false}
clientConnection: {kubeconfig: /etc/kube.conf, qps: 0.5, burst: 3}
logging: {format: json, flushFrequency: 1500000000, verbosity: 3, vmodule: [{filePattern: "a*", verbosity: 2}], options: {json: {splitStream: true, infoBufferSize: 64Ki}}}
hostnameOverride: "on"
bindAddress: fd00::5
metricsBindAddress: ""
clusterCIDR: fd00:10::/64,10.244.0.0/16
detectLocalMode: BridgeInterface
detectLocal: {bridgeInterface: cbr0}
nodePortAddresses: [192.168.0.0/16, "::/0"]
iptables: {localhostNodePorts: false, syncPeriod: 1h30m}
ipvs: {excludeCIDRs: [10.0.0.0/8]}
nftables: {masqueradeBit: 0, syncPeriod: 1m1.5s, minSyncPeriod: 100us}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, udpTimeout: 300ms}
oomScoreAdj: 0
windowsRunAsService: true
showHiddenMetricsForVersion: "1.35"
`,
    ],
  ])("stays the same when it is written and loaded again: %s", (_what, body) => {
    const first = parse(body);
    const again = parseConfig(toYAML(first.document), "written.yaml");
    expect(again.config).toEqual(first.config);
    expect(again.document).toEqual(first.document);
  });

  test("is written so that YAML 1.1 reads the same", () => {
    expect(toYAML(parse("hostnameOverride: 'on'").document)).toContain('hostnameOverride: "on"\n');
  });

  test("a disabled server has no address", () => {
    const { config, document } = configFromFlags({ off: { healthz: true, metrics: true } });
    expect(config).toMatchObject({ healthzBindAddress: "", metricsBindAddress: "" });
    expect(document).toMatchObject({ healthzBindAddress: "", metricsBindAddress: "" });
  });
});

describe("effective configuration: command line flags over a file", () => {
  test("override single fields", () => {
    const text = `${HEAD}logging: {format: json, verbosity: 2}\nhostnameOverride: from-file\n`;
    const overrides = { fields: { hostnameOverride: " From-Flag", logging: { verbosity: 5 } }, master: "https://a" };
    expect(parseConfig(text, "config.conf", overrides).config).toMatchObject({
      hostnameOverride: "from-flag",
      master: "https://a",
      logging: { format: "json", verbosity: 5 },
    });
  });
});

test.each<[number, string]>([
  [0, "0s"],
  [30_000, "30s"],
  [900_000, "15m0s"],
  [86_400_000, "24h0m0s"],
  [3_723_500, "1h2m3.5s"],
  [61_000, "1m1s"],
  [300, "300ms"],
  [1.5, "1.5ms"],
  [0.1, "100\u00b5s"],
  [0.000005, "5ns"],
  [-1500, "-1.5s"],
])("%d ms is written as %s, like Go", (ms, text) => {
  expect(formatDuration(ms)).toBe(text);
  expect(parseDuration(text)).toBeCloseTo(ms, 9);
});
