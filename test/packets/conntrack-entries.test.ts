/** `nft-proxier conntrack` on the kernel's own entries, of every protocol and of TCP in every state: mainly orphans. */
import { Registry } from "prom-client";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";

import { counted } from "../../src/base/counted.ts";
import { ConntrackMetrics } from "../../src/observe/conntrack-metrics.ts";
import { NetlinkConntrack } from "../../src/nft/conntrack/netlink-conntrack.ts";
import type { ConntrackObserver } from "../../src/conntrack/conntrack-service.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { entryTo, GONE, NUMBERS, type Proto } from "./support/entries.ts";
import {
  clusterAddress,
  clusterIP,
  nodePort,
  POD_PORT,
  SERVICE_PORT,
  serviceObjects,
  type ServiceSpec,
} from "./support/objects.ts";
import { Tracked } from "./support/tracked.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
/** TCP entries whose endpoint no service has, with their expected treatment. */
const SPENT = ["SYN_SENT", "SYN_SENT2", "SYN_RECV", "LAST_ACK", "TIME_WAIT", "CLOSE"];
const HALF_CLOSED = ["FIN_WAIT", "CLOSE_WAIT"];
const STATES = [...SPENT, ...HALF_CLOSED, "ESTABLISHED"];
const FOREIGN = { ip: "10.99.0.1", ip6: "fd99::1" } as const;
/** Source ports. */
const LIVE = 20_000;
const OTHERS = 21_000;
const STALE = 22_000;
const ORPHANS = 23_000;

let cluster: Cluster;
let table: NetlinkConntrack;
let args: readonly string[];
beforeAll(async () => {
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  table = await NetlinkConntrack.open({ netns: `/run/netns/${cluster.lab.node.name}` });
  const objects = serviceObjects(cluster.lab, web);
  await cluster.apply(objects);
  args = await cluster.write(objects);
});
afterAll(async () => {
  await table.close();
  await cluster.destroy();
});

/** In each family: entries of served endpoints, of others, stale ones, and a TCP orphan in each state. */
beforeEach(async () => {
  await table.deleteMatching({});
  for (const family of FAMILIES) {
    const vip = { family, destination: clusterAddress(web.n)[family], port: SERVICE_PORT };
    const gone = GONE[family];
    for (const protocol of Object.keys(NUMBERS) as Proto[]) {
      const endpoint = cluster.lab.pod("a").address[family];
      const state = protocol === "tcp" ? { state: "ESTABLISHED" } : {};
      await table.create(entryTo({ ...vip, protocol, sourcePort: LIVE, endpoint, ...state }));
      const over = protocol === "tcp" ? { state: "TIME_WAIT" } : {};
      const other = { ...vip, destination: FOREIGN[family], endpoint: gone };
      await table.create(entryTo({ ...other, protocol, sourcePort: OTHERS, ...over }));
      if (protocol !== "tcp") await table.create(entryTo({ ...vip, protocol, sourcePort: STALE, endpoint: gone }));
    }
    for (const [i, state] of STATES.entries()) {
      await table.create(entryTo({ ...vip, protocol: "tcp", sourcePort: ORPHANS + i, endpoint: gone, state }));
    }
  }
});

async function conntrack(...words: readonly string[]) {
  const { code, stdout, stderr } = await cluster.command(["conntrack", ...words]);
  return { code, stderr, lines: stdout.split("\n").filter((line) => line !== "") };
}

/** Source ports of the remaining entries of a protocol in a family. */
async function left(protocol: Proto, family: "ip" | "ip6" = "ip"): Promise<number[]> {
  const ports: number[] = [];
  await table.dump({ family, protocol: NUMBERS[protocol] }, (entries) => {
    for (const { original } of entries) ports.push(original.sourcePort);
  });
  return ports.toSorted((a, b) => a - b);
}

const orphansIn = (states: readonly string[]): number[] =>
  states.map((state) => ORPHANS + STATES.indexOf(state)).toSorted((a, b) => a - b);
const ALL_ORPHANS = orphansIn(STATES);

