/**
 * `explain` beside other programs' rules: its answer is what the packet then meets, or it says that it does not know.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { explainPacket, type Explanation } from "../../src/tools/explain/explain-packet.ts";
import { NftKernel } from "../../src/netlink/nft-kernel.ts";
import type { Expr } from "../../src/netlink/kernel.ts";
import { putLegacyTable } from "../lab/legacy-kernel.ts";
import { legacyRule } from "../lab/legacy-rules.ts";
import type { LegacyRule } from "../lab/legacy-table.ts";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { foreignMatches } from "./support/foreign-rules.ts";
import {
  clusterAddress,
  nodePortOf,
  POD_PORT,
  SERVICE_PORT,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { someOf } from "../lab/length.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"], protocols: ["tcp", "udp"] };
const two: ServiceSpec = { name: "two", n: 2, endpoints: ["a", "b"], protocols: ["tcp"] };
const VIP = clusterAddress(web.n).ip;
const NODE_PORT = nodePortOf(web.n);
const OTHER_PORT = 9100;
const DROP_MS = 250;
const ANSWER_MS = 10_000;

let cluster: Cluster;
let kernel: NftKernel;
beforeAll(async () => {
  cluster = await Cluster.create([
    { name: "a", on: "node" },
    { name: "b", on: "node" },
  ]);
  await cluster.apply([web, two].flatMap((service) => serviceObjects(cluster.lab, service)));
  for (const port of [SERVICE_PORT, NODE_PORT]) await cluster.catchUntouched(port);
  await cluster.node.agent().serve("tcp", "*", OTHER_PORT, "node");
  kernel = await NftKernel.open({ netns: `/run/netns/${cluster.lab.node.name}` });
});
afterAll(async () => {
  await kernel.close();
  await cluster.destroy();
});

interface Sent {
  readonly from: "client" | "b";
  readonly to: "node port" | "ClusterIP";
  readonly protocol?: "tcp" | "udp";
}

const addressOf = ({ to }: Sent): { readonly destination: string; readonly port: number } =>
  to === "node port" ? { destination: PLAN.node.ip, port: NODE_PORT } : { destination: VIP, port: SERVICE_PORT };

async function explained(sent: Sent): Promise<Explanation> {
  const { destination, port } = addressOf(sent);
  const source = cluster.source(sent.from).address!.ip;
  const inInterface = sent.from === "client" ? "eth1" : "pod1";
  const packet = { family: "ip", protocol: sent.protocol ?? "tcp", source, destination, inInterface } as const;
  return explainPacket(kernel, { ...packet, destinationPort: port });
}

/** The packet's fate, in the form of an explanation. */
async function met(sent: Sent, isDropExpected: boolean): Promise<Explanation["verdict"]> {
  const { destination, port } = addressOf(sent);
  const { namespace, address } = cluster.source(sent.from);
  const probe = { protocol: sent.protocol ?? "tcp", source: address!.ip, destination, port } as const;
  const [outcome] = await namespace.agent().probe({ ...probe, timeoutMs: isDropExpected ? DROP_MS : ANSWER_MS });
  if (outcome?.result === "timeout") return "dropped";
  if (outcome?.result === "refused" || outcome?.result === "unreachable") return "rejected";
  if (outcome?.result !== "ok") throw new Error(JSON.stringify(outcome));
  if (outcome.name === "a") return "endpoint";
  return outcome.atPort === port ? "untouched" : "redirected";
}

