/**
 * `explain` beside other programs' rules: its answer is what the packet then meets, or it says that it does not know.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { explainPacket, type Explanation } from "../../src/tools/explain/explain-packet.ts";
import { NftKernel } from "../../src/nft/kernel/nft-kernel.ts";
import { putLegacyTable } from "../lab/legacy-kernel.ts";
import { legacyRule } from "../lab/legacy-rules.ts";
import type { LegacyRule } from "../lab/legacy-table.ts";
import { PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { foreignMatches } from "./support/foreign-rules.ts";
import { chain, CLIENT, HOOK_RULES, NODE_PORT, OTHER_PORT, POD, type Sent, table, VIP } from "./support/hook-rules.ts";
import { clusterAddress, SERVICE_PORT, serviceObjects, type ServiceSpec } from "./support/objects.ts";
import { someOf } from "../lab/length.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"], protocols: ["tcp", "udp"] };
const two: ServiceSpec = { name: "two", n: 2, endpoints: ["a", "b"], protocols: ["tcp"] };
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

const addressOf = ({ to }: Sent): { readonly destination: string; readonly port: number } =>
  to === "node port" ? { destination: PLAN.node.ip, port: NODE_PORT } : { destination: VIP, port: SERVICE_PORT };

async function explained(sent: Sent): Promise<Explanation> {
  const { destination, port } = addressOf(sent);
  const source = cluster.source(sent.from).address!.ip;
  const inInterface = sent.from === "client" ? "eth1" : "pod1";
  const packet = { family: "ip", protocol: sent.protocol, source, destination, inInterface } as const;
  return explainPacket(kernel, { ...packet, destinationPort: port });
}

/** The packet's fate, in the form of an explanation. */
async function met(sent: Sent, isDropExpected: boolean): Promise<Explanation["verdict"]> {
  const { destination, port } = addressOf(sent);
  const { namespace, address } = cluster.source(sent.from);
  const probe = { protocol: sent.protocol, source: address!.ip, destination, port } as const;
  const [outcome] = await namespace.agent().probe({ ...probe, timeoutMs: isDropExpected ? DROP_MS : ANSWER_MS });
  if (outcome?.result === "timeout") return "dropped";
  if (outcome?.result === "refused" || outcome?.result === "unreachable") return "rejected";
  if (outcome?.result !== "ok") throw new Error(JSON.stringify(outcome));
  if (outcome.name === "a") return "endpoint";
  return outcome.atPort === port ? "untouched" : "redirected";
}

/** Loads rules for the time of an action. */
async function withRules<T>(rules: string, action: () => Promise<T>): Promise<T> {
  const nft = (input: string): Promise<string> => cluster.lab.node.mustRun(["nft", "-f", "-"], { input });
  await nft(rules);
  try {
    return await action();
  } finally {
    const tables = [...rules.matchAll(/^table (\w+ \w+)/gm)].map(([, name]) => `delete table ${name}\n`);
    await nft([...new Set(tables)].join(""));
  }
}

/** Returns the explanation beside these rules, and its differences from reality. */
async function compare(
  rules: string,
  sent: Sent,
): Promise<{ readonly said: Explanation; readonly wrong: string | undefined }> {
  return withRules(rules, async () => {
    const said = await explained(sent);
    // "unknown" claims nothing.
    if (said.verdict === "unknown") return { said, wrong: undefined };
    const expected = said.verdict !== "rejected" && said.reply !== undefined ? "dropped" : said.verdict;
    const seen = await met(sent, expected === "dropped");
    const steps = said.steps.map(({ hook, chain: at, text }) => `\n    ${hook} ${at}: ${text}`).join("");
    return { said, wrong: expected === seen ? undefined : `${rules}: said ${said.verdict}, seen ${seen}${steps}` };
  });
}