interface Shown {
  readonly outcome: string;
  readonly reason: string;
  readonly family: string;
  readonly protocol: string;
  readonly state?: string;
  readonly original: { readonly source: string; readonly sourcePort: number; readonly destination: string };
  readonly reply: { readonly source: string; readonly sourcePort: number };
}
const parsed = (lines: readonly string[]): Shown[] => lines.map((line) => JSON.parse(line) as Shown);
const reports = (shown: readonly Shown[], family = "IPv4"): string[] =>
  shown
    .filter((one) => one.family === family)
    .map(({ protocol, outcome, reason, original }) => `${protocol} ${original.sourcePort} ${outcome} ${reason}`)
    .toSorted();

const staleOf = (protocols: readonly Proto[], outcome = "deleted"): string[] =>
  protocols.map((protocol) => `${protocol} ${STALE} ${outcome} endpoint-gone`);
const orphans = (states: readonly string[], outcome: string): string[] =>
  orphansIn(states).map((port) => `tcp ${port} ${outcome} orphan`);

describe("gc", () => {
  const RUNS: readonly [string[], Proto[], string[], string[]][] = [
    [[], ["sctp", "udp"], [], STATES],
    [["--orphans"], ["sctp", "udp"], [...SPENT, ...HALF_CLOSED], ["ESTABLISHED"]],
    [["-p", "tcp"], [], [], STATES],
    [["-p", "tcp", "--orphans"], [], STATES, []],
    [["-p", "udp", "--orphans"], ["udp"], [], []],
    [["-p", "sctp", "--orphans"], ["sctp"], [], []],
  ];
  test.each(RUNS)(
    "%j names each deleted entry, and each orphan that stays, as the kernel has it",
    async (words, stale, go, stay) => {
      for (const dry of [true, false]) {
        const outcome = dry ? "would-go" : "deleted";
        const done = await conntrack("gc", "-o", "json", ...words, ...(dry ? ["--dry-run"] : []), ...args);
        expect([done.code, done.stderr]).toEqual([0, expect.stringMatching(/IPv4: \d+ .*\n.*IPv6: \d+ /)]);
        const advice =
          /kept, \d+ with an endpoint that no service has \(--orphans deletes half-open, closing and closed ones; /;
        expect(advice.test(done.stderr)).toBe(stay.length > 0);
        const shown = parsed(done.lines);
        const expected = [...staleOf(stale, outcome), ...orphans(go, outcome), ...orphans(stay, "left")].toSorted();
        for (const family of ["IPv4", "IPv6"]) expect(reports(shown, family)).toEqual(expected);
        expect(shown.find(({ reason }) => reason === "orphan")).toEqual(
          go.length + stay.length === 0
            ? undefined
            : expect.objectContaining({
                original: expect.objectContaining({ destination: clusterAddress(1).ip, destinationPort: SERVICE_PORT }),
                reply: expect.objectContaining({ source: GONE.ip, sourcePort: 8080 }),
              }),
        );
      }
      for (const family of FAMILIES) {
        expect(await left("tcp", family)).toEqual(
          [LIVE, OTHERS, ...ALL_ORPHANS].filter((p) => !orphansIn(go).includes(p)),
        );
        for (const protocol of ["udp", "sctp"] as const) {
          expect(await left(protocol, family)).toEqual([LIVE, OTHERS, ...(stale.includes(protocol) ? [] : [STALE])]);
        }
      }
    },
  );

  test("text output has a line for each entry, under a header", async () => {
    const { code, lines } = await conntrack("gc", "--orphans", "-f", "ip", ...args);
    expect([code, lines[0]?.split(/ {2,}/).slice(0, 4)]).toEqual([0, ["OUTCOME", "REASON", "PROTO", "STATE"]]);
    expect(lines.length).toBe(1 + 2 + STATES.length);
    expect(lines.filter((line) => line.includes(`${GONE.ip}:8080`)).length).toBe(2 + STATES.length);
  });
});

describe("delete", () => {
  test.each<[string[], Proto, number[]]>([
    [["-p", "tcp", "--state", "time_wait", "-d", clusterAddress(1).ip], "tcp", orphansIn(["TIME_WAIT"])],
    [["-p", "udp", "--service", "default/web", "-f", "ip"], "udp", [LIVE, STALE]],
    [["--address", GONE.ip, "-p", "sctp"], "sctp", [OTHERS, STALE]],
    [["--address", `${FOREIGN.ip},${FOREIGN.ip6}`, "-p", "udp", "-f", "ip"], "udp", [OTHERS]],
  ])("%j deletes only the entries that it has printed", async (words, protocol, ports) => {
    const before = await left(protocol);
    const dry = await conntrack("delete", "-o", "json", "--dry-run", ...words, ...args);
    expect([dry.code, dry.stderr]).toEqual([
      0,
      `nft-proxier: ${counted(ports.length, "entry", "entries")} would be deleted\n`,
    ]);
    expect(await left(protocol)).toEqual(before);
    const done = await conntrack("delete", "-o", "json", ...words, ...args);
    expect([done.code, done.stderr]).toEqual([
      0,
      `nft-proxier: ${counted(ports.length, "entry", "entries")} deleted\n`,
    ]);
    for (const [{ lines }, outcome] of [[dry, "would-go"] as const, [done, "deleted"] as const]) {
      const shown = parsed(lines).map((one) => `${one.outcome} ${one.protocol} ${one.original.sourcePort}`);
      expect(shown.toSorted()).toEqual(ports.map((port) => `${outcome} ${protocol} ${port}`));
    }
    expect(await left(protocol)).toEqual(before.filter((port) => !ports.includes(port)));
    expect((await left(protocol, "ip6")).length).toBe(before.length);
  });

  test("delete without a filter is refused, and deletes nothing; --all means every entry", async () => {
    const before = await table.count();
    expect([(await conntrack("delete")).code, await table.count()]).toEqual([2, before]);
    const { code, lines } = await conntrack("delete", "--all");
    expect([code, lines.length, await table.count()]).toEqual([0, 1 + before, 0]);
    expect(lines[0].split(/ {2,}/).slice(0, 3)).toEqual(["OUTCOME", "PROTO", "STATE"]);
  });
});

describe("list, get and count", () => {
  test.each(["tcp", "udp", "sctp"] as const)("show every field of the kernel's entries of %s", async (protocol) => {
    const state = protocol === "udp" ? undefined : "ESTABLISHED";
    const pod = cluster.lab.pod("a").address.ip;
    const vip = clusterAddress(1).ip;
    const named = ["-p", protocol, "--sport", String(LIVE), "-f", "ip"];
    const ends = [protocol, `${PLAN.client.ip}:${LIVE}`, `${vip}:${SERVICE_PORT}`];
    for (const words of [
      ["list", ...named],
      ["get", ...ends],
    ]) {
      const json = await conntrack(...words, "-o", "json");
      expect([json.code, json.stderr]).toEqual([0, ""]);
      expect(parsed(json.lines)).toEqual([
        expect.objectContaining({
          protocol,
          ...(state === undefined ? {} : { state }),
          original: expect.objectContaining({ source: PLAN.client.ip, sourcePort: LIVE, destination: vip }),
          reply: expect.objectContaining({ source: pod, sourcePort: 8080, destination: PLAN.client.ip }),
        }),
      ]);
      const [, line] = (await conntrack(...words)).lines;
      const cells = line.trimEnd().split(/ {2,}/);
      expect([cells[0], ...cells.slice(3)]).toEqual([protocol, ...ends.slice(1), `${pod}:8080`]);
    }
    expect((await conntrack("count", ...named)).lines).toEqual(["1"]);
    expect((await conntrack("count", ...named, "-o", "json")).lines).toEqual(['{"entries":1}']);
  });

  test("lines are cut to a terminal's width, and complete in a pipe", async () => {
    const { main, node } = cluster;
    const command = `stty cols 80 && "${process.execPath}" "${main}" conntrack list`;
    const { code, stdout } = await node.run(["script", "-qec", command, "/dev/null"]);
    const lines = stdout.split(/\r?\n/).filter((line) => line.startsWith("tcp"));
    expect([code, lines.length]).toEqual([0, 2 * (2 + STATES.length)]);
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(80);
    expect(lines.filter((line) => line.includes("10.96.1.1:80")).length).toBeGreaterThan(STATES.length);
    const piped = await conntrack("list", "-f", "ip6", "-p", "tcp", "--state", "SYN_RECV");
    expect(piped.lines[1]).toContain(`[${PLAN.client.ip6}]:${orphansIn(["SYN_RECV"])[0]}`);
  });

  test("wide output says, once and on stderr, why packets, bytes and the start time are missing", async () => {
    const why = async () => (await conntrack("list", "-o", "wide", "-p", "udp")).stderr;
    const names = ["nf_conntrack_acct", "nf_conntrack_timestamp"].map((name) => `net.netfilter.${name}`);
    await cluster.node.sysctl({ [names[0]]: 0, [names[1]]: 1 });
    expect(await why()).toBe(
      "nft-proxier: PACKETS and BYTES are not counted; run `sysctl -w net.netfilter.nf_conntrack_acct=1` to count them for new connections\n",
    );
    await cluster.node.sysctl({ [names[0]]: 1, [names[1]]: 0 });
    expect(await why()).toMatch(
      /^nft-proxier: SINCE is not recorded; run `sysctl -w net\.netfilter\.nf_conntrack_timestamp=1` .*\n$/,
    );
    expect((await conntrack("list", "-p", "udp")).stderr).toBe("");
  });
});

describe("entries of a deleted service", () => {
  const old: ServiceSpec = { name: "old", n: 2, endpoints: ["a"], protocols: ["udp"] };
  const PORTS = [24_000, 24_001];

  /**
   * Flows through the ClusterIP and the node port of a service that is in the kernel's tables but no longer in the
   * manifests.
   */
  async function flows(): Promise<void> {
    await cluster.apply([...serviceObjects(cluster.lab, web), ...serviceObjects(cluster.lab, old)]);
    for (const family of FAMILIES) {
      const endpoint = cluster.lab.pod("a").address[family];
      for (const [i, to] of [clusterIP(old), nodePort(old)].entries()) {
        const spec = { family, protocol: "udp", endpoint, destination: to.address[family], port: to.port } as const;
        await table.create(entryTo({ ...spec, sourcePort: PORTS[i] }));
      }
    }
  }

  test("gc finds the entries by the names that the kernel's tables still have", async () => {
    await flows();
    const gone = await cluster.write(serviceObjects(cluster.lab, web));
    const { code, lines } = await conntrack("gc", "-o", "json", "--dport", String(SERVICE_PORT), ...gone);
    expect(code).toBe(0);
    for (const family of ["IPv4", "IPv6"]) {
      expect(reports(parsed(lines), family)).toContain(`udp ${PORTS[0]} deleted service-deleted`);
    }
    expect((await conntrack("gc", ...gone)).code).toBe(0);
    for (const family of FAMILIES) expect(await left("udp", family)).toEqual([LIVE, OTHERS]);
  });

  test("run --once has deleted them, and other stale entries, when it exits", async () => {
    await flows();
    await cluster.apply(serviceObjects(cluster.lab, web));
    for (const family of FAMILIES) {
      for (const protocol of ["udp", "sctp"] as const) expect(await left(protocol, family)).toEqual([LIVE, OTHERS]);
      expect(await left("tcp", family)).toEqual([LIVE, OTHERS, ...ALL_ORPHANS]);
    }
  });
});

describe("in the background", () => {
  const SNAT_PORT = 55_555;
  let tracked: Tracked | undefined;
  afterEach(async () => {
    await tracked?.stop();
    tracked = undefined;
    await cluster.node.run(["nft", "delete", "table", "ip", "one-port"]);
  });

  /**
   * Sends a SYN from the client to the pod for which no translated source port is free: its entry cannot be inserted.
   */
  async function failInsertion(): Promise<void> {
    const pod = cluster.lab.pod("a").address.ip;
    const rule = `ip daddr ${pod} tcp dport ${POD_PORT} snat to ${PLAN.node.ip}:${SNAT_PORT}`;
    const ruleset = `table ip one-port { chain p { type nat hook postrouting priority 90; ${rule}; }; }`;
    expect((await cluster.node.run(["nft", ruleset])).code).toBe(0);
    await table.create(
      entryTo({
        family: "ip",
        protocol: "tcp",
        source: PLAN.node.ip,
        sourcePort: SNAT_PORT,
        destination: pod,
        port: POD_PORT,
        state: "ESTABLISHED",
      }),
    );
    const { namespace, address } = cluster.source("client");
    const ends = { source: address?.ip ?? "", destination: pod, port: POD_PORT };
    await namespace.agent().probe({ protocol: "tcp", ...ends, timeoutMs: 500 });
  }

  test("a failed insertion starts a collection that frees space, and each deletion is reported and counted", async () => {
    const registry = new Registry();
    const events: string[] = [];
    const distress = Promise.withResolvers<string>();
    const [sampled, collected] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const alive = new Set<number>();
    const observer: ConntrackObserver = {
      deleted: ({ family, original }, reason, by) =>
        events.push(`${by} ${family} ${original.protocol} ${original.sourcePort} ${reason}`),
      alive: ({ original }) => alive.add(original.sourcePort),
      pressure: () => sampled.resolve(),
      distress: (what) => distress.resolve(what),
      collected: () => collected.resolve(),
    };
    tracked = await Tracked.start(
      cluster,
      {},
      {
        observers: [observer, new ConntrackMetrics(registry)],
        timing: { pressureMs: 200 },
      },
    );
    await tracked.apply(serviceObjects(cluster.lab, web));
    await tracked.conntrack.settled(patience(20_000));
    const stale = FAMILIES.flatMap((family) =>
      [17, 132].map((n) => `reconciler ${family} ${n} ${STALE} endpoint-gone`),
    );
    expect(events.splice(0).toSorted()).toEqual(stale.toSorted());

    tracked.conntrack.start();
    await sampled.promise;
    await failInsertion();
    expect(await distress.promise).toBe("insert-failed");
    await collected.promise;
    const purged = orphansIn([...SPENT, ...HALF_CLOSED]);
    const expected = FAMILIES.flatMap((family) => purged.map((port) => `gc ${family} 6 ${port} orphan`));
    expect(events.toSorted()).toEqual(expected.toSorted());
    expect([...alive]).toEqual(expect.arrayContaining([LIVE, OTHERS]));
    const established = orphansIn(["ESTABLISHED"]);
    expect(await left("tcp", "ip6")).toEqual([LIVE, OTHERS, ...established]);
    expect(await left("tcp")).toEqual(expect.arrayContaining([LIVE, OTHERS, ...established]));
    expect((await left("tcp")).filter((port) => purged.includes(port))).toEqual([]);
    const metrics = (await registry.metrics()).split("\n");
    for (const family of ["IPv4", "IPv6"]) {
      for (const [by, reason, count] of [
        ["reconciler", "endpoint-gone", 2],
        ["gc", "orphan", purged.length],
      ] as const) {
        const labels = `family="${family}",by="${by}",reason="${reason}"`;
        expect(metrics).toContain(`nftproxier_conntrack_deleted_entries_total{${labels}} ${count}`);
      }
    }
  });

  test("a periodic run keeps half-closed entries, and does not happen if it is switched off", async () => {
    const collected = Promise.withResolvers<void>();
    const spec = { observers: [{ collected: () => collected.resolve() }], gcInterval: 1000 };
    tracked = await Tracked.start(cluster, {}, spec);
    await tracked.apply(serviceObjects(cluster.lab, web));
    tracked.conntrack.start();
    await collected.promise;
    expect(await left("tcp")).toEqual([LIVE, OTHERS, ...orphansIn([...HALF_CLOSED, "ESTABLISHED"])]);
    await tracked.stop();
    tracked = undefined;

    let runs = 0;
    const distressed = Promise.withResolvers<void>();
    const looked = Promise.withResolvers<void>();
    const off: ConntrackObserver = {
      collected: () => runs++,
      pressure: () => looked.resolve(),
      distress: () => distressed.resolve(),
    };
    tracked = await Tracked.start(cluster, {}, { observers: [off], gcInterval: "off", timing: { pressureMs: 200 } });
    tracked.conntrack.start();
    await looked.promise;
    await failInsertion();
    await distressed.promise;
    await tracked.stop();
    tracked = undefined;
    expect(runs).toBe(0);
  });
});