/** Loads these rules into the kernel. Returns the explanation, and its differences from reality. */
async function compare(
  rules: string,
  sent: Sent,
): Promise<{ readonly said: Explanation; readonly wrong: string | undefined }> {
  const nft = (text: string): Promise<string> => cluster.lab.node.mustRun(["nft", "-f", "-"], { input: text });
  await nft(rules);
  try {
    const said = await explained(sent);
    // "unknown" claims nothing.
    if (said.verdict === "unknown") return { said, wrong: undefined };
    const expected = said.verdict !== "rejected" && said.reply !== undefined ? "dropped" : said.verdict;
    const seen = await met(sent, expected === "dropped");
    const agrees = expected === seen;
    const steps = said.steps.map(({ hook, chain, text }) => `\n    ${hook} ${chain}: ${text}`).join("");
    return { said, wrong: agrees ? undefined : `${rules}: said ${said.verdict}, seen ${seen}${steps}` };
  } finally {
    const tables = [...rules.matchAll(/^table (\w+ \w+)/gm)].map(([, table]) => `delete table ${table}\n`);
    await nft([...new Set(tables)].join(""));
  }
}

/** `explain` describes the first packet only: later ones pass. */
const REPLIES = "ct state established accept";
/** One statement per line, as nft 1.0.6 requires. */
const table = (name: string, ...parts: readonly string[]): string =>
  `table inet ${name} {\n${parts.join("\n").replaceAll("; ", "\n").replaceAll("{ type", "{\ntype")}\n}\n`;
const chain = (base: string, ...rules: readonly string[]): string => {
  const all = /hook (forward|postrouting)/.test(base) ? [REPLIES, ...rules] : rules;
  return `chain f {\ntype ${base}\n${all.join("\n")}\n}`;
};

describe("every expression at forward, before a drop, and before an accept that a drop follows", () => {
  const rules = foreignMatches({
    ...{ client: PLAN.client.ip, endpoint: "10.244.0.5", vip: PLAN.node.ip, port: NODE_PORT },
    ...{ inInterface: "eth1", outInterface: "pod0" },
  });

  test.for(someOf(rules, 10))("$text", async ({ text, judgeable, more = "" }) => {
    const matching = /vmap/.test(text) ? [[text]] : [[`${text} drop`], [`${text} accept`, "drop"]];
    for (const lines of matching) {
      const { said, wrong } = await compare(
        table("foreign", more, chain("filter hook forward priority -5", ...lines)),
        { from: "client", to: "node port" },
      );
      expect(wrong).toBeUndefined();
      if (judgeable === "known") expect(said.unknown).toEqual([]);
      else if (said.verdict === "unknown") expect(said.unknown[0]).toMatch(/^inet foreign f: .* \(handle \d+\)$/);
    }
  });

  test("a rule that cannot be judged decides nothing if both outcomes are the same", async () => {
    const rows = [
      `ip ttl 63 accept`,
      `limit rate 5/second counter`,
      `meta cpu 0 meta mark set meta mark or 3`,
      `limit rate 1/second drop\ndrop`,
    ];
    for (const row of rows) {
      const { said, wrong } = await compare(table("foreign", chain("filter hook forward priority -5", row)), {
        from: "client",
        to: "node port",
      });
      expect([wrong, said.unknown]).toEqual([undefined, []]);
    }
  });
});

