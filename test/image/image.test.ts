/** The image that deploy/Dockerfile builds, run as the DaemonSet runs it, on a node of the lab with an API server. */
import type { V1ConfigMap, V1Container, V1DaemonSet, V1PodSpec } from "@kubernetes/client-node";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import type { KubeJson } from "../lab/api-server/api-server.ts";
import { eventually } from "../lab/eventually.ts";
import { makeService, makeSlice, podsOf } from "../bench/cluster.ts";
import { Api } from "../packets/support/api.ts";
import { Cluster } from "../packets/support/cluster.ts";
import {
  clusterIP,
  NODE,
  nodeObject,
  nodePort,
  serviceCIDRObject,
  serviceObjects,
  type ServiceSpec,
} from "../packets/support/objects.ts";
import { checkRow, type Row } from "../packets/support/rows.ts";
import { missingNotices } from "../support/notices.ts";
import { directory, type Report, reportFile } from "./build.ts";
import { Container, type Pod } from "./container.ts";

const checkout = path.resolve(import.meta.dirname, "../..");
const load = (file: string): unknown => parse(readFileSync(path.join(checkout, "deploy/kubernetes", file), "utf8"));
const { version } = JSON.parse(readFileSync(path.join(checkout, "package.json"), "utf8")) as { version: string };
const spec = (load("daemon-set.yaml") as V1DaemonSet).spec?.template.spec as V1PodSpec;
const [main] = spec.containers;
const [init] = spec.initContainers as V1Container[];
const report = JSON.parse(readFileSync(reportFile, "utf8")) as Report;

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };
const ROWS: readonly Row[] = [
  { rule: "", from: "c", to: clusterIP(web), families: ["ip"], expect: { pods: ["a", "r1"], masq: false } },
  { rule: "", from: "client", to: nodePort(web), families: ["ip"], expect: { pods: ["a", "r1"], masq: true } },
];

