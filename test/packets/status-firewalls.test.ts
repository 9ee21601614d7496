/**
 * Other programs' firewalls between clients and services: if they block a packet, `status` names the rule and the service and exits with 1.
 * If they let it pass, or if nobody can know, there is no problem.
 */
import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import type { StatusProblem } from "../../src/observe/status-report.js";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../lab/eventually.ts";
import { addLegacyChains, putLegacyTable } from "../lab/legacy-kernel.ts";
import { legacyRule } from "../lab/legacy-rules.ts";
import type { LegacyRule } from "../lab/legacy-table.ts";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import {
  clusterAddress,
  loadBalancerAddress,
  nodePortOf,
  SERVICE_PORT,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { end } from "./support/daemon.ts";
import { iptablesSave } from "./support/iptables-save.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const far: ServiceSpec = { name: "far", n: 2, endpoints: ["r1"] };
const both: ServiceSpec = { name: "both", n: 3, endpoints: ["a", "r1"] };

let cluster: Cluster;
let directory: string;
let socket: string;
let daemon: ChildProcess;
let args: readonly string[];
beforeAll(async () => {
  cluster = await Cluster.create([
    { name: "a", on: "node" },
    { name: "r1", on: "remote" },
  ]);
  // Otherwise dropped connections of several tests together make an endpoint that never answers.
  await cluster.lab.node.sysctl({ "net.netfilter.nf_conntrack_tcp_timeout_syn_sent": 1 });
  directory = await cluster.temporaryDirectory();
  socket = join(directory, "daemon.sock");
  args = await cluster.write([web, far, both].flatMap((service) => serviceObjects(cluster.lab, service)));
  daemon = cluster.start(["run", ...args, "--control-socket", socket]);
  daemon.stderr?.resume();
  await eventually(async () => expect((await status()).code).toBe(0));
});
afterAll(async () => {
  await end(daemon);
  await cluster.destroy();
});

interface Told {
  readonly code: number | null;
  readonly problems: readonly Pick<StatusProblem, "what" | "remedy" | "concerns">[];
  readonly firewalls?: { readonly checked: number; readonly services: number; readonly unjudged: number };
}

async function status(): Promise<Told> {
  const { code, stdout, stderr } = await cluster.command(["status", "-o", "json", "--socket", socket]);
  if (stdout === "") throw new Error(stderr);
  return { ...(JSON.parse(stdout) as Omit<Told, "code">), code };
}

const nft = (input: string): Promise<string> => cluster.lab.node.mustRun(["nft", "-f", "-"], { input });

/** Whether the client reaches the services. It waits longer for an expected answer than for silence. */
async function expectReached(expected: boolean, ...services: readonly ServiceSpec[]): Promise<void> {
  const reached = services.map(async ({ n }) => {
    const to = { destination: clusterAddress(n).ip, port: SERVICE_PORT };
    const probe = { protocol: "tcp", source: PLAN.client.ip, ...to, ...(expected ? {} : { timeoutMs: 500 }) } as const;
    const [outcome] = await cluster.lab.client.agent().probe(probe);
    return outcome?.result === "ok";
  });
  expect(await Promise.all(reached)).toEqual(services.map(() => expected));
}

/** One statement per line, as nft 1.0.6 requires. */
const wall = (family: string, base: string, ...rules: readonly string[]): string =>
  `table ${family} wall {\nchain gate {\ntype filter hook ${base.replaceAll("; ", "\n")}\n${rules.join("\n")}\n}\n}\n`;

const DROPS: readonly {
  readonly name: string;
  readonly rules: string;
  readonly services: readonly ServiceSpec[];
  readonly what: RegExp;
}[] = [
  {
    name: "the endpoints' port",
    rules: wall("inet", "forward priority -5", "tcp dport 8080 drop"),
    services: [web, far, both],
    what: /chain gate \(hook forward\) of table inet wall drops packets to default\/\w+, default\/\w+, default\/\w+: by rule tcp dport 8080 drop \(handle \d+\)/,
  },
  {
    name: "the pod network of another node",
    rules: wall("inet", "forward priority -5", "ip daddr 10.244.1.0/24 drop"),
    services: [far],
    what: /table inet wall drops packets to default\/(far, default\/both|both, default\/far): by rule ip daddr 10\.244\.1\.0\/24 drop \(handle/,
  },
  {
    name: "packets from an endpoint's interface",
    rules: wall("ip", "forward priority -5", 'iifname "pod0" drop'),
    services: [web],
    what: /table ip wall drops replies of default\/(web, default\/both|both, default\/web): by rule iifname "pod0" drop/,
  },
  {
    name: "with a policy that no rule overrides",
    rules: wall("inet", "forward priority 5; policy drop", "ct state established accept"),
    services: [web, far, both],
    what: /table inet wall drops packets to default\/.*: by policy/,
  },
  {
    name: "a set of endpoints",
    rules: wall("ip", "forward priority 5", "ip daddr { 10.244.0.5, 10.9.9.9 } tcp dport 8000-9000 reject"),
    services: [web],
    what: /table ip wall rejects packets to default\/.*: by rule .*reject/,
  },
  {
    name: "a service's address, before its translation",
    rules: wall("ip", "prerouting priority -150", `ip daddr ${clusterAddress(far.n).ip} tcp dport 80 drop`),
    services: [far],
    what: /\(hook prerouting\) of table ip wall drops packets to default\/far: by rule ip daddr 10\.96\.1\.2 tcp dport 80 drop/,
  },
  {
    name: "a node port, for every client",
    rules: wall("ip", "prerouting priority -150", `tcp dport ${nodePortOf(web.n)} drop`),
    services: [],
    what: /\(hook prerouting\) of table ip wall drops packets to default\/web \(node port 30001\): by rule tcp dport 30001 drop/,
  },
  {
    name: "a load balancer's address, for every client",
    rules: wall("ip", "prerouting priority -150", `ip daddr ${loadBalancerAddress(far.n).ip} reject`),
    services: [],
    what: /\(hook prerouting\) of table ip wall rejects packets to default\/far \(203\.0\.113\.2\): by rule ip daddr 203\.0\.113\.2 reject/,
  },
  {
    name: "packets to an endpoint's device, at its egress",
    rules: wall("netdev", "egress device pod0 priority 0", "tcp dport 8080 drop"),
    services: [web],
    what: /\(hook egress\) of table netdev wall drops packets to default\/(web, default\/both|both, default\/web): by rule tcp dport 8080 drop/,
  },
  {
    name: "replies at the ingress of an endpoint's device",
    rules: wall("inet", "ingress device pod0 priority 0", "tcp sport 8080 drop"),
    services: [web],
    what: /\(hook ingress\) of table inet wall drops replies of default\/(web, default\/both|both, default\/web): by rule tcp sport 8080 drop/,
  },
];

test.for(DROPS)("a firewall drops $name", async ({ rules, services, what }) => {
  await nft(rules);
  try {
    await expectReached(false, ...services);
    await eventually(async () => {
      const { code, problems, firewalls } = await status();
      expect(problems.map((problem) => problem.what)).toContainEqual(expect.stringMatching(what));
      expect([code, firewalls]).toMatchObject([1, { checked: 3, services: 3 }]);
    });
    const { stdout } = await cluster.command(["status", "--socket", socket]);
    expect(stdout).toMatch(/^other programs +3 of 3 services checked/m);
  } finally {
    await nft(`delete table ${/^table (\w+ \w+)/.exec(rules)?.[1] ?? ""}`);
  }
  await eventually(async () => expect(await status()).toMatchObject({ code: 0, problems: [] }));
});

test.for([
  {
    name: "by its zones",
    rules: [`iifname vmap { "eth0" : accept, "eth1" : accept, "out0" : accept }`],
    by: "by policy",
  },
  {
    name: "by their network",
    rules: ["ip saddr 10.244.0.0/16 drop", "accept"],
    by: "by rule ip saddr 10\\.244\\.0\\.0/16 drop",
  },
])(
  "a firewall that refuses every pod is a problem, although it accepts clients outside: $name",
  async ({ rules, by }) => {
    await nft(wall("inet", "forward priority 0; policy drop", "ct state established accept", ...rules));
    try {
      await expectReached(true, web, far);
      const to = { destination: clusterAddress(far.n).ip, port: SERVICE_PORT, timeoutMs: 500 };
      const pod = cluster.lab.pod("a");
      const [outcome] = await pod.namespace.agent().probe({ protocol: "tcp", source: pod.address.ip, ...to });
      expect(outcome?.result).not.toBe("ok");
      await eventually(async () => {
        const { code, problems } = await status();
        expect(problems.map((problem) => problem.what)).toContainEqual(
          expect.stringMatching(
            new RegExp(
              `^chain gate \\(hook forward\\) of table inet wall drops packets to default/.* from pods \\(pod0\\): ${by}`,
            ),
          ),
        );
        expect(code).toBe(1);
      });
    } finally {
      await nft("delete table inet wall");
    }
  },
);

test("rules that change the masquerade bit are problems, as preflight says", async () => {
  const said = async (): Promise<readonly string[]> => {
    // A busy machine may not check all services within the time.
    const withoutNames = ({ what }: { readonly what: string }): string =>
      what.replace(/(?:default\/\w+(?:, )?)+/, "services");
    const problems = (await status()).problems.map(withoutNames);
    const { stdout } = await cluster.command(["preflight", ...args, "-o", "json"]);
    const { findings } = JSON.parse(stdout) as { findings: { level: string; check: string; what: string }[] };
    const same = findings.filter(({ level, check }) => level === "problem" && check === "masquerade-bit");
    expect(same.map(withoutNames)).toEqual(problems);
    return problems;
  };
  const keepsTheBit = [`meta mark set meta mark or 0x20`, `iifname "wg0" meta mark set 0x1`];
  await nft(wall("inet", "postrouting priority -150", ...keepsTheBit));
  try {
    await eventually(async () => expect(await said()).toEqual([]));
    await nft(`add rule inet wall gate iifname "eth1" meta mark set meta mark and 0xffffbfff`);
    await eventually(async () =>
      expect(await said()).toEqual([
        expect.stringMatching(
          /^rules of chain gate \(hook postrouting\) of table inet wall overwrite bit 14 of the packet mark \(0x4000\), such as iifname "eth1" .*\(handle \d+\): nft-proxier does not masquerade packets to services that they match, so answers of endpoints on other nodes bypass this node/,
        ),
      ]),
    );
    // The answers of endpoints on this node come back in any case.
    await eventually(async () => {
      const named = (await status()).problems.flatMap(({ concerns = [] }) => concerns.map(({ service }) => service));
      expect(new Set(named)).toEqual(new Set(["default/far", "default/both"]));
    });
    await nft("flush chain inet wall gate\nadd rule inet wall gate udp dport 4789 meta mark set meta mark or 0x4000");
    await eventually(async () =>
      expect(await said()).toEqual([
        "rules of table inet wall set bit 14 of the packet mark (0x4000) (chain gate), so nft-proxier masquerades the service connections that they mark",
      ]),
    );
  } finally {
    await nft("delete table inet wall");
  }
});

test("a firewall at the device of some clients is named", async () => {
  await nft(wall("netdev", "ingress device eth1 priority 0", "tcp dport 80 drop"));
  try {
    await expectReached(false, far);
    await eventually(async () => {
      const { code, problems, firewalls } = await status();
      expect({ code, problems, firewalls }).toMatchObject({ code: 0, problems: [], firewalls: { unjudged: 3 } });
    });
    const { stdout } = await cluster.command(["status", "--socket", socket]);
    expect(stdout).toMatch(/depends on the client or on facts .*: netdev wall gate: tcp dport 80 drop \(handle \d+\)/);
  } finally {
    await nft("delete table netdev wall");
  }
});

test.for(["tcp dport 80 notrack", "tcp sport 8080 notrack"])(
  "services are not judged if a rule exempts their packets from connection tracking: %s",
  async (rule) => {
    await nft(wall("inet", "prerouting priority -300", rule));
    try {
      await expectReached(false, web, far);
      await eventually(async () =>
        expect(await status()).toMatchObject({ code: 0, problems: [], firewalls: { checked: 3, unjudged: 3 } }),
      );
    } finally {
      await nft("delete table inet wall");
    }
  },
);

const PASSES: readonly { readonly name: string; readonly rules: string; readonly unjudged: number }[] = [
  {
    name: "accepts translated service packets",
    rules: wall(
      "inet",
      "forward priority 5; policy drop",
      "ct state established,related accept",
      "ct status dnat accept",
    ),
    unjudged: 0,
  },
  {
    name: "drops other addresses, ports and interfaces",
    rules: wall(
      ...["inet", "forward priority -5", "ip daddr 10.99.0.0/16 drop", "tcp dport { 22, 23 } drop"],
      ...['oifname "docker0" drop', "ct state invalid drop", "ip6 daddr fd00:99::/32 drop"],
    ),
    // Clients may have these addresses.
    unjudged: 3,
  },
  {
    name: "drops packets of interfaces that this node does not have",
    rules: wall("inet", "forward priority -5", 'oifname "docker0" drop', 'iifname "br-*" drop'),
    unjudged: 0,
  },
  {
    name: "drops one sender, and excessive packets",
    rules: wall(
      "inet",
      "forward priority -5",
      "ip saddr 198.51.100.66 drop",
      "limit rate over 1000/second burst 1000 packets drop",
    ),
    unjudged: 3,
  },
];

test.for(PASSES)("a firewall $name", async ({ rules, unjudged }) => {
  await nft(rules);
  try {
    await expectReached(true, web, far, both);
    await eventually(async () =>
      expect(await status()).toMatchObject({ code: 0, problems: [], firewalls: { checked: 3, services: 3, unjudged } }),
    );
  } finally {
    await nft("delete table inet wall");
  }
});

/** As a Docker daemon writes them. Its own bridge is the only interface whose packets it accepts. */
const DOCKER = iptablesSave(`*filter
:FORWARD DROP
:DOCKER-USER
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER-FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -i docker0 -j ACCEPT
`);
const ABSENT = `${["docker0", "wg0", "br-*"].map((name) => `iifname "${name}" accept`).join("\n")}\nct state established accept`;

test.for([
  {
    name: "Docker's, with its bridge",
    load: async () => {
      await cluster.lab.node.mustRun(["ip", "link", "add", "docker0", "type", "bridge"]);
      await cluster.lab.node.mustRun(["ip", "link", "set", "docker0", "up"]);
      await cluster.lab.node.mustRun(["iptables-nft-restore"], { input: DOCKER });
    },
    what: /^chain FORWARD \(hook forward\) of table ip filter drops packets to default\/web, default\/far, default\/both from every interface but docker0: by policy$/,
    remedy: /^run `iptables -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT`/,
    unload: ["nft delete table ip filter", "ip link delete docker0"],
  },
  {
    name: "that accept only interfaces which this node does not have",
    load: () => nft(wall("inet", "forward priority 0; policy drop", ABSENT)),
    what: /^chain gate \(hook forward\) of table inet wall drops packets to default\/web, default\/far, default\/both: by policy$/,
    remedy: /^run `nft insert rule inet wall gate ct status dnat accept`/,
    unload: ["nft delete table inet wall"],
  },
  {
    name: "that compare interfaces by their index, and accept only the loopback interface",
    load: () => nft(wall("inet", "forward priority 0; policy drop", 'iif "lo" accept', "ct state established accept")),
    what: /^chain gate \(hook forward\) of table inet wall drops packets to default\/web, default\/far, default\/both: by policy$/,
    remedy: /^run `nft insert rule inet wall gate ct status dnat accept`/,
    unload: ["nft delete table inet wall"],
  },
])("rules drop everything: $name", async ({ load, what, remedy, unload }) => {
  await load();
  try {
    await expectReached(false, web, far, both);
    await eventually(async () => {
      const { code, problems } = await status();
      expect(problems.map((problem) => [problem.what, problem.remedy])).toEqual([
        [expect.stringMatching(what), expect.stringMatching(remedy)],
      ]);
      expect(code).toBe(1);
    });
  } finally {
    for (const command of unload) await cluster.lab.node.mustRun(command.split(" "));
  }
  await eventually(async () => expect(await status()).toMatchObject({ code: 0, problems: [] }));
});

test("rules that accept packets from pods' interfaces alone are no problem, because clients outside may be unwanted", async () => {
  await nft(wall("inet", "forward priority 0; policy drop", 'iifname "pod*" accept', "ct state established accept"));
  try {
    await expectReached(false, web);
    await eventually(async () =>
      expect(await status()).toMatchObject({ code: 0, problems: [], firewalls: { checked: 3, unjudged: 3 } }),
    );
  } finally {
    await nft("delete table inet wall");
  }
});

test("a table with more rules than the limit is reported as unchecked", async () => {
  await nft(
    wall("inet", "forward priority -5", ...Array.from({ length: 2100 }, (_, i) => `tcp dport ${20_000 + i} drop`)),
  );
  try {
    await eventually(async () => {
      const { stdout, code } = await cluster.command(["status", "--socket", socket]);
      expect(stdout).toMatch(/^other programs .*not checked: inet wall \(2100 rules\)/m);
      expect(code).toBe(0);
    });
  } finally {
    await nft("delete table inet wall");
  }
});

test("iptables-legacy's chain FORWARD drops by policy", async (context) => {
  if (!(await addLegacyChains(cluster.node.prefix, "ip", "filter", ["FORWARD:drop"]))) {
    context.skip("this kernel does not have the older iptables");
  }
  await expectReached(false, web);
  await eventually(async () => {
    const { code, problems } = await status();
    expect(problems[0]?.what).toMatch(
      /^chain FORWARD of table ip filter of iptables-legacy drops forwarded packets by policy/,
    );
    expect([code, problems[0]?.remedy]).toEqual([1, expect.stringMatching(/^run `iptables-legacy -I FORWARD/)]);
  });
  const preflight = await cluster.command(["preflight"]);
  expect(preflight.stdout).toMatch(
    /PROBLEM.*chain FORWARD of table ip filter of iptables-legacy drops forwarded packets/i,
  );
  const filter = (policy: "ACCEPT" | "DROP", rules: readonly LegacyRule[]): Promise<boolean> =>
    putLegacyTable(cluster.node.prefix, "ip", "filter", [
      { name: "INPUT", policy: "ACCEPT", rules: [] },
      { name: "FORWARD", policy, rules },
      { name: "OUTPUT", policy: "ACCEPT", rules: [] },
    ]);
  // Its rules may accept packets to services: nobody can know.
  await filter("DROP", [legacyRule("ip", "accept")]);
  await expectReached(true, web);
  await eventually(async () => {
    const { stdout, code } = await cluster.command(["status", "--socket", socket]);
    expect(stdout).toMatch(
      /^other programs .*not checked: filter of iptables-legacy, whose chain FORWARD drops by policy/m,
    );
    expect(code).toBe(0);
  });
  await filter("ACCEPT", []);
  await expectReached(true, web);
  await eventually(async () => expect((await status()).code).toBe(0));
});
