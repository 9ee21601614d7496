/** `diagnose`: one archive with everything that a bug report needs, and no secrets. */
import { mkdtemp, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { KubeJson } from "../lab/api-server/api-server.ts";
import { eventually } from "../lab/eventually.ts";
import { mustRun } from "../lab/namespace.ts";
import { Api } from "./support/api.ts";
import { Cluster } from "./support/cluster.ts";
import { configuration, nodeObject, serviceCIDRObject, serviceObjects } from "./support/objects.ts";
import { end } from "./support/daemon.ts";

const SECRET = "open-sesame-4711";

let cluster: Cluster;
let directory: string;
beforeAll(async () => {
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  directory = await cluster.temporaryDirectory();
});
afterAll(() => cluster.destroy());

/** The archive's files, by name. */
async function unpacked(archive: string): Promise<ReadonlyMap<string, string>> {
  const into = await mkdtemp(join(directory, "unpacked-"));
  await mustRun("tar", ["-xzf", archive, "-C", into]);
  const [name] = await readdir(into);
  expect(name).toMatch(/^nft-proxier-.+-\d{8}T\d{6}Z$/);
  const files = await readdir(join(into, name));
  return new Map(
    await Promise.all(files.map(async (file) => [file, await readFile(join(into, name, file), "utf8")] as const)),
  );
}

test("with a daemon in a cluster, the archive has everything except secrets", async () => {
  const api = await Api.start(cluster.lab.node, { tokens: [SECRET] });
  const objects = [
    nodeObject(),
    serviceCIDRObject(),
    ...serviceObjects(cluster.lab, { name: "web", n: 1, endpoints: ["a"] }),
  ];
  await api.call("put", objects as unknown as readonly KubeJson[]);
  const kubeconfig = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "c", cluster: { server: api.url } }],
    contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
    "current-context": "c",
    users: [{ name: "u", user: { token: SECRET } }],
  };
  await writeFile(join(directory, "kubeconfig"), JSON.stringify(kubeconfig));
  const config = { ...configuration(), clientConnection: { kubeconfig: join(directory, "kubeconfig") } };
  await writeFile(join(directory, "config.json"), JSON.stringify(config));
  const socket = join(directory, "daemon.sock");
  const daemon = cluster.start(["--config", join(directory, "config.json"), "--control-socket", socket]);
  daemon.stderr?.resume();
  await eventually(async () => expect((await cluster.command(["status", "--socket", socket])).code).toBe(0));
  // The archive says why access is denied, but must not contain the rejected credentials.
  await api.call("accept", ["another"]);
  await api.call("cut", "services");
  await eventually(async () =>
    expect((await cluster.command(["status", "--socket", socket])).stdout).toContain("check the token"),
  );
  const archive = join(directory, "report.tar.gz");
  const { code, stderr } = await cluster.command(["diagnose", "-o", archive, "--socket", socket]);
  expect({ code, stderr }).toMatchObject({
    code: 0,
    stderr: expect.stringMatching(/^nft-proxier: wrote .*report\.tar\.gz /) as string,
  });
  expect((await stat(archive)).mode & 0o777).toBe(0o600);
  const files = await unpacked(archive);
  expect([...files.keys()].sort()).toEqual([
    "configuration.json",
    "events.json",
    "flags.txt",
    "interfaces.json",
    "log.txt",
    "metrics.txt",
    "proc-net-ipv6_route.txt",
    "proc-net-netlink.txt",
    "proc-net-route.txt",
    "ruleset.json",
    "services.json",
    "status.json",
    "sysctls.json",
    "versions.json",
  ]);
  for (const [name, text] of files) expect(`${name}: ${text}`).not.toContain(SECRET);
  expect(files.get("configuration.json")).toContain(join(directory, "kubeconfig"));
  expect(files.get("log.txt")).toContain("rules active");
  expect(files.get("flags.txt")).toContain(`config=${join(directory, "config.json")}`);
  expect(files.get("metrics.txt")).toContain("kubeproxy_sync_proxy_rules");
  expect(files.get("services.json")).toContain('"name": "web"');
  const ruleset = JSON.parse(files.get("ruleset.json") ?? "") as {
    ours: { sets: { set: string; elements: string[] }[] }[];
  };
  // The table that was created first is the first one.
  const services = ruleset.ours.flatMap(({ sets }) => sets.find(({ set }) => set === "services")?.elements ?? []);
  expect(services).toContainEqual(expect.stringMatching(/^10\.96\.1\.1 \. tcp \. 80 → [0-9a-f]+:1$/));
  await end(daemon);
});

test("without a daemon, the archive has the kernel's contents and the names of missing parts", async () => {
  await cluster.apply(serviceObjects(cluster.lab, { name: "web", n: 1, endpoints: ["a"] }));
  const archive = join(directory, "alone.tar.gz");
  const { code, stderr } = await cluster.command(["diagnose", "-o", archive]);
  expect(code).toBe(0);
  expect(stderr).toMatch(/^nft-proxier: not in the file: services\.json: no daemon answers/m);
  const files = await unpacked(archive);
  expect(files.get("missing.txt")).toMatch(/^status\.json: no daemon answers/m);
  expect(files.get("ruleset.json")).toContain("10.96.1.1 . tcp . 80");
  expect(files.get("kernel-status.json")).toContain('"KernelStatus"');
});

test("a file that cannot be written is an error", async () => {
  const { code, stderr } = await cluster.command(["diagnose", "-o", join(directory, "none", "x.tar.gz")]);
  expect(code).toBe(1);
  expect(stderr).toMatch(/ENOENT.*use -o FILE for another file/);
});

test.each([[["diagnose", "-o", "-"]], [["--help"]]])(
  "if the disk of stdout is full, %j says so in one line",
  async (args) => {
    const starter = ["sh", "-c", 'exec "$@" >/dev/full', "sh"];
    const { code, stderr } = await cluster.commandThrough(starter, args);
    expect(code).toBe(1);
    expect(stderr.trimEnd().split("\n").at(-1)).toMatch(/^nft-proxier: writing to stdout failed: ENOSPC/);
    expect(stderr).not.toContain(" at ");
  },
);
