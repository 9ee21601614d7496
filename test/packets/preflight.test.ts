/** `preflight` on nodes in the state that kube-proxy and other programs leave: its output, its exit code, and that it changes nothing. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { NftKernel } from "../../src/nft/kernel/nft-kernel.ts";
import type { Finding } from "../../src/migration/preflight/finding.ts";
import type { PreflightReport } from "../../src/migration/preflight/preflight-report.ts";
import { addLegacyChains, putLegacyTable } from "../lab/legacy-kernel.ts";
import { legacyRule } from "../lab/legacy-rules.ts";
import { type LegacyChain, TABLE_CHAINS } from "../lab/legacy-table.ts";
import type { KubeJson } from "../lab/api-server/api-server.ts";
import { setUp } from "../lab/kube-proxy-rules.ts";
import { Namespace } from "../lab/namespace.ts";
import { FAMILIES, PLAN } from "../lab/topology.ts";
import { Api } from "./support/api.ts";
import { Cluster, MAIN } from "./support/cluster.ts";
import { iptablesTables } from "./support/iptables-mode.ts";
import {
  configuration,
  type Manifest,
  NODE,
  nodeObject,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
  POD_PORT,
} from "./support/objects.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const sticky: ServiceSpec = { name: "sticky", n: 2, endpoints: ["a"], affinitySeconds: 60, ranges: ["192.0.2.0/24"] };

let cluster: Cluster;
let kernel: NftKernel;
let directory: string;
beforeAll(async () => {
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  kernel = await NftKernel.open({ netns: `/run/netns/${cluster.lab.node.name}` });
  directory = await mkdtemp(join(tmpdir(), "nft-proxier-preflight-"));
  // If the kernel has modules, this loads them; no later check loads any.
  await cluster.command(["preflight", "--load-modules"]);
});
afterAll(async () => {
  await kernel.close();
  await cluster.destroy();
  await rm(directory, { recursive: true, force: true });
});

let before: string;
beforeEach(async () => {
  await cluster.lab.node.mustRun(["nft", "flush", "ruleset"]);
});

const nft = (input: string): Promise<string> => cluster.lab.node.mustRun(["nft", "-f", "-"], { input: `${input}\n` });

/** Everything that a check could have changed. */
async function stateOf(node: Namespace): Promise<string> {
  const parts = await Promise.all([
    // Without counters: packets of the machine itself may pass.
    node.mustRun(["nft", "-s", "-a", "list", "ruleset"]),
    node.run(["sysctl", "-a"]).then(({ stdout }) => stdout),
    node.mustRun([
      "sh",
      "-c",
      "ls /proc/net /sys/module; cat /proc/net/ip_tables_names /proc/net/ip6_tables_names 2>/dev/null || true",
    ]),
    node.mustRun(["ip", "-o", "address", "show"]),
  ]);
  // Fields that the kernel counts for itself and for the machine.
  const counted =
    /^(?:net\.netfilter\.nf_conntrack_count|kernel\.(?:random|ns_last_pid|pty|sched|perf)|fs\.|net\.ipv4\.tcp_fastopen_key|dev\.)/;
  return parts
    .join("\n")
    .split("\n")
    .filter((line) => !counted.test(line))
    .join("\n");
}

interface Report {
  readonly code: number;
  readonly report: PreflightReport;
  readonly findings: readonly Finding[];
}

/** Verifies for each check that it changes nothing. */
async function runPreflight(args: readonly string[] = [], config: Manifest = configuration()): Promise<Report> {
  const file = join(directory, "config.json");
  await writeFile(file, JSON.stringify(config));
  before = await stateOf(cluster.lab.node);
  const { id } = await kernel.generation();
  const { code, stdout, stderr } = await cluster.command(["preflight", "--config", file, "-o", "json", ...args]);
  expect((await kernel.generation()).id).toBe(id);
  expect(await stateOf(cluster.lab.node)).toBe(before);
  if (stdout === "") throw new Error(`preflight: exit ${code}: ${stderr}`);
  const report = JSON.parse(stdout) as PreflightReport;
  return { code, report, findings: report.findings };
}

