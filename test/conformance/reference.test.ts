/** docs/fields.md and docs/statements.md: nft and the kernel accept each rule in the families that the pages name. */
import { spawnSync } from "node:child_process";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Table } from "../../src/nft/nft-exports.js";
import { FakeKernel } from "../../src/nft/testing/testing-exports.js";
import type { BaseChain } from "../../src/nft/language/hooks-and-priorities.js";
import type { Family } from "../../src/nft/kernel/kernel.js";
import { claims, SETS } from "../reference/pages.ts";
import { FAMILIES } from "../reference/nft-text.ts";
import { makeNamespace, type Namespace } from "../support/real-kernel.ts";

let namespace: Namespace;
beforeAll(async () => {
  namespace = await makeNamespace();
  run("ip", ["link", "add", "d0", "type", "veth", "peer", "name", "d1"]);
});
afterAll(() => namespace.remove());

function run(
  program: string,
  args: readonly string[],
  input = "",
): { readonly status: number | null; readonly stderr: string } {
  return spawnSync("nsenter", [`--net=${namespace.path}`, program, ...args], { input, encoding: "utf8" });
}

const filter = (hook: BaseChain["hook"], priority = 0): BaseChain => ({ type: "filter", hook, priority });
const onDevice = (hook: "ingress" | "egress"): BaseChain => ({ ...filter(hook), devices: ["d0"] });
const BRIDGE = (["prerouting", "input", "forward", "output", "postrouting"] as const).map((hook) => filter(hook));
const IP: readonly BaseChain[] = [
  filter("prerouting", -300),
  ...BRIDGE,
  { type: "nat", hook: "prerouting", priority: -100 },
  { type: "nat", hook: "postrouting", priority: 100 },
];
const CHAINS: Readonly<Record<Family, readonly BaseChain[]>> = {
  ip: IP,
  ip6: IP,
  inet: IP,
  arp: [filter("input"), filter("output")],
  bridge: BRIDGE,
  netdev: [onDevice("ingress"), onDevice("egress")],
};

/** A table with the sets of the examples, and an empty chain. */
function emptyTable(family: Family, base: BaseChain): string {
  const table = new Table(new FakeKernel(), { family, name: "reference" });
  for (const spec of SETS) table.set(spec);
  table.chain({ chain: "web", rules: [] });
  table.chain({ chain: "rules", base, rules: [] });
  return table.render();
}

/** Returns the rules that a chain with this hook refuses, with nft's or the kernel's reasons. All are written at once. */
function refused(family: Family, base: BaseChain, rules: readonly string[]): Map<string, string> {
  const head = emptyTable(family, base);
  const first = head.split("\n").length;
  const commands = rules.map((rule) => `add rule ${family} reference rules ${rule}`).join("\n");
  const { stderr } = run("nft", ["-c", "-f", "-"], `${head}${commands}\n`);
  const reasons = [...stderr.matchAll(/^\S+?:(\d+):[\d-]+: Error: (.*)$/gm)];
  return new Map(reasons.map(([, line, why = ""]) => [rules[Number(line) - first] ?? `line ${line}`, why]));
}

/** Statements that nft 1.0.6 does not know, that need other objects, or that many kernels lack (CONFIG_NFT_BRIDGE_META). */
const UNKNOWN = /^(last|flow add|socket cgroupv2|meta [io]brname)/;
/** The kernel was built without this expression, or without connection tracking of bridges. */
const MISSING = /No such file or directory|Protocol error/;

test.each(FAMILIES)("%s tables have the documented rules, each in one of their hooks", (family) => {
  const all = claims().filter((claim) => claim.family === family && !UNKNOWN.test(claim.text));
  let left = new Map(all.map(({ text }) => [text, ""]));
  for (const base of CHAINS[family]) left = refused(family, base, [...left.keys()]);
  const wrong = [...left].filter(([, why]) => !MISSING.test(why));
  expect(wrong).toEqual([]);
});
