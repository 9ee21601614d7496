/** `nft-proxier conntrack` on a node with real flows: the output for a person, a pipe and a script. */
import type { ChildProcess } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { eventually } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
import { FAMILIES, PLAN } from "../lab/topology.ts";
import { Cluster } from "./support/cluster.ts";
import { clusterIP, everyWay, nodePort, serviceObjects, type ServiceSpec, sliceObject } from "./support/objects.ts";
import { end } from "./support/daemon.ts";
import { temporaryDirectory } from "../support/temporary-directory.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"], protocols: ["udp", "tcp"] };
const dns: ServiceSpec = { name: "dns", n: 2, endpoints: ["r1"], protocols: ["udp"] };
const SPORT = 40_123;

let cluster: Cluster;
let args: readonly string[];
beforeAll(async () => {
  cluster = await Cluster.create();
  const timeouts = ["udp_timeout", "udp_timeout_stream"].map((name) => [
    `net.netfilter.nf_conntrack_${name}`,
    patience(600),
  ]);
  await cluster.lab.node.sysctl(Object.fromEntries(timeouts) as Record<string, number>);
  await apply(objects([web, dns]));
  let sourcePort = SPORT;
  for (const to of [...everyWay(web), ...everyWay(dns)]) {
    for (const family of FAMILIES) {
      const { namespace, address } = cluster.source("client");
      const ends = { source: address?.[family] ?? "", destination: to.address[family], port: to.port };
      const outcomes = await namespace.agent().probe({ protocol: "udp", sourcePort: sourcePort++, ...ends });
      expect(outcomes).toMatchObject([{ result: "ok" }]);
    }
  }
});
afterAll(async () => {
  await cluster.destroy();
});

async function apply(manifests: Parameters<Cluster["apply"]>[0]): Promise<void> {
  await cluster.apply(manifests);
  args = await cluster.write(manifests);
}

/** Endpoints name their pods, as in a cluster. */
function objects(services: readonly ServiceSpec[]) {
  return services.flatMap((service) =>
    serviceObjects(cluster.lab, service).map((object) =>
      object["kind"] === "Service"
        ? object
        : {
            ...object,
            endpoints: (object["endpoints"] as object[]).map((endpoint) => ({
              ...endpoint,
              targetRef: { kind: "Pod", namespace: "default", name: `${service.name}-0` },
            })),
          },
    ),
  );
}

async function conntrack(...words: readonly string[]) {
  const { code, stdout, stderr } = await cluster.command(["conntrack", ...words]);
  return { code, stderr, lines: stdout.split("\n").filter((line) => line !== "") };
}

/** Runs a command that must succeed. */
async function fine(...words: readonly string[]): Promise<string[]> {
  const { code, stderr, lines } = await conntrack(...words);
  expect([code, stderr]).toEqual([0, ""]);
  return lines;
}

const columns = (line: string): string[] => line.trimEnd().split(/ {2,}/);

describe("list", () => {
  test("the output has only the matching entries, under a header", async () => {
    const [head, ...rest] = await fine("list", "-f", "ip", "-d", clusterIP(web).address.ip);
    expect(columns(head ?? "")).toEqual(["PROTO", "STATE", "LEFT", "SOURCE", "DESTINATION", "ENDPOINT"]);
    expect(rest.map(columns)).toEqual([
      [
        "udp",
        "REPLIED",
        expect.stringMatching(/^\d+s$/),
        `${PLAN.client.ip}:${SPORT}`,
        `${clusterIP(web).address.ip}:80`,
        `${cluster.lab.pod("a").address.ip}:8080`,
      ],
    ]);
  });

  test("with manifests it shows a service's entries on all its addresses, with the service's name", async () => {
    const [, ...rest] = await fine("list", "--service", "default/web", ...args);
    const expected = everyWay(web).flatMap(({ address, port }) => [
      `${address.ip}:${port}`,
      `[${address.ip6}]:${port}`,
    ]);
    expect(rest.map((line) => columns(line)[4]).sort()).toEqual(expected.sort());
    expect(new Set(rest.map((line) => columns(line).slice(6).join(" ")))).toEqual(
      new Set(["default/web:udp default/web-0"]),
    );
  });

  test("JSON output has one object per line", async () => {
    const lines = await fine("list", "-o", "json", "--dport", String(nodePort(dns).port), ...args);
    const entries = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    const shown = entries.map(({ family, protocol, service, pod }) => [family, protocol, service, pod].join(" "));
    expect(shown.toSorted()).toEqual([
      "IPv4 udp default/dns:udp default/dns-0",
      "IPv6 udp default/dns:udp default/dns-0",
    ]);
  });

  test("a reader that stops early is not an error", async () => {
    const { main, node } = cluster;
    const script = `set -o pipefail; "${process.execPath}" "${main}" conntrack list | head -n 1`;
    const done = await node.run(["bash", "-c", script]);
    expect([done.code, done.stderr, done.stdout.split("\n").length]).toEqual([0, "", 2]);
  });
});

