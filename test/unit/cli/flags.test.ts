import { describe, expect, it } from "vitest";
import { configFile, flagProblems, resolveConfig } from "../../../src/cli/flags/flag-config.js";
import { ALL_FLAGS } from "../../../src/cli/flags/flags-help.js";
import { toFlagz } from "../../../src/cli/flags/flagz.js";
import { KUBE_PROXY_FLAGS } from "../../../src/cli/flags/kube-proxy-flags.js";
import { readFlags } from "../../../src/cli/read-flags.js";
import type { ProxyConfig } from "../../../src/config/proxy-config.js";

const read = (...argv: string[]) => readFlags(argv, ALL_FLAGS);

async function resolve(...argv: string[]) {
  const { values } = read(...argv);
  expect(problems(...argv)).toEqual([]);
  return resolveConfig(values);
}

function problems(...argv: string[]): string[] {
  const { values, problems } = read(...argv);
  return [...problems, ...flagProblems(values)];
}

describe("flags in the syntax of Go's pflag", () => {
  it.each<[string[], object, string[]?]>([
    [["--config", "a", "--v", "2"], { config: "a", v: 2 }],
    [["--config=a=b"], { config: "a=b" }],
    [["--config="], { config: "" }],
    [["--config", "-"], { config: "-" }],
    [["--oom-score-adj", "-999"], { "oom-score-adj": -999 }],
    [["--cleanup", "--masquerade-all=false"], { cleanup: true, "masquerade-all": false }],
    // A boolean never takes the next word.
    [["--cleanup", "false"], { cleanup: true }, ["false"]],
    [["--hostname_override", "a_b", "--write_config_to=b"], { "hostname-override": "a_b", "write-config-to": "b" }],
    [["-v", "4"], { v: 4 }],
    [["-v4"], { v: 4 }],
    [["-v=4"], { v: 4 }],
    [["-v=4", "-h"], { v: 4, help: true }],
    [["--version"], { version: "true" }],
    [["--version=raw"], { version: "raw" }],
    [["", "--config", ""], { config: "" }],
    [["run", "--v", "1"], {}, ["run", "--v", "1"]],
    [["--v=1", "run", "--v", "1"], { v: 1 }, ["run", "--v", "1"]],
    [["--", "--cleanup"], {}, ["--cleanup"]],
    [["-"], {}, ["-"]],
    [["--help=false"], { help: false }],
    [["--cleanup=T", "--init-only=0"], { cleanup: true, "init-only": false }],
    [["--v=0x3"], { v: 3 }],
    [["--kube-api-qps=2.5"], { "kube-api-qps": 2.5 }],
    // If a flag is given twice, the last value counts; lists and pairs add up.
    [["--master=a", "--master=b"], { master: "b" }],
    [["--nodeport-addresses=a,b", "--nodeport-addresses=c"], { "nodeport-addresses": ["a", "b", "c"] }],
    [["--nodeport-addresses="], { "nodeport-addresses": [] }],
    [["--feature-gates=A=true, B=false", "--feature-gates=B=true"], { "feature-gates": { A: true, B: true } }],
    [
      ["--vmodule=a=1,b*=2", "--vmodule=c=3"],
      {
        vmodule: [
          { filePattern: "a", verbosity: 1 },
          { filePattern: "b*", verbosity: 2 },
          { filePattern: "c", verbosity: 3 },
        ],
      },
    ],
    [["--version=v1.36.2"], { version: "v1.36.2" }],
    [
      ["--conntrack-gc-interval=0", "--flowtable", "eth0,veth*"],
      { "conntrack-gc-interval": "off", flowtable: ["eth0", "veth*"] },
    ],
  ])("%j", (argv, values, rest = []) => {
    expect(read(...argv)).toEqual({ values, problems: [], rest });
  });

  it.each<[string[], string[]]>([
    [
      ["--help", "--healtz_port=0", "--v=1", "--nonsense", "run", "--once"],
      ["unknown option '--healtz-port'\n(Did you mean --healthz-port?)", "unknown option '--nonsense'"],
    ],
    [
      ["-x", "-vmuch"],
      ["unknown option '-x'", "--v=much: must be a 32-bit integer"],
    ],
    [
      ["--=a", "---v=1"],
      ["unknown option '--'", "unknown option '---v'\n(Did you mean --v?)"],
    ],
    [["--config"], ["option '--config <file>' argument missing"]],
    [
      ["--v=a", "--v=b", "--v=1"],
      ["--v=a: must be a 32-bit integer", "--v=b: must be a 32-bit integer"],
    ],
  ])("%j reports all of these problems", (argv, expected) => {
    expect(read(...argv).problems).toEqual(expected);
  });
});

