/**
 * `trace` reports live packets as the wire shows them: which endpoint answered, which rule or table rejected or dropped them. It leaves
 * nothing behind.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { release } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseAddress } from "../../src/base/ip.ts";
import { PACKETS_PER_SECOND } from "../../src/tools/trace/trace-filter.ts";
import { eventually } from "../lab/eventually.ts";
import { FAMILIES, type Family, PLAN } from "../lab/topology.ts";
import { factsOf } from "../support/kernel-facts.ts";
import { Cluster } from "./support/cluster.ts";
import { flows, send, Tracing } from "./support/tracing.ts";
import {
  clusterIP,
  externalIP,
  clusterAddress,
  loadBalancer,
  nodePort,
  serviceObject,
  serviceObjects,
  type ServiceSpec,
  sliceObject,
  type Target,
  target,
  TRANSPORTS,
} from "./support/objects.ts";
import { someOf } from "../lab/length.ts";
import { end } from "./support/daemon.ts";

const plain: ServiceSpec = { name: "plain", n: 1, endpoints: ["a", "r1"] };
const empty: ServiceSpec = { name: "empty", n: 2, endpoints: [] };
const edge: ServiceSpec = { name: "edge", n: 3, endpoints: ["a", "r1"], external: "Local" };
const inside: ServiceSpec = { name: "inside", n: 4, endpoints: ["b", "r2"], internal: "Local" };
const sticky: ServiceSpec = {
  name: "sticky",
  n: 5,
  endpoints: [
    { pod: "b", named: "sticky-0" },
    { pod: "r1", named: "sticky-1" },
  ],
  affinitySeconds: 60,
};
/** Another program's table drops packets to its endpoint. */
const blocked: ServiceSpec = { name: "blocked", n: 6, endpoints: ["c"] };
/** Its slices name a port on which no pod listens. */
const closed: ServiceSpec = { name: "closed", n: 7, endpoints: ["a", "r1"] };
/** Only this network has access. */
const ranged: ServiceSpec = { name: "ranged", n: 8, endpoints: ["a"], ranges: ["192.0.2.0/24", "2001:db8:1::/64"] };
const away: ServiceSpec = { name: "away", n: 9, endpoints: ["r1"], internal: "Local", external: "Local" };
const SERVICES = [plain, empty, edge, inside, sticky, blocked, ranged, away];
const CLOSED_PORT = 9;

let cluster: Cluster;
let directory: string;
let socket: string;
let daemon: ChildProcess;
beforeAll(async () => {
  cluster = await Cluster.create();
  directory = await cluster.temporaryDirectory();
  socket = join(directory, "daemon.sock");
  const { name, endpoints } = closed;
  const toClosed = FAMILIES.map((family) =>
    sliceObject(cluster.lab, { name: `${name}-${family}`, service: name, family, endpoints, port: CLOSED_PORT }),
  );
  const args = await cluster.write([
    ...SERVICES.flatMap((service) => serviceObjects(cluster.lab, service)),
    ...[serviceObject(closed), ...toClosed],
  ]);
  daemon = cluster.start(["run", ...args, "--control-socket", socket]);
  daemon.stderr?.resume();
  const { ip, ip6 } = cluster.lab.pod("c").address;
  const foreign = `table inet other {
    chain early { type filter hook prerouting priority raw; policy accept; ip daddr 203.0.113.251 drop; }
    chain forward { type filter hook forward priority 10; policy accept; ip daddr ${ip} drop; ip6 daddr ${ip6} drop; }
  }`;
  await cluster.node.mustRun(["nft", "-f", "-"], { input: foreign });
  await eventually(async () =>
    expect((await cluster.command(["status", "--socket", socket])).stdout).toMatch(/IPv6 +active: 9 services/),
  );
});
afterAll(async () => {
  await end(daemon);
  await cluster.destroy();
});

const trace = (words: readonly string[], asked = socket): Promise<Tracing> => Tracing.start(cluster, words, asked);
const tables = (): Promise<string> => cluster.node.mustRun(["nft", "list", "tables"]);

function addressOf(pod: string, family: Family): string {
  return parseAddress(cluster.lab.pod(pod).address[family]) ?? "";
}

// Two lists of tests instead of one with skipped tests: each kernel runs everything that it can show.
if (factsOf(release()).owner) describe("a kernel that deletes tables with their owner", onNewer);
else describe("a kernel that does not delete tables with their owner", onOlder);