describe("rules at other hooks", () => {
  const pre = (priority: number): string => `filter hook prerouting priority ${priority}`;
  const CASES: readonly (Sent & { readonly name: string; readonly rules: string; readonly judgeable?: "open" })[] = [
    {
      ...{ name: "notrack of a ClusterIP", from: "b", to: "ClusterIP" },
      rules: table("foreign", chain(pre(-300), `ip daddr ${VIP} notrack`)),
    },
    {
      ...{ name: "notrack after the connection tracker", from: "b", to: "ClusterIP" },
      rules: table("foreign", chain(pre(-150), `ip daddr ${VIP} notrack`)),
    },
    {
      ...{ name: "ct state of an untracked packet", from: "b", to: "ClusterIP" },
      rules: table("foreign", chain(pre(-300), "ct state new drop")),
    },
    {
      ...{ name: "redirect before our rules", from: "client", to: "node port" },
      rules: table(
        "foreign",
        chain("nat hook prerouting priority -110", `tcp dport ${NODE_PORT} redirect to :${OTHER_PORT}`),
      ),
    },
    {
      ...{ name: "redirect after our rules", from: "client", to: "node port" },
      rules: table(
        "foreign",
        chain("nat hook prerouting priority -90", `tcp dport ${NODE_PORT} redirect to :${OTHER_PORT}`),
      ),
    },
    {
      ...{ name: "redirect at our priority", from: "client", to: "node port", judgeable: "open" },
      rules: table(
        "foreign",
        chain("nat hook prerouting priority -100", `tcp dport ${NODE_PORT} redirect to :${OTHER_PORT}`),
      ),
    },
    {
      ...{ name: "a filter between a NAT chain's own priority and NAT", from: "client", to: "node port" },
      rules:
        table("nats", chain("nat hook prerouting priority -110", `tcp dport ${NODE_PORT} redirect to :${OTHER_PORT}`)) +
        table("foreign", chain(pre(-105), `tcp dport ${OTHER_PORT} drop`)),
    },
    {
      ...{ name: "another program's DNAT to the endpoint", from: "client", to: "node port" },
      rules: `table ip foreign {\n${chain("nat hook prerouting priority -110", `tcp dport ${NODE_PORT} dnat to 10.244.0.5:${POD_PORT}`)}\n}\n`,
    },
    {
      ...{ name: "another program's DNAT to one of many", from: "client", to: "node port", judgeable: "open" },
      rules: `table ip foreign {\n${chain("nat hook prerouting priority -110", `tcp dport ${NODE_PORT} dnat to 10.244.0.5-10.244.0.6:${POD_PORT}`)}\n}\n`,
    },
    {
      ...{ name: "ct mark set, then matched", from: "client", to: "node port" },
      rules:
        table("first", chain(pre(-150), `ip saddr ${PLAN.client.ip} ct mark set 5`)) +
        table("foreign", chain("filter hook forward priority -5", "ct mark 5 drop")),
    },
    {
      ...{ name: "ct mark set before the connection tracker", from: "client", to: "node port" },
      rules:
        table("first", chain(pre(-300), "ct mark set 5")) +
        table("foreign", chain("filter hook forward priority -5", "ct mark 5 drop")),
    },
    {
      ...{ name: "a mark set at random, then matched", from: "client", to: "node port", judgeable: "open" },
      rules:
        table("first", chain(pre(-150), "meta mark set numgen random mod 2")) +
        table("foreign", chain("filter hook forward priority -5", "meta mark 1 drop")),
    },
    {
      ...{ name: "ttl set, then matched", from: "client", to: "node port" },
      rules: table("foreign", chain("filter hook forward priority -5", "ip ttl set 9", "ip ttl 9 accept", "drop")),
    },
    {
      ...{ name: "a time to live that ends at this node", from: "client", to: "node port", judgeable: "open" },
      rules: table("foreign", chain(pre(-150), "ip ttl set 1")),
    },
    {
      ...{ name: "a packet type of other hosts", from: "client", to: "node port", judgeable: "open" },
      rules: table("foreign", chain(pre(-150), "meta pkttype set broadcast")),
    },
    {
      ...{ name: "flags with which no connection begins", from: "client", to: "node port", judgeable: "open" },
      rules: table("foreign", chain(pre(-150), "tcp flags syn tcp flags set fin")),
    },
    {
      ...{ name: "another protocol", from: "client", to: "node port", judgeable: "open" },
      rules: table("foreign", chain(pre(-150), "ip protocol tcp ip protocol set 17")),
    },
    {
      ...{ name: "another hardware address", from: "client", to: "node port", judgeable: "open" },
      rules: `table netdev foreign {\n${chain("filter hook egress device pod0 priority 0", "ether daddr set 02:00:00:00:00:99")}\n}\n`,
    },
    {
      ...{ name: "DNAT to a loopback address", from: "client", to: "node port", judgeable: "open" },
      rules: table(
        "foreign",
        chain("nat hook prerouting priority -110", `tcp dport ${NODE_PORT} dnat ip to 127.0.0.1:${OTHER_PORT}`),
      ),
    },
    {
      ...{ name: "jumps, goto and return", from: "client", to: "node port" },
      rules: table(
        "foreign",
        "chain c {\nreturn\ndrop\n}\nchain d {\nip ttl 99 return\n}\nchain e {\ndrop\n}",
        chain("filter hook forward priority -5", "jump c", "jump d", "tcp dport 8080 goto e", "accept"),
      ),
    },
    {
      ...{ name: "a policy after a rule that cannot be judged", from: "client", to: "node port", judgeable: "open" },
      rules: table("foreign", chain("filter hook forward priority -5; policy drop;", "limit rate 5/second accept")),
    },
    {
      ...{ name: "reject", from: "client", to: "node port" },
      rules: table("foreign", chain("filter hook forward priority -5", "tcp dport 8080 reject with tcp reset")),
    },
    {
      ...{ name: "a masqueraded connection's own mark", from: "client", to: "node port" },
      rules: table("foreign", chain("filter hook forward priority -5", "meta mark & 0x4000 == 0x4000 accept", "drop")),
    },
    {
      ...{ name: "postrouting after masquerading", from: "client", to: "node port" },
      rules: table("foreign", chain("filter hook postrouting priority 150", `ip saddr ${PLAN.client.ip} drop`)),
      judgeable: "open",
    },
    {
      ...{ name: "a device's ingress", from: "client", to: "node port" },
      rules: `table netdev foreign {\n${chain("filter hook ingress device eth1 priority 0", `tcp dport ${NODE_PORT} drop`)}\n}\n`,
    },
    {
      ...{ name: "another device's ingress", from: "client", to: "node port" },
      rules: `table netdev foreign {\n${chain("filter hook ingress device eth0 priority 0", "drop")}\n}\n`,
    },
    {
      ...{ name: "a device's ingress in an inet table", from: "client", to: "node port" },
      rules: table(
        "foreign",
        chain("filter hook ingress device eth1 priority 0", "meta nfproto ipv4 ct state invalid drop"),
      ),
    },
    {
      ...{ name: "a device's egress", from: "client", to: "node port" },
      rules: `table netdev foreign {\n${chain("filter hook egress device pod0 priority 0", `tcp dport ${POD_PORT} drop`)}\n}\n`,
    },
    {
      ...{ name: "a reject at ingress", from: "client", to: "node port" },
      rules: `table netdev foreign {\n${chain("filter hook ingress device eth1 priority 0", `tcp dport ${NODE_PORT} reject`)}\n}\n`,
    },
    {
      ...{ name: "an error that another chain drops", from: "client", to: "node port" },
      rules: table(
        "foreign",
        chain("filter hook forward priority -5", "tcp dport 8080 reject"),
        "chain g {\ntype filter hook output priority 5\nmeta l4proto icmp drop\n}",
      ),
    },
    {
      ...{ name: "jhash with a seed of the kernel's", from: "client", to: "node port", judgeable: "open" },
      rules: table("foreign", chain("filter hook forward priority -5", "jhash ip daddr mod 2 0 drop")),
    },
    {
      ...{ name: "a filter at the priority of NAT", from: "client", to: "node port", judgeable: "open" },
      rules: table("foreign", chain(pre(-100), `tcp dport ${NODE_PORT} drop`)),
    },
    {
      ...{ name: "notrack at the connection tracker's priority", from: "b", to: "ClusterIP", judgeable: "open" },
      rules:
        table("first", chain(pre(-200), "ct state established accept")) + table("foreign", chain(pre(-200), "notrack")),
    },
    {
      ...{ name: "a filter at the priority of NAT that no order concerns", from: "client", to: "node port" },
      rules: table("foreign", chain(pre(-100), `ip saddr ${PLAN.client.ip} drop`)),
    },
    {
      ...{ name: "four tables of one priority", from: "client", to: "node port", judgeable: "open" },
      rules: ["mark 1 drop", "mark 2 mark set 1", "mark 3 mark set 2", "mark 0 mark set 3"]
        .map((rule, i) =>
          table(`t${i}`, chain("filter hook forward priority -5", `meta ${rule.replace("mark set", "meta mark set")}`)),
        )
        .join(""),
    },
    {
      ...{ name: "six tables of one priority that no order concerns", from: "client", to: "node port" },
      rules: Array.from({ length: 6 }, (_, i) =>
        table(`t${i}`, chain("filter hook forward priority -5", i === 3 ? "tcp dport 8080 drop" : "counter")),
      ).join(""),
    },
    {
      ...{ name: "six tables of one priority", from: "client", to: "node port", judgeable: "open" },
      rules: Array.from({ length: 6 }, (_, i) =>
        table(`t${i}`, chain("filter hook forward priority -5", `meta mark ${i} drop`, `meta mark set ${i + 1}`)),
      ).join(""),
    },
    {
      ...{ name: "DNAT to the packet's own destination", from: "client", to: "node port" },
      rules:
        `table ip first {\n${chain("nat hook prerouting priority -110", `tcp dport ${NODE_PORT} dnat to ${PLAN.node.ip}:${NODE_PORT}`)}\n}\n` +
        table("foreign", "chain f {\ntype filter hook input priority -5\nct status dnat drop\n}"),
    },
    {
      ...{ name: "the priority that the kernel sets from the type of service", from: "client", to: "node port" },
      rules:
        table("first", chain(pre(-150), "ip dscp set cs1")) +
        table("foreign", chain("filter hook forward priority -5", "meta priority 0:2 drop")),
    },
    {
      ...{ name: "a priority that no type of service has", from: "client", to: "node port" },
      rules:
        table("first", chain(pre(-150), "meta priority set 0:1")) +
        table("foreign", chain("filter hook forward priority -5", "meta priority 0:1 drop")),
    },
    {
      ...{ name: "a destination that another program rewrites", from: "b", to: "ClusterIP", judgeable: "open" },
      rules: table("foreign", chain(pre(-300), `ip daddr ${VIP} ip daddr set 10.244.0.5`)),
    },
    {
      ...{ name: "a zone of connection tracking", from: "b", to: "ClusterIP", judgeable: "open" },
      rules: table("foreign", chain(pre(-300), "ct zone set 7")),
    },
    {
      ...{ name: "UDP expressions", from: "b", to: "ClusterIP", protocol: "udp" },
      rules: table(
        "foreign",
        chain("filter hook forward priority -5", "tcp dport 8080 drop", "udp dport 8080 accept", "drop"),
      ),
    },
    {
      ...{ name: "UDP length", from: "b", to: "ClusterIP", protocol: "udp", judgeable: "open" },
      rules: table("foreign", chain("filter hook forward priority -5", "udp length > 8 drop")),
    },
  ];

  test.for(someOf(CASES, 3))("$name", async ({ rules, judgeable, name: _, ...sent }) => {
    const { said, wrong } = await compare(rules, sent);
    expect(wrong).toBeUndefined();
    if (judgeable === undefined) expect(said.unknown).toEqual([]);
  });
});