describe("every expression at forward, before a drop, and before an accept that a drop follows", () => {
  const matches = foreignMatches({
    ...{ client: PLAN.client.ip, endpoint: "10.244.0.5", vip: PLAN.node.ip, port: NODE_PORT },
    ...{ inInterface: "eth1", outInterface: "pod0" },
  });

  test.for(someOf(matches, 10))("$text", async ({ text, judgeable, more = "" }) => {
    const matching = /vmap/.test(text) ? [[text]] : [[`${text} drop`], [`${text} accept`, "drop"]];
    for (const lines of matching) {
      const rules = table("foreign", more, chain("filter hook forward priority -5", ...lines));
      const { said, wrong } = await compare(rules, CLIENT);
      expect(wrong).toBeUndefined();
      if (judgeable === "known") expect(said.unknown).toEqual([]);
      else if (said.verdict === "unknown") expect(said.unknown[0]).toMatch(/^inet foreign f: .* \(handle \d+\)$/);
    }
  });

  test.for([
    `ip ttl 63 accept`,
    `limit rate 5/second counter`,
    `meta cpu 0 meta mark set meta mark or 3`,
    `limit rate 1/second drop\ndrop`,
  ])("%s decides nothing, because both outcomes are the same", async (rule) => {
    const { said, wrong } = await compare(table("foreign", chain("filter hook forward priority -5", rule)), CLIENT);
    expect([wrong, said.unknown]).toEqual([undefined, []]);
  });
});

test.for(someOf(HOOK_RULES, 3))("rules at other hooks: $name", async ({ rules, judgeable, sent }) => {
  const { said, wrong } = await compare(rules, sent);
  expect(wrong).toBeUndefined();
  if (judgeable === "known") expect(said.unknown).toEqual([]);
});

test("each endpoint has its own end", async () => {
  const b = cluster.lab.pod("b").address.ip;
  const rules = table("corpfw", chain("filter hook forward priority 0", `ip daddr ${b} tcp dport 8080 counter drop`));
  await withRules(rules, async () => {
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
  });
});

test("rules that change the mark are steps, and one that prevents masquerading is a note with its consequence", async () => {
  const pre = 'iifname "eth1" meta mark set 0x20';
  const post = "meta mark and 0x20 == 0x20 meta mark set meta mark and 0xffffbfff";
  const base = (hook: string): string => `type filter hook ${hook} priority mangle;`;
  const rules = `table ip vpn {\nchain pre { ${base("prerouting")}\n${pre}\n}\nchain post { ${base("postrouting")}\n${post}\n}\n}\n`;
  await withRules(rules, async () => {
    const said = await explained(CLIENT);
    const steps = said.steps.filter(({ table }) => table === "ip vpn").map(({ chain: at, text }) => `${at}: ${text}`);
    expect(steps).toEqual([
      expect.stringMatching(/^pre: mark set to 0x20 \(was 0x0\): iifname "eth1" .*\(handle \d+\)$/),
      expect.stringMatching(/^post: mark set to 0x20 \(was 0x4020\): .*\(handle \d+\)$/),
    ]);
    expect(said.endpoints).toMatchObject([
      { masqueraded: false, unmasqueradedBy: expect.stringMatching(/^ip vpn post: .*\(handle \d+\)$/) as string },
    ]);
    const { stdout } = await cluster.command([
      "explain",
      "--in",
      "eth1",
      PLAN.client.ip,
      `${PLAN.node.ip}:${NODE_PORT}`,
    ]);
    expect(stdout).toMatch(
      /goes to an endpoint, but is not masqueraded, so answers of endpoints on other nodes may bypass this node$/m,
    );
    expect(stdout).toMatch(
      /^note: ip vpn post: .* clears the bit of the packet mark .* the sender does not recognize them/m,
    );
  });
});