function onOlder(): void {
  test("trace is refused, names the required kernel, and writes nothing", async () => {
    const { code, stderr } = await cluster.command(["trace", "10.96.1.1:80", "--socket", socket]);
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining("cannot remove a table when its owner exits (Linux 5.12 can)"),
    ]);
    expect(await tables()).not.toContain("trace");
  });
}

function onNewer(): void {
  test("the reported endpoint is the one that answered, with the address that it saw: at least fifty flows of every kind", async () => {
    const FLOWS = [
      [plain, ["client", "a", "node"], [clusterIP(plain), nodePort(plain)]],
      [inside, ["b", "node"], [clusterIP(inside)]],
      [edge, ["client", "b"], [loadBalancer(edge), nodePort(edge)]],
      [sticky, ["remoteNode", "a"], [externalIP(sticky)]],
    ] as const;
    const seen = new Map<string, number>();
    const count = (kind: string): void => void seen.set(kind, (seen.get(kind) ?? 0) + 1);
    for (const [service, from, to] of someOf(FLOWS, 2)) {
      const tracing = await trace([`default/${service.name}`]);
      for (const flow of flows(from, to)) {
        const outcome = await send(cluster, flow);
        if (outcome.result !== "ok") throw new Error(`${JSON.stringify(flow)}: ${JSON.stringify(outcome)}`);
        const line = await eventually(() => {
          const found = tracing.of(flow);
          expect(found, JSON.stringify({ flow, outcome, stderr: tracing.stderr })).toBeDefined();
          return found!;
        });
        expect(line.translated?.destination, JSON.stringify({ line, outcome })).toBe(
          addressOf(outcome.name, flow.family),
        );
        expect(line.translated?.destinationPort).toBe(outcome.atPort);
        expect(line.translated?.source).toBe(parseAddress(outcome.seen));
        expect(line.masqueraded).toBe(!outcome.sourceKept);
        expect([line.verdict, line.reply]).toEqual(["accepted", "yes"]);
        expect(line.service).toBe(`default/${service.name}:${flow.protocol}`);
        expect(line.endpoint?.local).toBe(!outcome.name.startsWith("r"));
        expect(line.endpoint?.pod).toBe(
          service === sticky ? { b: "sticky-0", r1: "sticky-1" }[outcome.name] : undefined,
        );
        expect(line.in).toBe(
          flow.from === "node" ? undefined : { client: "eth1", remoteNode: "eth0", a: "pod0", b: "pod1" }[flow.from],
        );
        expect(line.out).toBeDefined();
        count(`${flow.family} ${flow.protocol}`);
        count(line.masqueraded ? "masqueraded" : "sender's address");
      }
      expect(await tracing.interrupt()).toBe(0);
      expect(tracing.stderr).toMatch(/connections?: \d+ answered.*; the trace table is removed/);
      expect(await tables()).not.toContain("trace");
    }
    const kinds = FAMILIES.flatMap((family) => TRANSPORTS.map((protocol) => `${family} ${protocol}`));
    const all = kinds.reduce((sum, kind) => sum + (seen.get(kind) ?? 0), 0);
    expect(all).toBeGreaterThanOrEqual(50);
    for (const kind of [...kinds, "masqueraded", "sender's address"])
      expect([kind, (seen.get(kind) ?? 0) > 5]).toEqual([kind, true]);
  });

  test("a service without endpoints is rejected by our own chain", async () => {
    const tracing = await trace(["default/empty"]);
    for (const flow of flows(["client", "a", "node"], [clusterIP(empty)])) {
      expect((await send(cluster, flow)).result).toBe("unreachable");
      const line = await eventually(() => {
        expect(tracing.of(flow)).toBeDefined();
        return tracing.of(flow)!;
      });
      expect(line).toMatchObject({
        verdict: "rejected",
        service: `default/empty:${flow.protocol}`,
        by: {
          table: `${flow.family} kube-proxy`,
          chain: "reject-chain",
          hook: flow.from === "node" ? "output" : "forward",
        },
      });
      expect(line.translated).toBeUndefined();
      expect(line.reply).toBeUndefined();
    }
    expect(await tracing.interrupt()).toBe(0);
  });

  describe("a connection that the endpoint refuses", () => {
    test.each(someOf(["client", "b", "node"], 3))(
      "from %s: the endpoint resets it, or answers with an ICMP error",
      async (from) => {
        const tracing = await trace([`default/${closed.name}`]);
        for (const flow of flows([from], [clusterIP(closed)], ["tcp", "udp"])) {
          const { result } = await send(cluster, flow);
          expect(["refused", "unreachable"]).toContain(result);
          const line = await eventually(() => {
            expect(tracing.of(flow), JSON.stringify(flow)).toBeDefined();
            return tracing.of(flow)!;
          });
          const refusal = flow.protocol === "tcp" ? "TCP reset" : "ICMP port unreachable";
          // Only since Linux 6.16 does an ICMP error name its connection.
          const isKnown = flow.protocol === "tcp" || factsOf(release()).traceConntrack;
          expect(line).toMatchObject({ verdict: "accepted", ...(isKnown && { reply: "refused", refusal }) });
        }
        expect(await tracing.interrupt()).toBe(0);
      },
    );

    test("a packet to this node without a socket is reported", async () => {
      const tracing = await trace([`${PLAN.node.ip}:4399`]);
      const [flow] = flows(["client"], [target("closed port of the node", PLAN.node, 4399)], ["tcp"]);
      expect((await send(cluster, flow)).result).toBe("refused");
      await eventually(() =>
        expect(tracing.of(flow)).toMatchObject({ verdict: "delivered", reply: "refused", refusal: "TCP reset" }),
      );
      await tracing.interrupt();
      expect(tracing.stderr).toContain("1 connection: 1 refused");
    });
  });

  const unallocated = target("an address without a service", clusterAddress(90), 80);
  const REASONS = [
    ["no ready endpoint", "client", clusterIP(empty), "no-ready-endpoint"],
    ["no such port", "client", clusterIP(plain, 81), "no-such-port"],
    ["no such service", "client", unallocated, "no-such-service"],
    ["policy Local, ClusterIP", "a", clusterIP(away), "traffic-policy-local"],
    ["policy Local, node port", "client", nodePort(away), "traffic-policy-local"],
    ["policy Local, load balancer", "client", loadBalancer(away), "traffic-policy-local"],
    ["source range", "client", loadBalancer(ranged), "source-ranges"],
  ] as const;
  test.each(someOf(REASONS, 7))("the reason of our own drop or reject is reported: %s", async (_, from, to, reason) => {
    for (const family of FAMILIES) {
      const tracing = await trace([family === "ip" ? `${to.address.ip}:${to.port}` : `[${to.address.ip6}]:${to.port}`]);
      const flow = flows([from], [to], ["tcp"]).find((each) => each.family === family)!;
      await send(cluster, flow, 300);
      const line = await eventually(() => {
        expect(tracing.of(flow), JSON.stringify({ flow, stderr: tracing.stderr })).toBeDefined();
        return tracing.of(flow)!;
      });
      expect(line.by).toMatchObject({ table: `${family} kube-proxy`, reason });
      await tracing.interrupt();
    }
  });

  test("explain names the source ranges that drop a packet, and services shows them", async () => {
    const { ip } = loadBalancer(ranged).address;
    const explained = await cluster.command(["explain", "tcp", PLAN.client.ip, `${ip}:80`, "--socket", socket]);
    expect(explained.stdout).toMatch(/^tcp .*: dropped silently$/m);
    expect(explained.stdout).toContain(`note: ${PLAN.client.ip} is not in loadBalancerSourceRanges (192.0.2.0/24)`);
    const { stdout } = await cluster.command(["services", "default/ranged", "--socket", socket]);
    expect(stdout).toMatch(
      /^default\/ranged:tcp 80\/TCP IPv4: active$[^]*?^ {2}loadBalancerSourceRanges +192\.0\.2\.0\/24$/m,
    );
    expect(stdout).toMatch(/^ {2}loadBalancerSourceRanges +2001:db8:1::\/64$/m);
  });

  test("lines are in the order of their packets, even if one waits for an answer", async () => {
    const tracing = await trace([PLAN.client.ip, "any", "--force"]);
    // Nothing answers there: its line waits for a second, and so do those of later packets.
    await cluster.node.ip([
      "route add 203.0.113.249/32 dev eth1",
      "neigh replace 203.0.113.249 lladdr 02:00:00:00:00:99 dev eth1",
    ]);
    const silent = target("nobody answers", { ip: "203.0.113.249", ip6: "::" }, 80);
    const sent = flows(["client"], [silent, clusterIP(plain), clusterIP(empty)], ["udp", "tcp"]);
    for (const flow of sent.filter(({ family }) => family === "ip")) await send(cluster, flow, 50);
    await eventually(() => expect(tracing.lines.length).toBeGreaterThanOrEqual(6));
    await tracing.interrupt();
    const times = tracing.lines.map(({ time }) => time);
    expect(times).toEqual(times.toSorted());
  });

  test("another table's drop is reported with its chain and rule, and the chosen endpoint", async () => {
    const tracing = await trace(["default/blocked"]);
    const rules = await cluster.node.mustRun(["nft", "-a", "list", "chain", "inet", "other", "forward"]);
    for (const flow of flows(["client", "b"], [clusterIP(blocked)], ["udp"])) {
      expect((await send(cluster, flow, 300)).result).toBe("timeout");
      const line = await eventually(() => {
        expect(tracing.of(flow)).toBeDefined();
        return tracing.of(flow)!;
      });
      expect(line).toMatchObject({
        verdict: "dropped",
        by: { table: "inet other", chain: "forward", hook: "forward" },
      });
      expect(rules).toMatch(new RegExp(`${flow.family} daddr .* # handle ${line.by?.rule}\n`));
      expect(line.translated?.destination).toBe(addressOf("c", flow.family));
    }
    await tracing.interrupt();
  });

  test("a packet from a bridge is followed to its outgoing interface, also with br_netfilter", async () => {
    const tracing = await trace(["default/plain"]);
    const sent = flows(["c"], [clusterIP(plain)]);
    // The answers are dropped on their way to c.
    await Promise.all(sent.map((flow) => send(cluster, flow, 300)));
    await eventually(() => {
      for (const flow of sent)
        expect(tracing.of(flow), JSON.stringify(flow)).toMatchObject({ in: "cbr0", verdict: "accepted" });
    });
    expect(await tracing.interrupt()).toBe(0);
  });

  test("--refused and --unanswered print only such connections", async () => {
    const silent = target("nobody answers", { ip: "203.0.113.248", ip6: "::" }, 80);
    await cluster.node.ip([
      "route add 203.0.113.248/32 dev eth1",
      "neigh replace 203.0.113.248 lladdr 02:00:00:00:00:98 dev eth1",
    ]);
    const sent = flows(["b"], [clusterIP(plain), clusterIP(closed), silent], ["tcp"]).filter(
      ({ family }) => family === "ip",
    );
    const both = await Promise.all(["--refused", "--unanswered"].map((flag) => trace(["any", "--force", flag])));
    await Promise.all(sent.map((flow) => send(cluster, flow, 300)));
    for (const [i, tracing] of both.entries()) {
      await eventually(() => expect(tracing.of(sent[i + 1])).toMatchObject({ reply: ["refused", "no"][i] }));
      expect(await tracing.interrupt()).toBe(0);
      expect(sent.filter((flow) => tracing.of(flow) !== undefined)).toEqual([sent[i + 1]]);
      expect(tracing.stderr).toMatch(/\d answered/);
    }
  });

  test("--dropped prints only packets that were rejected, dropped or not routed", async () => {
    await cluster.node.ip(["route add blackhole 203.0.113.250/32"]);
    const tracing = await trace([PLAN.client.ip, "any", "--force", "--dropped"]);
    const lost = target("no route", { ip: "203.0.113.250", ip6: "::" }, 80);
    const early = target("dropped before connection tracking", { ip: "203.0.113.251", ip6: "::" }, 80);
    const sent = flows(["client"], [clusterIP(plain), clusterIP(empty), clusterIP(blocked), lost, early]).filter(
      ({ family, protocol, to }) => family === "ip" && (protocol !== "udp" || to !== early),
    );
    await Promise.all(sent.map((flow) => send(cluster, flow, 300)));
    const bad = sent.filter(({ to }) => to.name !== clusterIP(plain).name);
    await eventually(() => {
      for (const flow of bad) expect(tracing.of(flow), JSON.stringify(flow)).toBeDefined();
    });
    const verdicts = (to: Target): string[] => [
      ...new Set(bad.filter((flow) => flow.to.name === to.name).map((flow) => tracing.of(flow)?.verdict ?? "")),
    ];
    expect(verdicts(clusterIP(empty))).toEqual(["rejected"]);
    expect(verdicts(clusterIP(blocked))).toEqual(["dropped"]);
    expect(verdicts(lost)).toEqual(["vanished"]);
    expect(verdicts(early)).toEqual(["dropped"]);
    expect(tracing.lines.filter(({ by }) => by?.chain === "early").every(({ by }) => by?.hook === "prerouting")).toBe(
      true,
    );
    expect(await tracing.interrupt()).toBe(0);
    expect(tracing.lines.filter(({ verdict }) => !["rejected", "dropped", "vanished"].includes(verdict))).toEqual([]);
    expect(tracing.stderr).toMatch(/\d+ answered/);
    expect(tracing.stderr).toMatch(/\d+ dropped by inet other forward/);
  });

  test("a packet to a socket of the node itself is delivered", async () => {
    await cluster.catchUntouched(4321);
    const tracing = await trace([`${PLAN.node.ip}:4321`]);
    for (const from of ["client", "node"]) {
      const [flow] = flows([from], [target("the node", PLAN.node, 4321)], ["tcp"]);
      expect(await send(cluster, flow)).toMatchObject({ result: "ok", name: "node" });
      await eventually(() =>
        expect(tracing.of(flow)).toMatchObject({ verdict: "delivered", reply: "yes", masqueraded: false }),
      );
      expect(tracing.lines.filter(({ packet }) => packet.sourcePort === flow.sourcePort)).toHaveLength(1);
    }
    await tracing.interrupt();
  });

  test("kill -9 leaves no rule and no table", async () => {
    const tracing = await trace(["default/plain"]);
    const [name = ""] = /nft-proxier-trace-\d+/.exec(await tables()) ?? [];
    // A ruleset saved while the table exists can be loaded again.
    const listing = await cluster.node.mustRun(["nft", "list", "table", "inet", name]);
    await cluster.node.mustRun(["nft", "-c", "-f", "-"], { input: listing.replace(name, "copy") });
    tracing.child.kill("SIGKILL");
    await tracing.ended;
    await eventually(async () => expect(await tables()).not.toContain("trace"));
  });

  test("--count stops after that many packets; --for without any packet exits with 1", async () => {
    const tracing = await trace([`${clusterIP(plain).address.ip}:80`, "--count", "2"]);
    for (const flow of flows(["client"], [clusterIP(plain)]).filter(({ family }) => family === "ip"))
      await send(cluster, flow);
    expect(await tracing.ended).toBe(0);
    expect(tracing.lines).toHaveLength(2);
    const none = await cluster.command(["trace", "10.96.1.1:81", "--for", "300ms", "--socket", socket]);
    expect([none.code, none.stdout]).toEqual([1, ""]);
    expect(none.stderr).toContain("0 connections");
    expect(await tables()).not.toContain("trace");
  });

  const REFUSED = [
    [["10.96.1.1"], "traffic to all ports of 10.96.1.1 may be many packets, of which at most 50 a second are traced"],
    [["10.96.0.0/16:80"], "all addresses of 10.96.0.0/16"],
    [["any:80"], "all traffic to port 80 may be many packets"],
    [["10.96.0.300:80"], "not an address and port, or a service"],
    [["::1", "10.96.0.1:80"], "not of the destination's address family"],
    [["sctp", "default/plain:udp"], "default/plain:udp has no port of this protocol and address family"],
  ] as const;
  test.each(someOf(REFUSED, 6))("%s is refused with exit code 2", async (words, message) => {
    const { code, stderr } = await cluster.command(["trace", ...words, "--socket", socket]);
    expect([code, stderr.includes(message), stderr]).toEqual([2, true, stderr]);
  });

  test("a name without a namespace is enough, and a wrong port lists the ports", async () => {
    const tracing = await trace(["blocked:udp"]);
    await tracing.interrupt();
    const { code, stderr } = await cluster.command(["trace", "plain:81", "--socket", socket]);
    expect([code, stderr]).toEqual([1, expect.stringContaining("has no such port; its ports are 80/TCP tcp")]);
  });

  test("--all-packets also prints packets of open connections", async () => {
    const tracing = await trace(["default/plain", "--all-packets"]);
    const [flow] = flows(["client"], [clusterIP(plain)], ["tcp"]);
    const outcome = await send(cluster, flow);
    await eventually(() => expect(tracing.lines.length).toBeGreaterThan(3));
    const endpoints = new Set(tracing.lines.map(({ translated }) => translated?.destination));
    expect(endpoints).toEqual(new Set([addressOf(outcome.result === "ok" ? outcome.name : "", "ip")]));
    await tracing.interrupt();
  });

  test("a burst is traced up to the limit without affecting any connection", async () => {
    const { ip } = clusterIP(plain).address;
    // Delete the connections of earlier tests: a connection that reuses one of their ports would not count as new.
    await cluster.command(["conntrack", "delete", "--protocol", "udp", "--dst", ip]);
    const tracing = await trace(["any", "--force"]);
    const began = Date.now();
    const probe = { protocol: "udp", source: PLAN.client.ip, destination: ip, port: 80, count: 3000 } as const;
    const outcomes = await cluster.source("client").namespace.agent().probe(probe);
    expect(outcomes.filter(({ result }) => result !== "ok")).toEqual([]);
    const seconds = (Date.now() - began) / 1000;
    // In a user namespace the receive buffer cannot hold the messages of the burst; `trace` then reports that.
    await eventually(() => {
      const told = tracing.lines.length >= PACKETS_PER_SECOND || tracing.stderr.includes("the kernel dropped messages");
      expect([told, tracing.stderr]).toEqual([true, tracing.stderr]);
    });
    expect(await tracing.interrupt()).toBe(0);
    expect(tracing.lines.length).toBeLessThanOrEqual(PACKETS_PER_SECOND * (seconds + 3));
    const matched = Number(/; (\d+) packets matched/.exec(tracing.stderr)?.[1]);
    expect(matched).toBeGreaterThanOrEqual(3000);
  });

  test("it ends when its reader ends, without an error and without a table", async () => {
    const words = [process.execPath, cluster.main, "trace", "default/plain", "--for", "0", "--socket", socket];
    const piped = cluster.node.spawn(["sh", "-c", '"$@" | head -n 1', "sh", ...words], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    let stderr = "";
    piped.stderr?.setEncoding("utf8").on("data", (text: string) => (stderr += text));
    const ended = once(piped, "close");
    await eventually(() => expect(stderr).toContain("tracing "));
    const client = async (): Promise<void> =>
      void (await send(cluster, flows(["client"], [clusterIP(plain)], ["tcp"])[0]));
    // The program notices only at a later line that `head` has ended; until then one write may contain lines of many connections.
    await eventually(async () => {
      if (piped.exitCode === null) await client();
      expect(piped.exitCode).not.toBeNull();
    });
    await ended;
    expect(stderr).not.toMatch(/Error|EPIPE/);
    expect(await tables()).not.toContain("trace");
  });

  test("without a daemon packets are identified by their addresses, and a name is an error", async () => {
    const absent = join(directory, "absent.sock");
    const tracing = await trace([`${clusterIP(plain).address.ip}:80`], absent);
    expect(tracing.stderr).toContain("no daemon answers");
    const [flow] = flows(["client"], [clusterIP(plain)], ["tcp"]);
    const outcome = await send(cluster, flow);
    const line = await eventually(() => {
      expect(tracing.of(flow)).toBeDefined();
      return tracing.of(flow)!;
    });
    expect(line.service).toBeUndefined();
    expect(line.translated?.destination).toBe(addressOf(outcome.result === "ok" ? outcome.name : "", "ip"));
    await tracing.interrupt();
    const named = await cluster.command(["trace", "default/plain", "--socket", absent]);
    expect(named.code).toBe(1);
    expect(named.stderr).toContain("no daemon answers");
  });

  test("CAP_NET_ADMIN is enough, and messages are readable", async () => {
    const rights = ["setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all", "--no-new-privs"];
    const done = cluster.commandThrough(rights, [
      "trace",
      `${clusterIP(empty).address.ip}:80`,
      "--count",
      "1",
      "--socket",
      socket,
    ]);
    await eventually(async () => expect(await tables()).toContain("trace"));
    await send(cluster, { ...flows(["client"], [clusterIP(empty)], ["tcp"])[0] });
    const { code, stdout } = await done;
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^\d\d:\d\d:\d\d\.\d{3} tcp 198\.51\.100\.10:\d+ → 10\.96\.1\.2:80 default\/empty:tcp, in eth1, rejected by ip kube-proxy reject-chain \(handle \d+\): the service has no ready endpoint\n$/,
    );
  });

  test("the daemon reports no change of its tables", async () => {
    const tracing = await trace([`${PLAN.node.ip}:4321`]);
    await tracing.interrupt();
    const { stdout } = await cluster.command(["status", "--socket", socket]);
    expect(stdout).not.toContain("last repair");
  });
}