test("each endpoint has its own end", async () => {
  const b = cluster.lab.pod("b").address.ip;
  const rules = table("corpfw", chain("filter hook forward priority 0", `ip daddr ${b} tcp dport 8080 counter drop`));
  await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: rules });
  try {
    const to = { destination: clusterAddress(two.n).ip, port: SERVICE_PORT };
    const probe = { protocol: "tcp", source: PLAN.client.ip, ...to, count: 24, timeoutMs: DROP_MS } as const;
    const results = new Set((await cluster.lab.client.agent().probe(probe)).map(({ result }) => result));
    expect(results).toEqual(new Set(["ok", "timeout"]));
    const words = ["explain", "tcp", PLAN.client.ip, `${to.destination}:${to.port}`];
    const { stdout } = await cluster.command(words);
    const by = String.raw`dropped by inet corpfw f: ip daddr ${b.replaceAll(".", String.raw`\.`)} tcp dport 8080 .*drop \(handle \d+\)`;
    expect(stdout).toMatch(/^tcp .*: depends on the endpoint: 50 % of new connections are dropped or rejected$/m);
    expect(stdout).toMatch(new RegExp(`^ +${b}:8080 +50 % +${by}$`, "m"));
    expect(stdout).toMatch(/^ +10\.244\.0\.5:8080 +50 % +sees/m);
    const said = JSON.parse((await cluster.command([...words, "-o", "json"])).stdout) as Explanation;
    expect(said.verdict).toBe("mixed");
    const ends = said.endpoints.map((each) => [each.address, each.share, each.verdict, each.by]);
    expect(ends.toSorted(([one = ""], [other = ""]) => (one < other ? -1 : 1))).toEqual([
      ["10.244.0.5", 0.5, undefined, undefined],
      [b, 0.5, "dropped", expect.stringMatching(new RegExp(by.replace("dropped by ", "")))],
    ]);
  } finally {
    await cluster.lab.node.mustRun(["nft", "delete", "table", "inet", "corpfw"]);
  }
});