describe.skipIf(report.skipped !== undefined)("the image", () => {
  let cluster: Cluster;
  let api: Api;
  let pod: Pod;
  const running: Container[] = [];

  beforeAll(async () => {
    cluster = await Cluster.create();
    api = await Api.start(cluster.node, { tls: {}, tokens: ["token-of-the-pod"] });
    const objects = [nodeObject(), serviceCIDRObject(), ...serviceObjects(cluster.lab, web)];
    await api.call("put", objects as unknown as readonly KubeJson[]);
    const at = (name: string): string => path.join(directory, name);
    for (const name of ["account", "config"]) mkdirSync(at(name), { recursive: true });
    writeFileSync(at("account/ca.crt"), api.ca);
    writeFileSync(at("account/token"), "token-of-the-pod\n");
    // The API server has another address, and no kubelet has set the score before.
    const score = readFileSync("/proc/self/oom_score_adj", "utf8").trim();
    for (const [name, text] of Object.entries((load("config-map.yaml") as V1ConfigMap).data ?? {})) {
      const here = text
        .replace("https://control-plane.example:6443", api.url)
        .replace("oomScoreAdj: -997", `oomScoreAdj: ${score}`);
      writeFileSync(at(`config/${name}`), here);
    }
    const volumes = { config: at("config") };
    const node = { name: NODE, namespace: cluster.node, volumes, account: at("account") };
    const { root, config } = report as Required<Report>;
    pod = { root, config, spec, node };
  });
  afterEach(async () => {
    for (const container of running.splice(0)) await container.remove();
    await cluster.command(["cleanup"]);
  });
  afterAll(() => cluster.destroy());

  /** Starts a container that ends with the test. */
  function start(container: V1Container, overlay?: Readonly<Record<string, string>>): Container {
    const started = new Container(pod, container, overlay);
    running.push(started);
    return started;
  }

  const ready = async (): Promise<number | string> =>
    cluster.node
      .http()
      .get("http://127.0.0.1:10256/readyz")
      .then(({ status }) => status)
      .catch((error: unknown) => String(error));

  async function initialized(): Promise<void> {
    const container = start(init);
    const code = await container.ended();
    expect(code, container.log).toBe(0);
  }

  /** Runs the DaemonSet's containers in turn, and waits for the readiness probe. */
  async function serving(): Promise<Container> {
    await initialized();
    const container = start(main);
    const end = container.ended().then((code) => Promise.reject(new Error(`exit ${code}: ${container.log}`)));
    await Promise.race([end, eventually(async () => expect(await ready(), container.log).toBe(200))]);
    end.catch(() => undefined);
    return container;
  }

  const packets = async (): Promise<readonly string[]> =>
    (await Promise.all(ROWS.map((row) => checkRow(cluster, row)))).flat();

  /** Runs another command of the image. */
  async function command(...words: readonly string[]): Promise<Pick<Container, "output" | "log"> & { code: number }> {
    const container = start({ ...main, command: [...words] });
    const code = await container.ended();
    return { code, output: container.output, log: container.log };
  }

  test("has labels, kube-proxy's command and root's number", () => {
    expect(pod.config.Labels).toMatchObject({
      "org.opencontainers.image.version": version,
      "org.opencontainers.image.revision": report.revision,
    });
    expect(pod.config).toMatchObject({ User: "0", Entrypoint: ["/usr/local/bin/kube-proxy"] });
  });

  test.each(["kube-proxy", "nft-proxier"])("has the command %s, which prints version and commit", async (name) => {
    const { code, output, log } = await command(`/usr/local/bin/${name}`, "--version");
    expect({ code, log }).toEqual({ code: 0, log: "" });
    expect(output).toContain(version);
    expect(output).toContain(report.revision?.slice(0, 7));
    const help = await command(`/usr/local/bin/${name}`, "services", "--help");
    expect(help.output).toContain(`Usage: ${name} services`);
  });

  test("contains no program but Node and the two names of its command", () => {
    const list = ["-xdev", "-type", "f", "-size", "+0", "-perm", "/111", "-not", "-name", "*.so*", "-printf", "%P\n"];
    const programs = execFileSync("find", [pod.root, ...list], { encoding: "utf8" })
      .trim()
      .split("\n");
    const ofOurs = programs.filter((name) => !name.startsWith("lib") && !name.endsWith(".node"));
    const expected = [
      "opt/nft-proxier/dist/main.js",
      ...["kube-proxy", "nft-proxier", "node"].map((n) => `usr/local/bin/${n}`),
    ];
    expect(ofOurs.filter((name) => !expected.includes(name))).toEqual([]);
  });

  test("has the notices of everything in it", () => {
    expect(missingNotices(pod.root)).toEqual([]);
  });

  test("has the base image's certificates", () => {
    const certificates = readFileSync(path.join(pod.root, "etc/ssl/certs/ca-certificates.crt"), "utf8");
    expect(certificates).toContain("BEGIN CERTIFICATE");
  });

  test("the init container ends with 0, and sets what the other container may not", async () => {
    await initialized();
    const held = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait";
    expect(await cluster.node.mustRun(["cat", held])).toBe("3600\n");
  });

  test("the container serves with only the DaemonSet's rights, and answers commands", async () => {
    const container = await serving();
    expect(await packets()).toEqual([]);
    const status = readFileSync(`/proc/${container.pid}/status`, "utf8");
    const CAP_NET_ADMIN = 12n;
    expect(BigInt(`0x${/^CapEff:\s+(\w+)/m.exec(status)?.[1]}`)).toBe(1n << CAP_NET_ADMIN);
    expect(status).toMatch(/^NoNewPrivs:\s+1$/m);
    expect(status).toMatch(/^Seccomp:\s+2$/m);
    const shown = await container.exec("nft-proxier", "status");
    expect(shown, container.log).toMatchObject({ code: 0, stderr: "" });
    expect(shown.stdout).toContain(version);
    expect((await container.exec("nft-proxier", "services", "default/web")).stdout).toContain("10.96.1.1");
    const write = `try { require("fs").writeFileSync("/opt/x", "") } catch (error) { console.log(error.code) }`;
    expect((await container.exec("node", "-e", write)).stdout).toBe("EROFS\n");
  });

  // The largest usage seen is 48.0 MB: 32 of the daemon, and 16 while a command runs.
  test("a container limited to 56 MB serves 100 services, and still answers commands", async () => {
    const numbers = Array.from({ length: 100 }, (_, i) => i);
    const made = numbers.flatMap((i) => [makeService(i), makeSlice(i, podsOf(i, 10))]);
    const objects = made as unknown as readonly KubeJson[];
    await api.call("put", objects);
    await initialized();
    const container = start({ ...main, resources: { limits: { memory: "56Mi" } } });
    await eventually(async () => expect(await ready(), container.log).toBe(200));
    // The daemon releases memory when all is quiet after the first write.
    const anonymousKB = (): number =>
      Number(/^Anonymous: +(\d+) kB$/m.exec(readFileSync(`/proc/${container.pid}/smaps_rollup`, "utf8"))?.[1]);
    await eventually(() => expect(anonymousKB()).toBeLessThan(32_000));
    for (let time = 0; time < 3; time++) {
      const shown = await container.exec("nft-proxier", "status");
      expect(shown, container.log).toMatchObject({ code: 0, stderr: "" });
      expect(shown.stdout).toMatch(/101 services/);
    }
  });

  test("the daemon starts from the startup snapshot, and so not with a damaged one", async () => {
    const container = await serving();
    const words = readFileSync(`/proc/${container.pid}/cmdline`, "utf8").split("\0");
    expect(words[words.indexOf("--snapshot-blob") + 1]).toBe("/opt/nft-proxier/daemon.blob");
    await container.remove();
    const damaged = path.join(directory, "damaged.blob");
    writeFileSync(damaged, "no snapshot");
    const other = start(main, { "/opt/nft-proxier/daemon.blob": damaged });
    expect(await other.ended()).not.toBe(0);
    expect(other.log).toMatch(/snapshot/i);
  });

  test("SIGTERM ends the daemon with 0, and the rules keep serving", async () => {
    const container = await serving();
    container.kill("TERM");
    expect(await container.ended()).toBe(0);
    expect(await packets()).toEqual([]);
  });

  test("after kill -9 the rules keep serving, and the next container continues with them", async () => {
    const container = await serving();
    container.kill("KILL");
    expect(await container.ended()).not.toBe(0);
    expect(await packets()).toEqual([]);
    const table = (): Promise<string> => cluster.node.mustRun(["nft", "-a", "-t", "list", "table", "ip", "kube-proxy"]);
    const before = await table();
    const next = await serving();
    expect(await packets()).toEqual([]);
    // Handles show that no chain and no set was recreated.
    expect(await table()).toBe(before);
    expect(next.log).toMatch(/"transactions":0,.*"transactions":0,.*"rules active"/);
    expect(next.log).not.toMatch(/"level":"(warn|error)"/);
  });

  test("sizes are those in deploy/image.md", () => {
    const parts: (readonly [name: string, ...paths: readonly string[]])[] = [
      ["`/usr/local/bin/node`", "usr/local/bin/node"],
      ["the C and C++ libraries", "lib", "lib64", "usr/lib"],
      ["`/opt/nft-proxier/daemon.blob`", "opt/nft-proxier/daemon.blob"],
      ["`/opt/nft-proxier/dist`", "opt/nft-proxier/dist"],
      ["the addon", "opt/nft-proxier/build"],
      ["V8's compiled code", "opt/nft-proxier/cache"],
      [
        "`licenses.txt`",
        "var",
        "usr/share/doc",
        "usr/share/common-licenses",
        "opt/nft-proxier/licenses.txt",
        "opt/nft-proxier/sbom.spdx.json",
        "opt/nft-proxier/LICENSE",
      ],
    ];
    parts.push(["`distroless/static-debian12`", "etc"]);
    const measure = (paths: readonly string[]): { raw: number; compressed: number } => {
      const there = paths.filter((name) => existsSync(path.join(pod.root, name))).join(" ");
      const count = (filter: string): number =>
        Number(execFileSync("sh", ["-c", `tar -C ${pod.root} -cf - ${there} ${filter} | wc -c`], { encoding: "utf8" }));
      return { raw: count(""), compressed: count("| gzip -6") };
    };
    const mb = (bytes: number): string => (bytes / 1e6).toFixed(1).padStart(6);
    const rows = parts.map(([name, ...paths]) => ({ name, ...measure(paths) }));
    const sum = (of: "raw" | "compressed"): number => rows.reduce((bytes, row) => bytes + row[of], 0);
    const total = { name: "the whole image", raw: sum("raw"), compressed: sum("compressed") };
    const [all] = execFileSync("du", ["-s", "--block-size=1", pod.root], { encoding: "utf8" }).split("\t");
    // No part is missing. A small file takes a whole block.
    expect(Math.abs(Number(all) - total.raw)).toBeLessThan(2_000_000);
    const lines = [...rows, total].map(({ name, raw, compressed }) => `${mb(raw)} ${mb(compressed)}  ${name}`);
    console.log(["   raw   gzip  (MB)", ...lines].join("\n"));
    const readme = readFileSync(path.join(checkout, "deploy/image.md"), "utf8");
    const [, raw, compressed] = /On amd64 the image is (\d+) MB, or (\d+) MB compressed/.exec(readme) ?? [];
    const listed = [...readme.matchAll(/^\| ([\d.]+) \| ([\d.]+) \| (.*) \|$/gm)].map(
      ([, raw, compressed, content = ""]) => {
        return { content, raw: Number(raw), compressed: Number(compressed) };
      },
    );
    expect(listed).toHaveLength(rows.length);
    for (const { name, ...row } of rows) {
      // The base image of the test has only certificates.
      if (name.includes("distroless")) continue;
      const there = listed.find(({ content }) => content.startsWith(name));
      for (const key of ["raw", "compressed"] as const) {
        const size = row[key] / 1e6;
        const tolerance = Math.min(1, 0.15 + 0.15 * size);
        expect(Math.abs(size - (there?.[key] ?? Infinity)), `${name}: ${key}`).toBeLessThan(tolerance);
      }
    }
    const summed = (key: "raw" | "compressed"): number => listed.reduce((mb, row) => mb + row[key], 0);
    expect(Math.abs(summed("raw") - Number(raw))).toBeLessThan(1);
    expect(Math.abs(summed("compressed") - Number(compressed))).toBeLessThan(1);
    // The base image of the test lacks time zones (2 MB).
    expect(Math.abs(total.raw / 1e6 - Number(raw))).toBeLessThan(6);
    expect(Math.abs(total.compressed / 1e6 - Number(compressed))).toBeLessThan(4);
  });
});
