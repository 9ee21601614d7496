/**
 * `preflight`'s statements about the kernel, compared with the result of the first write. Kernels with modules, some of
 * them missing (`test:kernels -- --qemu --without nft_numgen`, `… --without nft_reject_ipv6`), show most.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { PreflightReport } from "../../src/migration/preflight/preflight-report.ts";
import { Cluster } from "./support/cluster.ts";
import type { KubeJson } from "../lab/api-server/api-server.ts";
import { HttpClient } from "../lab/http.ts";
import { Api } from "./support/api.ts";
import { configuration, nodeObject, serviceCIDRObject, serviceObjects, type ServiceSpec } from "./support/objects.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };

/** "" if this kernel has no modules. */
const modules = async (): Promise<string> => {
  const text = await readFile("/proc/modules", "utf8").catch(() => "");
  return text.replaceAll(/ .*/g, "");
};

let cluster: Cluster;
/** Options of commands that read manifests. */
let given: readonly string[];
beforeAll(async () => {
  cluster = await Cluster.create([{ name: "a", on: "node" }]);
  given = await cluster.write(serviceObjects(cluster.lab, web));
});
afterAll(() => cluster.destroy());

test("an inspection makes the kernel load no module, and the output says what was therefore not inspected", async () => {
  const before = await modules();
  const { stdout } = await cluster.command(["preflight", ...given]);
  expect(await modules()).toBe(before);
  const tried = /the kernel accepts the rules|refuses/.test(stdout);
  expect([tried, stdout.includes("the rules were not tried")]).toEqual([tried, !tried]);
  if (before === "") expect(tried).toBe(true);
});

test("the rules are reported as a problem only if the first write fails", async () => {
  const { stdout, stderr } = await cluster.command(["preflight", ...given, "--load-modules", "-o", "json"]);
  if (stdout === "") throw new Error(stderr);
  const { findings } = JSON.parse(stdout) as PreflightReport;
  const problems = findings.filter(({ level, area }) => level === "problem" && area === "kernel");
  const { code } = await cluster.command(["run", ...given, "--once"]);
  // Whether the kernel was made to lack a module of the rules.
  const lacks = /\bnft_/.test(process.env["NFT_PROXIER_WITHOUT"] ?? "");
  expect(code).toBe(lacks ? 1 : 0);
  expect({ problems: problems.length > 0, findings }).toEqual({ problems: code !== 0, findings });
});

test("a family that no service has leaves the node ready, and status names what this kernel lacks for it", async () => {
  const address = "127.0.0.1:10256";
  const directory = await cluster.temporaryDirectory();
  const api = await Api.start(cluster.node);
  const objects = [nodeObject(), serviceCIDRObject(), ...serviceObjects(cluster.lab, { ...web, families: ["ip"] })];
  await api.call("put", objects as unknown as readonly KubeJson[]);
  const [kubeconfig, file, socket] = ["kubeconfig", "config.json", "daemon.sock"].map((name) => join(directory, name));
  await writeFile(kubeconfig, api.kubeconfig);
  const config = { ...configuration(), clientConnection: { kubeconfig }, healthzBindAddress: address };
  await writeFile(file, JSON.stringify(config));
  cluster.start(["--config", file, "--control-socket", socket]);
  const http = new HttpClient(cluster.node);
  const code = async (path: string): Promise<number> =>
    (await http.get(`http://${address}${path}`).catch(() => ({ status: 0 }))).status;
  await expect.poll(() => code("/readyz")).toBe(200);
  expect(await code("/livez")).toBe(200);
  const { stdout } = await cluster.command(["status", "-o", "json", "--socket", socket]);
  const { problems } = JSON.parse(stdout) as { problems: { what: string; remedy: string }[] };
  const refusals = problems.filter(({ what }) => what === "the kernel refuses the IPv6 table");
  const [, lacking] = /\b(nft_\w+_ipv6)\b/.exec(process.env["NFT_PROXIER_WITHOUT"] ?? "") ?? [];
  expect(refusals.map(({ remedy }) => /module (\w+)/.exec(remedy)?.[1])).toEqual(
    lacking === undefined ? [] : [lacking],
  );
});