describe("values", () => {
  it("are all checked before anything is reported", () => {
    expect(
      problems(
        "--v=much",
        "--cleanup=maybe",
        "--conntrack-min=3000000000",
        "--kube-api-qps=fast",
        "--config-sync-period=1d",
        "--feature-gates=A",
        "--vmodule=proxier",
        "--bind-address=localhost",
        "--healthz-bind-address=0.0.0.0:70000",
        "--proxy-mode=ipsv",
        "--cluster-cidr=10.0.0.0/8,10.1.0.0/16",
        "--nodeport-addresses=primary,home",
        "--detect-local-mode=Guess",
        "--oom-score-adj=1001",
        "--iptables-sync-period=0s",
        "--hostname-override= ",
      ),
    ).toEqual([
      "--v=much: must be a 32-bit integer",
      "--cleanup=maybe: must be true or false",
      "--conntrack-min=3000000000: must be a 32-bit integer",
      "--kube-api-qps=fast: must be a number",
      '--config-sync-period=1d: must be a duration such as "30s" or "1m30s"',
      '--feature-gates=A: "A" is not of the form gate=true or gate=false',
      '--vmodule=proxier: "proxier" is not of the form pattern=level',
      "--hostname-override: must not be blank",
      "--iptables-sync-period: must be greater than 0",
      '--bind-address: "localhost" is not an IP address',
      "--healthz-bind-address: must be an address and port such as 0.0.0.0:10256",
      '--proxy-mode: "ipsv" must be nftables, iptables or ipvs: did you mean ipvs?',
      "--detect-local-mode: must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
      '--nodeport-addresses: "home" must be a CIDR, "primary", "all" or "localhost"',
      "--oom-score-adj: must be from -1000 to 1000",
    ]);
  });

  it.each<[string[], string]>([
    [["--detect-local-mode=BridgeInterface"], "--pod-bridge-interface: must be set in mode BridgeInterface"],
    [
      ["--detect-local-mode=InterfaceNamePrefix"],
      "--pod-interface-name-prefix: must be set in mode InterfaceNamePrefix",
    ],
    [["--cluster-cidr=10.0.0.0"], '--cluster-cidr: "10.0.0.0" is not a CIDR'],
    [
      ["--nodeport-addresses=10.0.0.0/8,x"],
      '--nodeport-addresses: "x" must be a CIDR, "primary", "all" or "localhost"',
    ],
    [["--iptables-min-sync-period=1m"], "--iptables-min-sync-period: must not be longer than nftables.syncPeriod"],
    [["--config-sync-period=0"], "--config-sync-period: must be greater than 0"],
    [["--healthz-port=-1"], "--healthz-port: must be a port, or 0"],
    [["--logging-format=xml"], "--logging-format: must be text or json"],
    [["--config=x", "--logging-format=xml"], "--logging-format: must be text or json"],
  ])("%j", (argv, problem) => {
    expect(problems(...argv)).toEqual([problem]);
  });

  it("flags that --config overrides are not checked", () => {
    expect(problems("--config=x", "--proxy-mode=ipvs", "--oom-score-adj=5000")).toEqual([]);
  });
});