test("get finds one entry by its original tuple, and exits with 1 if there is none", async () => {
  const { ip6 } = clusterIP(web).address;
  const [, line] = await fine("get", "udp", `[${PLAN.client.ip6}]:${SPORT + 1}`, `[${ip6}]:80`);
  expect(columns(line ?? "")[5]).toBe(`[${cluster.lab.pod("a").address.ip6}]:8080`);
  const none = await conntrack("get", "udp", `[${PLAN.client.ip6}]:1`, `[${ip6}]:80`);
  expect([none.code, none.lines, none.stderr]).toEqual([1, [], "nft-proxier: the entry does not exist\n"]);
});

test("count prints a number; wide output also says how full the table is", async () => {
  const [all] = await fine("count");
  const [some] = await fine("count", "--service", "default/dns", "-f", "ip6", ...args);
  expect([Number(all) >= 16, some]).toEqual([true, "4"]);
  expect((await fine("count", "-o", "wide"))[0]).toMatch(/^\d+ of \d+ \(\d+\.\d % full\)$/);
});

test("count --by lists numbers per key, highest first", async () => {
  const total = async (...words: string[]) => {
    const [head, ...rows] = (await fine("count", ...words)).map(columns);
    const counts = rows.map(([entries]) => Number(entries));
    expect(counts).toEqual(counts.toSorted((a, b) => b - a));
    return { head, rows, sum: counts.reduce((sum, count) => sum + count, 0) };
  };
  const all = Number((await fine("count", "-p", "udp"))[0]);
  for (const by of ["source", "destination"]) {
    const { head, rows, sum } = await total("-p", "udp", "--by", by);
    expect([head, sum, new Set(rows.map(([, who]) => who)).size]).toEqual([
      ["ENTRIES", by.toUpperCase()],
      all,
      rows.length,
    ]);
  }
  const bySource = await total("-f", "ip", "-d", clusterIP(web).address.ip, "--by", "source");
  expect(bySource.rows.map(([, source]) => source)).toContain(PLAN.client.ip);
  const byService = await total("-p", "udp", "--by", "service", ...args);
  expect(byService.rows.map(([, service]) => service)).toContain("default/dns:udp");
  const json = (
    await fine("count", "--service", "default/dns", "--by", "service", "-f", "ip6", "-o", "json", ...args)
  ).map((line) => JSON.parse(line) as { service: string; entries: number });
  expect(json.reduce((sum, { entries }) => sum + entries, 0)).toBe(4);
});

test("list --service, count --by service and gc ask a running daemon", async () => {
  const directory = temporaryDirectory();
  const socket = join(directory, "daemon.sock");
  const daemon = cluster.start(["run", ...args, "--control-socket", socket, "--conntrack-gc-interval", "0"]);
  daemon.stderr?.resume();
  try {
    await eventually(async () => expect((await cluster.command(["status", "--socket", socket])).code).toBe(0));
    for (const words of [
      ["list", "--service", "default/web", "-o", "json", "-f", "ip6"],
      ["count", "--by", "service", "-p", "udp"],
      ["gc", "--dry-run"],
    ]) {
      const [asked, read] = [await conntrack(...words, "--socket", socket), await conntrack(...words, ...args)];
      // The remaining time differs from one second to the next.
      const told = ({ code, stderr, lines }: typeof asked) => [
        code,
        stderr,
        lines.map((line) => line.replace(/"timeoutSeconds":\d+,?/, "")).toSorted(),
      ];
      expect([words, told(asked)]).toEqual([words, told(read)]);
      if (words[0] !== "gc") expect(asked.lines.length).toBeGreaterThan(1);
    }
    // A slice without its Service may name an endpoint; the daemon does not report it.
    const established = await conntrack("gc", "--dry-run", "--orphans", "-p", "tcp", "--socket", socket);
    expect([established.code, established.stderr]).toEqual([1, expect.stringContaining("established connections")]);
    expect((await conntrack("gc", "--dry-run", "--orphans", "--socket", socket)).code).toBe(0);
    expect((await conntrack("gc", "--dry-run", "--orphans", "-p", "tcp", ...args)).code).toBe(0);
    const wrong = await conntrack("list", "--service", "default/wep", "--socket", socket);
    expect([wrong.code, wrong.stderr]).toEqual([1, expect.stringContaining("did you mean default/web?")]);
  } finally {
    await end(daemon);
  }
});