test("a reply that another table drops is reported", async () => {
  const rules = table("corpfw", "chain f {\ntype filter hook forward priority 0\nip saddr 10.244.0.5 drop\n}");
  await withRules(rules, async () => {
    expect(await met(CLIENT, true)).toBe("dropped");
    const by = expect.stringMatching(/^inet corpfw f: ip saddr 10\.244\.0\.5 drop \(handle \d+\)$/) as string;
    const reply = { verdict: "dropped", by };
    expect(await explained(CLIENT)).toMatchObject({ verdict: "endpoint", reply, endpoints: [{ reply }] });
    const { stdout } = await cluster.command(["explain", "tcp", PLAN.client.ip, `${PLAN.node.ip}:${NODE_PORT}`]);
    expect(stdout.split("\n")[0]).toMatch(
      /: goes to an endpoint, but the reply is dropped by inet corpfw f: ip saddr 10\.244\.0\.5 drop \(handle \d+\)$/,
    );
  });
});

const QUOTA = "quota q { over 25 mbytes }";
const HEADLINES: readonly (readonly [name: string, to: string, rules: string, line: RegExp])[] = [
  [
    "what the outcome depends on, and what happens otherwise",
    `${PLAN.node.ip}:${NODE_PORT}`,
    table("a", QUOTA, 'chain f { type filter hook forward priority -5; quota name "q" drop; }'),
    /unknown: it depends on inet a f: quota name "q" drop \(handle \d+\); if it does not match, the packet goes to an endpoint$/,
  ],
  [
    "no order of chains if a rule decides in each order",
    `${PLAN.node.ip}:4399`,
    table("a", QUOTA, 'chain i { type filter hook input priority 0; policy drop; quota name "q" accept; }') +
      table("b", "chain i { type filter hook input priority 0; tcp dport 4399 counter; }"),
    /unknown: it depends on inet a i: quota name "q" accept \(handle \d+\); if it does not match, the packet is dropped silently$/,
  ],
  [
    "what happens in one order if the order of chains decides",
    `${PLAN.node.ip}:4399`,
    table("a", "chain i { type filter hook input priority 7; tcp dport 4399 drop; }") +
      table("b", "chain i { type filter hook input priority 7; tcp dport 4399 reject with tcp reset; }"),
    /unknown: it depends on the order of inet \w, inet \w, which have the same priority at input; in this order, the packet is (dropped silently|rejected with an error)$/,
  ],
];
test.for(HEADLINES)("the headline says %s", async ([, to, rules, line]) => {
  const { stdout } = await withRules(rules, () => cluster.command(["explain", "tcp", PLAN.client.ip, to]));
  expect(stdout.split("\n")[0]).toMatch(line);
});

test("a packet comes by the interface of the route to its source, unless another is given", async () => {
  const rules = table(
    "foreign",
    chain("filter hook forward priority -5; policy drop", 'iifname { "docker0", "pod1" } accept'),
  );
  await withRules(rules, async () => {
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
    expect([await met({ ...CLIENT, from: "b" }, false), await met(CLIENT, true)]).toEqual(["endpoint", "dropped"]);
  });
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
    expect(await met(POD, true)).toBe("dropped");
    const said = await cluster.command(["explain", "tcp", cluster.lab.pod("b").address.ip, `${VIP}:${SERVICE_PORT}`]);
    expect(said.stdout.split("\n")[0]).toMatch(
      /unknown: it depends on rules in chain PREROUTING of table raw of iptables-legacy/,
    );
  } finally {
    await raw([]);
  }
  expect((await explained(POD)).verdict).toBe("endpoint");
});

test("without a table of ours, the headline says so", async () => {
  await cluster.lab.node.mustRun(["nft", "delete", "table", "ip", "kube-proxy"]);
  const { stdout } = await cluster.command(["explain", "tcp", PLAN.client.ip, `${VIP}:${SERVICE_PORT}`]);
  expect(stdout.split("\n")[0]).toContain(
    "passes unchanged to its destination address, because the kernel has no rules of nft-proxier",
  );
});