test("a reply that another table drops is reported", async () => {
  const rules = table("corpfw", "chain f {\ntype filter hook forward priority 0\nip saddr 10.244.0.5 drop\n}");
  await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: rules });
  try {
    const sent: Sent = { from: "client", to: "node port" };
    expect(await met(sent, true)).toBe("dropped");
    const by = expect.stringMatching(/^inet corpfw f: ip saddr 10\.244\.0\.5 drop \(handle \d+\)$/) as string;
    const reply = { verdict: "dropped", by };
    expect(await explained(sent)).toMatchObject({ verdict: "endpoint", reply, endpoints: [{ reply }] });
    const { stdout } = await cluster.command(["explain", "tcp", PLAN.client.ip, `${PLAN.node.ip}:${NODE_PORT}`]);
    expect(stdout.split("\n")[0]).toMatch(
      /: goes to an endpoint, but the reply is dropped by inet corpfw f: ip saddr 10\.244\.0\.5 drop \(handle \d+\)$/,
    );
  } finally {
    await cluster.lab.node.mustRun(["nft", "delete", "table", "inet", "corpfw"]);
  }
});

/**
 * An attribute of netlink; a match or target of iptables in the form of nft_compat
 * (linux/netfilter/nf_tables_compat.h).
 */
function attribute(type: number, data: Uint8Array): Buffer {
  const bytes = Buffer.alloc((data.length + 7) & ~3);
  bytes.writeUInt16LE(4 + data.length, 0);
  bytes.writeUInt16LE(type, 2);
  bytes.set(data, 4);
  return bytes;
}
function xt(kind: "match" | "target", name: string, revision: number, info: Uint8Array): Expr {
  const parts = [
    attribute(1, Buffer.from(`${name}\0`)),
    attribute(2, Uint8Array.of(0, 0, 0, revision)),
    attribute(3, info),
  ];
  return { type: "opaque", name: kind, data: new Uint8Array(Buffer.concat(parts)) };
}
const words = (...values: readonly number[]): Uint8Array => new Uint8Array(Uint32Array.from(values).buffer);
/** struct xt_conntrack_mtinfo3, with states only. */
function connectionStates(mask: number, inverted = false): Uint8Array {
  const info = Buffer.alloc(168);
  info.writeUInt16LE(1 | (1 << 13), 146);
  info.writeUInt16LE(inverted ? 1 : 0, 148);
  info.writeUInt16LE(mask, 150);
  return info;
}
const MATCHES: readonly (readonly [name: string, ...exprs: Expr[]])[] = [
  ["a comment", xt("match", "comment", 0, Buffer.alloc(256))],
  ["a mark that the packet has", xt("match", "mark", 1, words(0, 0xff, 0))],
  ["a mark that the packet does not have", xt("match", "mark", 1, words(0x8000, 0x8000, 0))],
  ["an inverted mark", xt("match", "mark", 1, words(0x8000, 0x8000, 1))],
  [
    "a mark that the packet is given",
    xt("target", "MARK", 2, words(0x8000, 0x8000)),
    xt("match", "mark", 1, words(0x8000, 0x8000, 0)),
  ],
  ["NEW", xt("match", "conntrack", 3, connectionStates(8))],
  ["RELATED,ESTABLISHED", xt("match", "conntrack", 3, connectionStates(6))],
  ["DNAT", xt("match", "conntrack", 3, connectionStates(128))],
  ["! DNAT", xt("match", "conntrack", 3, connectionStates(128, true))],
  ["NEW, with the older match", xt("match", "state", 0, words(8))],
];

