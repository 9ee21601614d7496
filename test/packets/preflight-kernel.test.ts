/**
 * `preflight`'s statements about the kernel, compared with the result of the first write. Kernels with modules, some of
 * them missing (`test:kernels -- --qemu --without nft_numgen`), show most.
 */
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { PreflightReport } from "../../src/migration/preflight/preflight-report.ts";
import { Cluster } from "./support/cluster.ts";
import { serviceObjects, type ServiceSpec } from "./support/objects.ts";

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