const saying = (findings: readonly Finding[], level: Finding["level"], check?: string): string[] =>
  findings.filter((one) => one.level === level && (check ?? one.check) === one.check).map(({ what }) => what);

/** kube-proxy's configuration with these nodePortAddresses. */
const written = (nodePortAddresses: readonly string[]): Manifest => ({ ...configuration(), nodePortAddresses });

test("an empty network namespace: no problem is found, the exit code is 0, and nothing is changed", async () => {
  const empty = await Namespace.create(`preflight-${process.pid}`);
  try {
    const still = await stateOf(empty);
    const { code, stdout } = await empty.run([process.execPath, MAIN, "preflight"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^OK +mode +kube-proxy has no rules on this node/m);
    expect(stdout).toMatch(/^OK +kernel +IPv4: the kernel accepts the rules with a service of each kind/m);
    expect(stdout).toMatch(
      /: 0 problems, \d+ notes?, \d+ ok: the checks that ran found no obstacles \(not checked: services\); nothing was changed\n$/,
    );
    expect(await stateOf(empty)).toBe(still);
  } finally {
    await empty.destroy();
  }
});

describe("kube-proxy's modes", () => {
  test("nftables: its tables are taken over, and there are no obstacles", async () => {
    const options = { nodeAddresses: "all", serviceCIDR: PLAN.serviceCIDR } as const;
    const lines = FAMILIES.flatMap((family) =>
      setUp(family, { ...options, serviceCIDR: options.serviceCIDR[family], clusterCIDR: PLAN.clusterCIDR[family] }),
    );
    await nft(lines.join("\n"));
    const { code, findings } = await runPreflight();
    expect(saying(findings, "problem")).toEqual([]);
    expect(code).toBe(0);
    for (const family of FAMILIES) {
      expect(saying(findings, "ok", "mode")).toContainEqual(
        expect.stringMatching(
          `table ${family} kube-proxy belongs to kube-proxy's nftables mode; nft-proxier takes it over`,
        ),
      );
    }
  });

  describe("iptables, with iptables-nft", () => {
    beforeEach(() => nft(FAMILIES.map((family) => iptablesTables(cluster.lab, family, [web])).join("")));
    afterEach(() => cluster.node.sysctl({ "net.ipv4.conf.all.route_localnet": 0 }));

    test("its chains are counted, without other programs' chains", async () => {
      const { code, findings } = await runPreflight([], written(["primary"]));
      expect(saying(findings, "problem")).toEqual([]);
      expect(code).toBe(0);
      expect(saying(findings, "ok", "mode")).toContainEqual(
        expect.stringMatching(
          /^kube-proxy has \d+ chains in ip nat of iptables-nft; nft-proxier removes them, with 3 jumps/,
        ),
      );
    });

    test("node ports that would be lost are a problem until nodePortAddresses is set", async () => {
      const { code, findings } = await runPreflight(["--manifests", await manifests([])], {
        ...configuration(),
        nodePortAddresses: [],
      });
      expect(code).toBe(1);
      expect(saying(findings, "problem")).toEqual([
        expect.stringMatching(
          /^kube-proxy's mode here serves node ports on all of the node's addresses; .* only on .*, no longer on /,
        ),
      ]);
      expect(saying(findings, "problem")[0]).toContain(", no longer on ");
      expect((await runPreflight([], written(["all"]))).code).toBe(0);
    });

    test("node ports on 127.0.0.1 are also a problem if the kernel routes them", async () => {
      await cluster.node.sysctl({ "net.ipv4.conf.all.route_localnet": 1 });
      const { code, findings } = await runPreflight([], written(["all"]));
      expect(code).toBe(1);
      expect(saying(findings, "problem")).toEqual([
        expect.stringMatching(/^kube-proxy's iptables mode serves node ports on 127\.0\.0\.1 /),
      ]);
      expect((await runPreflight([], written(["all", "localhost"]))).code).toBe(0);
    });

    test("health checks that it accepts are a problem if a firewall drops the rest", async () => {
      await nft(`add rule ip filter KUBE-NODEPORTS tcp dport 32100 counter accept
        add chain ip filter INPUT { policy drop; }`);
      const { code, findings } = await runPreflight([], written(["primary"]));
      expect(code).toBe(1);
      expect(saying(findings, "problem")).toEqual([
        expect.stringMatching(
          /^chain INPUT of table ip filter drops packets to this node by policy; kube-proxy's rules accept load balancers' health checks/,
        ),
      ]);
      await nft("add chain ip filter INPUT { policy accept; }");
    });
  });

  test("iptables, with the older iptables: node ports that would be lost are a problem", async () => {
    const node = await Namespace.create(`preflight-legacy-ports-${process.pid}`);
    const ports = [{ name: "KUBE-NODEPORTS", rules: [legacyRule("ip", "tcp dport 30080 return")] }];
    const put = (chains: readonly LegacyChain[]): Promise<boolean> =>
      putLegacyTable(node.prefix, "ip", "nat", [
        ...TABLE_CHAINS.nat.map((name) => ({ name, policy: "ACCEPT", rules: [] }) as const),
        ...chains,
      ]);
    const problems = async (): Promise<string[]> => {
      const { stdout } = await node.run([process.execPath, MAIN, "preflight", "-o", "json"]);
      return saying((JSON.parse(stdout) as PreflightReport).findings, "problem");
    };
    try {
      await node.mustRun(["ip", "link", "set", "lo", "up"]);
      for (const address of ["192.0.2.1/32", "198.51.100.7/32"])
        await node.mustRun(["ip", "address", "add", address, "dev", "lo"]);
      const legacy = await put(ports);
      const lost = expect.stringMatching(
        /^kube-proxy's mode here serves node ports on all of the node's addresses.* 192\.0\.2\.1, /,
      ) as string;
      const stay = expect.stringMatching(/^kube-proxy has rules in iptables-legacy \(ip nat: KUBE-/) as string;
      // A kernel without the older iptables cannot have rules in them.
      expect(await problems()).toEqual(legacy ? [stay, lost] : []);
      if (!legacy) return;
      await put([{ name: "KUBE-NODEPORTS", rules: [] }]);
      expect(await problems()).toEqual([stay]);
    } finally {
      await node.destroy();
    }
  });

  test("iptables, with the older iptables: it is named, with what will happen to it", async () => {
    const empty = await Namespace.create(`preflight-legacy-${process.pid}`);
    try {
      const legacy = await addLegacyChains(empty.prefix, "ip", "nat", ["KUBE-SERVICES", "KUBE-MARK-MASQ", "DOCKER"]);
      const { code, stdout } = await empty.run([process.execPath, MAIN, "preflight"]);
      // A kernel without the older iptables cannot have rules in them.
      expect(code).toBe(legacy ? 1 : 0);
      expect(stdout.includes("ip nat: KUBE-SERVICES and 1 more chain")).toBe(legacy);
    } finally {
      await empty.destroy();
    }
  });
});

describe("tables of the name kube-proxy", () => {
  test("another program's table is a problem, because everything in it would be lost", async () => {
    await nft("add table ip kube-proxy\nadd chain ip kube-proxy mine");
    const { code, findings } = await runPreflight();
    expect(code).toBe(1);
    expect(saying(findings, "problem")).toEqual([
      expect.stringMatching(/^table ip kube-proxy exists but has none of kube-proxy's maps/),
    ]);
  });

  test("a table of nft-proxier is kept and updated", async () => {
    await cluster.apply(serviceObjects(cluster.lab, web));
    const { code, findings } = await runPreflight();
    expect(code).toBe(0);
    expect(saying(findings, "ok", "mode")).toContain(
      "table ip kube-proxy already belongs to nft-proxier, which continues with it",
    );
  });
});

describe("other programs", () => {
  test("a chain that drops forwarded packets and accepts nothing is a problem, with a command that fixes it", async () => {
    await nft("add table ip wall\nadd chain ip wall forward { type filter hook forward priority 0; policy drop; }");
    const { code, findings } = await runPreflight();
    expect(code).toBe(1);
    const [found, ...more] = findings.filter(({ level }) => level === "problem");
    expect(more).toEqual([]);
    expect(found).toMatchObject({
      area: "other programs",
      check: "forward-policy",
      what: "chain forward (hook forward) of table ip wall drops packets to services: by policy",
    });
    await cluster.lab.node.mustRun(["nft", ...(/nft (.*accept)/.exec(found.remedy ?? "")?.[1] ?? "").split(" ")]);
    const mended = await runPreflight();
    expect(mended.code).toBe(0);
    expect(saying(mended.findings, "ok", "hooks")).toHaveLength(1);
  });

  test("a rule that drops packets to services is a problem if services are known, and is not called harmless otherwise", async () => {
    await nft("add table inet wall\nadd chain inet wall forward { type filter hook forward priority 0; }");
    const known = ["--manifests", await manifests([web])];
    expect(saying((await runPreflight(known)).findings, "ok", "hooks")).toEqual([
      "no other program's rules block services",
    ]);
    await nft(`add rule inet wall forward tcp dport ${POD_PORT} drop`);
    const { code, findings } = await runPreflight(known);
    expect([code, saying(findings, "problem")]).toEqual([
      1,
      [
        expect.stringMatching(
          /^chain forward \(hook forward\) of table inet wall drops packets to default\/web: by rule/,
        ),
      ],
    ]);
    expect(saying((await runPreflight()).findings, "note", "firewalls")).toEqual([
      expect.stringMatching(
        /^other programs may drop packets to services: the result depends on .* drop \(handle \d+\)$/,
      ),
    ]);
  });

  test("rules that accept packets only of interfaces by which no pod or client comes are a problem, with the command", async () => {
    const known = ["--manifests", await manifests([web])];
    const ends = "FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT";
    const docker = `*filter\n:FORWARD DROP [0:0]\n-A ${ends}\n-A FORWARD -i docker0 -j ACCEPT\n-A FORWARD -i br-+ -j ACCEPT\nCOMMIT\n`;
    const found = async (): Promise<readonly [number, ...unknown[]]> => {
      const { code, findings } = await runPreflight(known);
      const problems = findings.filter(({ level }) => level === "problem");
      return [code, ...problems.map(({ what, remedy }) => [what, remedy])];
    };
    const chain = "chain FORWARD (hook forward) of table ip filter drops packets to default/web";
    const remedy = expect.stringMatching(/^run `iptables -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT`/) as string;
    await cluster.lab.node.mustRun(["iptables-nft-restore"], { input: docker });
    expect(await found()).toEqual([1, [`${chain}: by policy`, remedy]]);
    await cluster.lab.node.mustRun(["ip", "link", "add", "docker0", "type", "bridge"]);
    try {
      expect(await found()).toEqual([1, [`${chain} from every interface but docker0: by policy`, remedy]]);
      await cluster.lab.node.mustRun("iptables-nft -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT".split(" "));
      expect(await found()).toEqual([0]);
    } finally {
      await cluster.lab.node.mustRun(["ip", "link", "delete", "docker0"]);
    }
  });

  test("NAT before ours, and a policy that drops packets to this node, are no obstacles by themselves", async () => {
    await nft(`
      add table inet early
      add chain inet early first { type nat hook prerouting priority -150; }
      add rule inet early first tcp dport 7 redirect to :8
      add chain inet early input { type filter hook input priority 0; policy drop; }
      add rule inet early input accept
    `);
    const { code, findings } = await runPreflight(["--manifests", await manifests([web])]);
    expect(code).toBe(0);
    expect(saying(findings, "ok", "hooks")).toEqual(["no other program's rules block services"]);
  });

  test("rules that set or overwrite the masquerade bit are problems, which another bit solves", async () => {
    await nft(`
      add table inet cni
      add chain inet cni marks
      add rule inet cni marks meta mark set meta mark or 0x4000
      add rule inet cni marks meta mark set meta mark or 0x20000
      add chain inet cni forward { type filter hook forward priority 0; }
      add rule inet cni forward udp dport 4789 jump marks
      add table ip other
      add chain ip other output { type route hook output priority -150; }
      add rule ip other output meta mark set 0x1
      add chain ip other forward { type filter hook forward priority 10; }
      add rule ip other forward meta mark and 0x4000 == 0x4000 counter
      add rule ip other forward tcp dport 7 meta mark set ct mark
    `);
    const { code, findings } = await runPreflight();
    expect(code).toBe(1);
    expect(saying(findings, "problem")).toEqual([
      expect.stringMatching(
        /^rules of chain forward \(hook forward\) of table ip other overwrite bit 14 of the packet mark \(0x4000\), such as .*: nft-proxier does not masquerade packets to services that they match/,
      ),
      "rules of table inet cni set bit 14 of the packet mark (0x4000) (chain marks, from forward), so nft-proxier masquerades the service connections that they mark",
    ]);
    await nft("flush chain ip other forward");
    const settled = await runPreflight([], { ...configuration(), nftables: { masqueradeBit: 19 } });
    expect(saying(settled.findings, "problem")).toEqual([]);
    expect(settled.code).toBe(0);
  });
});

describe("configuration", () => {
  test("another mode of kube-proxy is one note with its differences, including the IPVS mode's settings", async () => {
    const ipvs = { ...configuration(), mode: "ipvs", ipvs: { scheduler: "lc", strictARP: true } };
    const { code, findings } = await runPreflight([], ipvs);
    expect(code).toBe(0);
    expect(saying(findings, "problem")).toEqual([]);
    expect(saying(findings, "note", "config")).toEqual([
      expect.stringMatching(
        /^mode is ipvs, but this program always uses nftables rules\..* ipvs\.scheduler lc: not available.* ipvs\.strictARP: no effect/,
      ),
    ]);
  });

  test("the same mode on the command line is a note as well, and an invalid flag is an error", async () => {
    const flags = ["preflight", `--hostname-override=${NODE}`, "--cluster-cidr=10.244.0.0/16"];
    const { code, stdout } = await cluster.command([...flags, "--proxy-mode=iptables", "-o", "json"]);
    expect(code).toBe(0);
    const { findings } = JSON.parse(stdout) as PreflightReport;
    expect(saying(findings, "note", "config")).toEqual([expect.stringMatching(/^--proxy-mode is iptables, but /)]);
    expect((await cluster.command([...flags, "--cluster-cidr=pods"])).code).toBe(2);
    const { code: wrong, stderr } = await cluster.command([...flags, "--proxy-mode=iptabels"]);
    expect([wrong, stderr]).toEqual([2, expect.stringContaining("did you mean iptables?")]);
  });

  test("a mode that kube-proxy does not have is a problem, and the other checks use the defaults", async () => {
    const { code, findings } = await runPreflight([], { ...configuration(), mode: "iptabels" });
    expect(code).toBe(1);
    expect(saying(findings, "problem")).toContainEqual(
      expect.stringMatching(
        /config\.json: mode: "iptabels" must be nftables, iptables or ipvs: did you mean iptables\?$/,
      ),
    );
    expect(saying(findings, "note", "config")).toContain("the other checks ran with the defaults");
  });

  test("an unknown field is a note", async () => {
    const { code, findings } = await runPreflight([], { ...configuration(), nodePortAddrs: ["primary"] });
    expect(code).toBe(0);
    expect(saying(findings, "note", "config")).toContainEqual(expect.stringMatching(/^nodePortAddrs is not a field/));
  });

  test("a missing bridge is a problem", async () => {
    const { code, findings } = await runPreflight([], {
      ...configuration(),
      detectLocalMode: "BridgeInterface",
      detectLocal: { bridgeInterface: "br-none" },
    });
    expect(code).toBe(1);
    expect(saying(findings, "problem")).toEqual([expect.stringMatching(/^there is no interface br-none/)]);
  });

  test("a port in use by another program is a problem that names the program", async () => {
    const script = "require('node:net').createServer().listen(10256, '0.0.0.0', () => console.log('up'))";
    const other = cluster.lab.node.spawn([process.execPath, "-e", script], { stdio: ["ignore", "pipe", "inherit"] });
    await new Promise((resolve) => other.stdout?.once("data", resolve));
    const { code, findings } = await runPreflight([], { ...configuration(), healthzBindAddress: "0.0.0.0:10256" });
    other.kill();
    expect(code).toBe(1);
    expect(saying(findings, "problem")).toEqual([
      expect.stringMatching(new RegExp(`^healthzBindAddress 0\\.0\\.0\\.0:10256 is in use by \\S+ \\(${other.pid}\\)`)),
    ]);
  });

  test("kube-proxy's flags count, in the notation of Go", async () => {
    const { code, stdout } = await cluster.command([
      "preflight",
      "--cluster_cidr",
      PLAN.clusterCIDR.ip,
      "--masquerade-all",
      "-v=4",
      "--proxy-mode=nftables",
      "-o",
      "yaml",
    ]);
    expect(code).toBe(0);
    expect(stdout).toContain(`pods are identified by clusterCIDR ${PLAN.clusterCIDR.ip}`);
  });
});

describe("objects", () => {
  test("manifests are tried in the kernel, and objects that cannot be served are named", async () => {
    const wrong = { name: "wrong", n: 3, endpoints: ["a"], spec: { externalIPs: ["nowhere"] } };
    const good = await runPreflight(["--manifests", await manifests([web, sticky])]);
    expect(good.code).toBe(0);
    expect(good.report.nodeName).toBe(NODE);
    expect(saying(good.findings, "ok", "rules")).toContainEqual(
      expect.stringMatching(/^IPv4: the kernel accepts the rules with the cluster's services/),
    );
    expect(saying(good.findings, "ok", "objects")).toEqual([
      expect.stringMatching(/2 services with \d+ endpoints over IPv4/),
    ]);
    const misspelt = { name: "web", n: 1, endpoints: ["a"], spec: { externalIps: ["203.0.113.7"] } };
    const ignored = await runPreflight(["--manifests", await manifests([misspelt])]);
    expect([ignored.code, saying(ignored.findings, "problem")]).toEqual([
      1,
      [
        "manifest objects.json: Service default/web: spec.externalIps: unknown field (did you mean externalIPs?); this part is ignored",
      ],
    ]);
    const bad = await runPreflight(["--manifests", await manifests([web, wrong])]);
    expect(bad.code).toBe(1);
    expect(saying(bad.findings, "problem")).toEqual([
      expect.stringMatching(/^Service default\/wrong: spec\.externalIPs\[0\] cannot be served as written: /),
    ]);
  });

  test("objects of the API server are inspected if the configuration points to it", async () => {
    const api = await Api.start(cluster.lab.node);
    await api.call("put", [
      ...[nodeObject(), serviceCIDRObject(), ...serviceObjects(cluster.lab, web)],
    ] as unknown as readonly KubeJson[]);
    const kubeconfig = join(directory, "kubeconfig");
    await writeFile(kubeconfig, api.kubeconfig);
    const { code, findings } = await runPreflight([], { ...configuration(), clientConnection: { kubeconfig } });
    expect(code).toBe(0);
    expect(saying(findings, "ok", "objects")).toEqual([
      expect.stringMatching(/^nft-proxier would serve 1 service with /),
    ]);
    expect(saying(findings, "ok", "node-ports")).toEqual([
      expect.stringMatching(`^nft-proxier would serve node ports on ${PLAN.node.ip}, ${PLAN.node.ip6}`),
    ]);
  });

  test("objects that were not inspected are a note", async () => {
    expect(saying((await runPreflight()).findings, "note", "objects")).toEqual([
      "services were not checked: no API server is configured",
    ]);
  });
});

/** A directory with these services, and the Node. */
async function manifests(services: readonly ServiceSpec[]): Promise<string> {
  const path = await mkdtemp(join(directory, "manifests-"));
  const items = [
    nodeObject(),
    serviceCIDRObject(),
    ...services.flatMap((service) => serviceObjects(cluster.lab, service)),
  ];
  await writeFile(join(path, "objects.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  return path;
}

describe("exit code 2 if the inspection is impossible", () => {
  test("no CAP_NET_ADMIN", async () => {
    const rights = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all"];
    const { code, stdout, stderr } = await cluster.commandThrough(rights, ["preflight"]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/could not be inspected: .*CAP_NET_ADMIN/);
  });

  test.each([["--no-such-flag"], ["--conntrack-min=many"], ["--cleanup"], ["--manifests", "/nowhere"]])(
    "%s",
    async (...words) => {
      const { code, stdout } = await cluster.command(["preflight", ...words]);
      expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    },
  );
});