test.for(MATCHES)("the match of iptables-nft is understood: %s", async ([, ...exprs]) => {
  const sent: Sent = { from: "client", to: "node port" };
  await cluster.lab.node.mustRun(["nft", "-f", "-"], {
    input: `table ip filter {\n${chain("filter hook forward priority 0")}\n}\n`,
  });
  try {
    const drop: Expr = { type: "immediate", dreg: 0, data: { verdict: "drop" } };
    // A target ends a rule of iptables.
    const ahead = exprs.slice(0, -1).map((expr) => [expr]);
    for (const rule of [...ahead, [...exprs.slice(-1), drop]]) {
      await kernel.commit([{ op: "add", kind: "rule", family: "ip", table: "filter", chain: "f", exprs: rule }]);
    }
    const said = await explained(sent);
    expect(said.unknown).toEqual([]);
    expect(said.verdict).toBe(await met(sent, said.verdict === "dropped"));
  } finally {
    await cluster.lab.node.mustRun(["nft", "delete", "table", "ip", "filter"]);
  }
});

test("the order of chains with the same priority is named only if it changes the outcome", async () => {
  const quota = "quota q { over 25 mbytes }";
  // Whether the quota's rule accepts decides, in both orders.
  const table = `table inet a {\n${quota}\nchain i {\ntype filter hook input priority 0; policy drop\nquota name "q" accept\n}\n}\n`;
  const beside = "table inet b {\nchain i {\ntype filter hook input priority 0\ntcp dport 4399 counter\n}\n}\n";
  await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: table + beside });
  try {
    const { stdout } = await cluster.command(["explain", "tcp", PLAN.client.ip, `${PLAN.node.ip}:4399`]);
    expect(stdout.split("\n")[0]).toMatch(
      /unknown: it depends on inet a i: quota name q accept \(handle \d+\); if it does not match, the packet is dropped silently$/,
    );
  } finally {
    for (const name of ["a", "b"]) await cluster.lab.node.mustRun(["nft", "delete", "table", "inet", name]);
  }
});