describe("gc", () => {
  const moved: ServiceSpec = { ...dns, endpoints: ["r2"] };

  test("a dry run shows which entries would be deleted and why; a real run deletes only these", async () => {
    const before = Number((await fine("count"))[0]);
    const manifests = objects([web, moved]);
    args = await cluster.write(manifests);
    const dry = await conntrack("gc", "--dry-run", "-o", "json", ...args);
    expect(dry.code).toBe(0);
    const outcomes = dry.lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(outcomes.map(({ outcome, reason, service }) => [outcome, reason, service].join(" "))).toEqual(
      Array.from({ length: 8 }, () => "would-go endpoint-gone default/dns:udp"),
    );
    expect(dry.stderr).toMatch(/IPv4: 4 entries would be deleted, \d+ kept\n.*IPv6: 4 entries would be deleted/);
    expect(Number((await fine("count"))[0])).toBe(before);
    const done = await conntrack("gc", ...args);
    expect([done.code, done.lines.length, columns(done.lines[1] ?? "").slice(0, 2)]).toEqual([
      0,
      9,
      ["deleted", "endpoint-gone"],
    ]);
    expect(await fine("list", "--no-headers", "--service", "default/dns", ...args)).toEqual([]);
    expect((await fine("list", "--no-headers", "--service", "default/web", ...args)).length).toBe(8);
  });

  test("a manifest that is not understood prevents deletions, because its endpoints are unknown", async () => {
    const before = Number((await fine("count"))[0]);
    const broken = temporaryDirectory();
    const items = objects([web, moved]).filter(({ kind }) => kind === "Service");
    await writeFile(join(broken, "services.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    await writeFile(join(broken, "slices.json"), '{ "kind": "EndpointSlice"');
    const { code, lines, stderr } = await conntrack("gc", ...args.with(args.indexOf("--manifests") + 1, broken));
    expect([code, lines]).toEqual([1, []]);
    expect(stderr).toContain("nothing is deleted, because some services are unknown; correct or remove slices.json");
    expect(Number((await fine("count"))[0])).toBe(before);
  });

  test("a filter protects all other entries", async () => {
    const gone = serviceObjects(cluster.lab, web).map((object) =>
      object["kind"] === "Service"
        ? object
        : sliceObject(cluster.lab, {
            name: (object["metadata"] as { name: string }).name,
            service: "web",
            family: object["addressType"] === "IPv4" ? "ip" : "ip6",
            endpoints: ["b"],
          }),
    );
    args = await cluster.write(gone);
    const done = await conntrack("gc", "-f", "ip6", "--dport", String(nodePort(web).port), ...args);
    expect([done.code, done.lines.length]).toEqual([0, 2]);
    expect((await fine("list", "--no-headers", "--service", "default/web", ...args)).length).toBe(7);
  });
});

test("watch shows connections as they open and close, until it is stopped", async () => {
  await apply(objects([web, dns]));
  const watch = cluster.start(["conntrack", "watch", "-o", "json", "-p", "udp", ...args], "pipe");
  const lines = linesOf(watch);
  // Once it prints anything, it has subscribed.
  const { namespace, address } = cluster.source("client");
  const probe = {
    protocol: "udp",
    source: address?.ip ?? "",
    destination: clusterIP(web).address.ip,
    port: 80,
  } as const;
  const seen = async (event: string): Promise<Record<string, unknown>> => {
    for (const start = performance.now(); performance.now() - start < patience(20_000); await sleep(50)) {
      const found = lines
        .map((line) => JSON.parse(line) as Record<string, unknown>)
        .find((one) => one["event"] === event);
      if (found !== undefined) return found;
      await namespace.agent().probe({ ...probe, timeoutMs: 100 });
    }
    throw new Error(`no ${event} in ${lines.join("\n")}`);
  };
  expect(await seen("new")).toMatchObject({ protocol: "udp", service: "default/web:udp", pod: "default/web-0" });
  args = await cluster.write(objects([{ ...web, endpoints: ["b"] }]));
  await conntrack("gc", ...args);
  expect(await seen("destroy")).toMatchObject({ protocol: "udp", service: "default/web:udp" });
  const ended = new Promise<number | null>((resolve) => watch.once("exit", resolve));
  watch.kill("SIGINT");
  expect(await ended).toBe(0);
});

test("watch says so if the kernel reports no connections", async () => {
  await cluster.lab.node.sysctl({ "net.netfilter.nf_conntrack_events": 0 });
  try {
    const watch = cluster.start(["conntrack", "watch"]);
    const told = new Promise((resolve) => watch.stderr?.setEncoding("utf8").once("data", resolve));
    expect(await told).toBe(
      "nft-proxier: the kernel reports no connections; run `sysctl -w net.netfilter.nf_conntrack_events=1`\n",
    );
    watch.kill("SIGTERM");
  } finally {
    await cluster.lab.node.sysctl({ "net.netfilter.nf_conntrack_events": 1 });
  }
});

function linesOf(child: ChildProcess): string[] {
  const lines: string[] = [];
  let rest = "";
  child.stdout?.on("data", (chunk: Buffer) => {
    const parts = (rest + chunk.toString()).split("\n");
    rest = parts.pop() ?? "";
    lines.push(...parts);
  });
  return lines;
}

test("without rights it says what is missing, and exits with 1", async () => {
  const { main, node } = cluster;
  const done = await node.run(["unshare", "-U", process.execPath, main, "conntrack", "list"]);
  expect([done.code, done.stdout]).toEqual([1, ""]);
  expect(done.stderr).toMatch(/CAP_NET_ADMIN in the network namespace's user namespace is missing/);
});
