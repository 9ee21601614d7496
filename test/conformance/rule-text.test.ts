/** We print rules of other programs as nft lists them: many statements and common programs' rulesets, loaded by nft. */
import { spawnSync } from "node:child_process";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Family } from "../../src/nft/kernel/kernel.js";
import { drawRule, setUp, TABLE } from "../lab/kube-proxy-rules.ts";
import { foreignMatches } from "../packets/support/foreign-rules.ts";
import { HOOK_RULES } from "../packets/support/hook-rules.ts";
import { PROGRAM_RULES } from "../packets/support/program-rules.ts";
import type { KernelWorld } from "../support/kernel-world.ts";
import { makeNamespace, openReal, type Namespace } from "../support/real-kernel.ts";
import { listedRules, unexplained } from "./table/listed-rules.ts";
import { loadRules, nft } from "./table/load-rules.ts";
import { CONNECTION_OBJECTS, OTHER_OBJECTS, OTHER_RULES } from "./table/other-rules.ts";

let namespace: Namespace;
let world: KernelWorld;
beforeAll(async () => {
  namespace = await makeNamespace();
  world = await openReal(() => namespace)();
});
afterAll(async () => {
  await world.close();
  await namespace.remove();
});

/** Compares all rules of the namespace, then removes them. */
async function compareAll(what: string): Promise<void> {
  const rules = await listedRules(world.kernel, namespace);
  expect(nft(namespace, "flush ruleset")).toBeUndefined();
  expect(rules.length).toBeGreaterThan(0);
  console.log(`${what}: ${rules.length} rules compared with nft's list`);
  expect(unexplained(rules).join("\n")).toBe("");
}

test.for(Object.entries(OTHER_RULES) as [Family, readonly string[]][])(
  "statements of family %s",
  async ([family, rules]) => {
    const hasConnections = family === "ip" || family === "ip6" || family === "inet";
    const objects = [...OTHER_OBJECTS, ...(hasConnections ? CONNECTION_OBJECTS : [])];
    expect(nft(namespace, `table ${family} other {\n${objects.join("\n").replaceAll("; ", "\n")}\n}`)).toBeUndefined();
    const chains = rules.map((_, index) => `add chain ${family} other c${index}`);
    expect(nft(namespace, chains.join("\n"))).toBeUndefined();
    const refused = new Map<number, string>();
    loadRules(namespace, [...rules.keys()], (index) => `add rule ${family} other c${index} ${rules[index]}`, refused);
    for (const [index, why] of refused) console.log(`nft or this kernel refuses ${rules[index]}: ${why}`);
    expect(refused.size).toBeLessThan(rules.length / 8);
    await compareAll(family);
  },
);

test.for(PROGRAM_RULES)("rules of $program", async ({ program, iptables, nft: text }) => {
  // Sets of ipset are not here.
  const input = iptables?.replaceAll(/^.*match-set.*\n/gm, "");
  if (input !== undefined) {
    const run = spawnSync("nsenter", [`--net=${namespace.path}`, "iptables-nft-restore"], { input, encoding: "utf8" });
    expect(run.status, run.stderr).toBe(0);
  }
  if (text !== undefined) expect(nft(namespace, text)).toBeUndefined();
  await compareAll(program);
});

test.for(["ip", "ip6"] as const)("rules of kube-proxy, family %s", async (family) => {
  const [own, services, endpoints] =
    family === "ip" ? ["10.0.0.0/8", "10.96.0.0/16", "10.0.0"] : ["fd00::/8", "fd01::/16", "fd00:"];
  const draw = drawRule(family, "tcp", [
    [`${endpoints}${family === "ip" ? "." : ":"}1`, 80],
    [`${endpoints}${family === "ip" ? "." : ":"}2`, 81],
  ]);
  const lines = setUp(family, { nodeAddresses: "all", clusterCIDR: own, serviceCIDR: services });
  expect(nft(namespace, [...lines, `add rule ${family} ${TABLE} services ${draw}`].join("\n"))).toBeUndefined();
  await compareAll(`kube-proxy, ${family}`);
});

test("rules that explain is tested with", async () => {
  const matches = foreignMatches({
    ...{ client: "192.0.2.1", endpoint: "10.244.0.5", vip: "10.96.0.1", port: 30001 },
    // Rules may name interfaces by index.
    ...{ inInterface: "lo", outInterface: "lo" },
  });
  const tables = matches.map(({ text, more = "" }, index) => {
    const rule = /vmap/.test(text) ? text : `${text} drop`;
    return `table inet f${index} {\n${more.replaceAll("; ", "\n")}\nchain f {\n${rule}\n}\n}`;
  });
  const hooks = HOOK_RULES.map(({ rules }, index) => rules.replaceAll(/^(table \w+ )/gm, `$1h${index}`));
  expect(nft(namespace, [...tables, ...hooks].join("\n"))).toBeUndefined();
  await compareAll("explain");
});