test("if the order of chains decides, the headline says what happens in one order", async () => {
  const chain = (name: string, rule: string): string =>
    `table inet ${name} {\nchain i {\ntype filter hook input priority 7\n${rule}\n}\n}\n`;
  const input = chain("a", "tcp dport 4399 drop") + chain("b", "tcp dport 4399 reject with tcp reset");
  await cluster.lab.node.mustRun(["nft", "-f", "-"], { input });
  try {
    const { stdout } = await cluster.command(["explain", "tcp", PLAN.client.ip, `${PLAN.node.ip}:4399`]);
    expect(stdout.split("\n")[0]).toMatch(
      /unknown: it depends on the order of inet \w, inet \w, which have the same priority at input; in this order, the packet is (dropped silently|rejected with an error)$/,
    );
  } finally {
    for (const name of ["a", "b"]) await cluster.lab.node.mustRun(["nft", "delete", "table", "inet", name]);
  }
});

test("the headline says what the outcome depends on, and what happens otherwise", async () => {
  const quota =
    'table inet a {\nquota q { over 25 mbytes }\nchain f {\ntype filter hook forward priority -5\nquota name "q" drop\n}\n}\n';
  await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: quota });
  try {
    const { stdout } = await cluster.command(["explain", "tcp", PLAN.client.ip, `${PLAN.node.ip}:${NODE_PORT}`]);
    expect(stdout.split("\n")[0]).toMatch(
      /unknown: it depends on inet a f: quota name q drop \(handle \d+\); if it does not match, the packet goes to an endpoint$/,
    );
  } finally {
    await cluster.lab.node.mustRun(["nft", "delete", "table", "inet", "a"]);
  }
});