describe("flags without a file make up the configuration", () => {
  it.each<[string[], object]>([
    [
      [],
      { healthzBindAddress: "0.0.0.0:10256", metricsBindAddress: "127.0.0.1:10249", nodePortAddresses: ["primary"] },
    ],
    [["--healthz-port=0"], { healthzBindAddress: "", metricsBindAddress: "127.0.0.1:10249" }],
    [["--metrics-port=0"], { healthzBindAddress: "0.0.0.0:10256", metricsBindAddress: "" }],
    [["--metrics-port=0", "--metrics-bind-address=0.0.0.0:1"], { metricsBindAddress: "" }],
    // The port of the deprecated flag is used only for an address without a port.
    [["--healthz-bind-address=192.0.2.1", "--healthz-port=80"], { healthzBindAddress: "192.0.2.1:80" }],
    [["--healthz-bind-address=192.0.2.1:81", "--healthz-port=80"], { healthzBindAddress: "192.0.2.1:81" }],
    [["--healthz-bind-address=192.0.2.1"], { healthzBindAddress: "192.0.2.1:10256" }],
    [["--metrics-bind-address=::"], { metricsBindAddress: "[::]:10249" }],
    // Unlike in a file, the family of --bind-address does not matter.
    [["--bind-address=::1"], { bindAddress: "::1", healthzBindAddress: "0.0.0.0:10256" }],
    [["--healthz-bind-address="], { healthzBindAddress: "0.0.0.0:10256" }],
    [
      ["--iptables-sync-period=1m", "--iptables-min-sync-period=2s"],
      { nftables: { syncPeriod: 60_000, minSyncPeriod: 2000, masqueradeAll: false, masqueradeBit: 14 } },
    ],
    [["--masquerade-all", "--iptables-masquerade-bit=3"], { nftables: { masqueradeAll: true, masqueradeBit: 3 } }],
    [["--iptables-masquerade-bit=3", "--proxy-mode=nftables"], { nftables: { masqueradeBit: 14 } }],
    [["--iptables-masquerade-bit=3", "--proxy-mode=iptables"], { nftables: { masqueradeBit: 3 } }],
    [["--proxy-mode=ipvs", "--ipvs-sync-period=1m"], { nftables: { syncPeriod: 60_000 } }],
    [["--cluster-cidr=10.244.0.0/16,fd00::/64"], { clusterCIDRs: ["10.244.0.0/16", "fd00::/64"] }],
    [
      ["--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth"],
      { detectLocalMode: "InterfaceNamePrefix", detectLocal: { bridgeInterface: "", interfaceNamePrefix: "veth" } },
    ],
    [["--nodeport-addresses=primary,localhost"], { nodePortAddresses: ["primary", "localhost"] }],
    [["--iptables-localhost-nodeports"], { nodePortAddresses: ["primary", "127.0.0.0/8"] }],
    [["--iptables-localhost-nodeports", "--proxy-mode=nftables"], { nodePortAddresses: ["primary"] }],
    [["--nodeport-addresses=10.1.2.3/8,::/0"], { nodePortAddresses: ["10.0.0.0/8", "::/0"] }],
    [["--hostname-override= Node-A "], { hostnameOverride: "node-a" }],
    [["--master=https://10.0.0.1:6443"], { master: "https://10.0.0.1:6443" }],
    [
      ["--kubeconfig=/k", "--kube-api-qps=50", "--kube-api-burst=100", "--kube-api-content-type=application/json"],
      {
        clientConnection: {
          kubeconfig: "/k",
          qps: 50,
          burst: 100,
        },
      },
    ],
    [["--feature-gates=AllowServiceExternalIPs=false"], { allowExternalIPs: false }],
    [
      ["--oom-score-adj=0", "--bind-address-hard-fail", "--profiling"],
      { oomScoreAdj: 0, bindAddressHardFail: true, enableProfiling: true },
    ],
    [
      [
        "--conntrack-max-per-core=0",
        "--conntrack-min=1",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=1m",
        "--conntrack-tcp-be-liberal",
        "--conntrack-udp-timeout=2s",
        "--conntrack-udp-timeout-stream=3s",
      ],
      {
        conntrack: {
          maxPerCore: 0,
          min: 1,
          tcpEstablishedTimeout: 0,
          tcpCloseWaitTimeout: 60_000,
          tcpBeLiberal: true,
          udpTimeout: 2000,
          udpStreamTimeout: 3000,
        },
      },
    ],
    [["--v=4", "--logging-format=json", "--log-flush-frequency=1s"], { logging: { verbosity: 4, format: "json" } }],
  ])("%j", async (argv, expected: Partial<ProxyConfig>) => {
    expect((await resolve(...argv)).config).toMatchObject(expected);
  });

  it("flags without effect are part of the document that /configz shows", async () => {
    const { document } = await resolve(
      "--kube-api-content-type=application/json",
      "--log-flush-frequency=1s",
      "--config-sync-period=1m",
      "--show-hidden-metrics-for-version=1.35",
    );
    expect(document).toMatchObject({
      clientConnection: { contentType: "application/json", acceptContentTypes: "" },
      logging: { flushFrequency: "1s" },
      configSyncPeriod: "1m0s",
      showHiddenMetricsForVersion: "1.35",
    });
  });

  it("errors name flags, not fields", async () => {
    const { notes, warnings } = await resolve("--healthz-port=0");
    expect(warnings).toEqual([
      "--healthz-port is deprecated: use --healthz-bind-address",
      expect.stringMatching(/^--detect-local-mode is ClusterCIDR and --cluster-cidr is empty/),
    ]);
    expect(notes[0]).toMatch(/^--proxy-mode is not set, .*set --nodeport-addresses to 0\.0\.0\.0\/0/);
  });

  it("an empty address means kube-proxy's default, with a warning", async () => {
    const { warnings } = await resolve("--metrics-bind-address=", "--cluster-cidr=10.0.0.0/8");
    expect(warnings).toEqual([
      expect.stringMatching(/^--metrics-bind-address is empty.*--metrics-port=0 turns the server off$/),
    ]);
  });
});

it("only --config names a file", () => {
  expect(configFile(read("--config=").values)).toBeUndefined();
  expect(configFile(read("--config=a", "--v=2", "--proxy-mode=x", "--master=m").values)).toEqual({
    path: "a",
    overrides: { fields: { logging: { verbosity: 2 } }, master: "m" },
  });
});

describe("/flagz", () => {
  it("shows every flag with its value, sorted", () => {
    const text = toFlagz(
      read("--v=3", "--nodeport-addresses=primary", "--feature-gates=B=true,A=false", "--vmodule=a=1").values,
    );
    const lines = text.split("\n");
    expect(lines.pop()).toBe("");
    expect(lines.map((line) => line.split("=", 1)[0])).toEqual(
      [...KUBE_PROXY_FLAGS.map(({ name }) => name), "help"].sort(),
    );
    for (const line of [
      "v=3",
      "nodeport-addresses=[primary]",
      "feature-gates=A=false,B=true",
      "vmodule=a=1",
      "config=",
      "cleanup=false",
      "conntrack-tcp-timeout-established=24h0m0s",
      "ipvs-exclude-cidrs=[]",
      "healthz-bind-address=0.0.0.0:10256",
      "version=false",
    ]) {
      expect(lines).toContain(line);
    }
  });
});