test("a packet comes by the interface of the route to its source, unless another is given", async () => {
  const rules = table(
    "foreign",
    chain("filter hook forward priority -5; policy drop", 'iifname { "docker0", "pod1" } accept'),
  );
  await cluster.lab.node.mustRun(["nft", "-f", "-"], { input: rules });
  try {
    const to = `${PLAN.node.ip}:${NODE_PORT}`;
    const pod = cluster.lab.pod("b").address.ip;
    const explain = async (...args: readonly string[]): Promise<string> =>
      (await cluster.command(["explain", "tcp", ...args])).stdout;
    const fromPod = await explain(pod, to);
    expect(fromPod).toMatch(/: goes to an endpoint$/m);
    expect(fromPod).toContain(
      `note: the incoming interface was not given, so pod1 is assumed, through which the route to ${pod} leads; \`--in\` sets another`,
    );
    expect(await explain(PLAN.client.ip, to)).toMatch(/: dropped silently$/m);
    expect(await explain("--in", "docker0", PLAN.client.ip, to)).toMatch(/: goes to an endpoint$/m);
    expect([
      await met({ from: "b", to: "node port" }, false),
      await met({ from: "client", to: "node port" }, true),
    ]).toEqual(["endpoint", "dropped"]);
  } finally {
    await cluster.lab.node.mustRun(["nft", "delete", "table", "inet", "foreign"]);
  }
});

test("an assumed source is marked as assumed", async () => {
  const { stdout } = await cluster.command(["explain", `${VIP}:${SERVICE_PORT}`]);
  expect(stdout).toMatch(/^tcp 192\.0\.2\.1 \(assumed\) → /);
  expect(stdout).toContain(
    "note: no source was given, so 192.0.2.1 is assumed, which stands for a client outside the cluster",
  );
});

test("rules of iptables-legacy cannot be read, and explain says so", async (context) => {
  const rule = legacyRule("ip", `ip daddr ${VIP} drop`);
  const raw = (rules: readonly LegacyRule[]): Promise<boolean> =>
    putLegacyTable(cluster.node.prefix, "ip", "raw", [
      { name: "PREROUTING", policy: "ACCEPT", rules },
      { name: "OUTPUT", policy: "ACCEPT", rules: [] },
    ]);
  if (!(await raw([rule]))) context.skip("this kernel does not have the older iptables");
  try {
    expect(await met({ from: "b", to: "ClusterIP" }, true)).toBe("dropped");
    const said = await cluster.command(["explain", "tcp", cluster.lab.pod("b").address.ip, `${VIP}:${SERVICE_PORT}`]);
    expect(said.stdout.split("\n")[0]).toMatch(
      /unknown: it depends on rules in chain PREROUTING of table raw of iptables-legacy/,
    );
  } finally {
    await raw([]);
  }
  expect((await explained({ from: "b", to: "ClusterIP" })).verdict).toBe("endpoint");
});

test("without a table of ours, the headline says so", async () => {
  await cluster.lab.node.mustRun(["nft", "delete", "table", "ip", "kube-proxy"]);
  const { stdout } = await cluster.command(["explain", "tcp", PLAN.client.ip, `${VIP}:${SERVICE_PORT}`]);
  expect(stdout.split("\n")[0]).toContain(
    "passes unchanged to its destination address, because the kernel has no rules of nft-proxier",
  );
});
