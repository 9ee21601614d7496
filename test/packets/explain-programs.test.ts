/**
 * `explain` beside the rules of common programs: what it says about a packet and its reply is what happens to them, and it seldom says that it
 * does not know. The last test prints a table.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { isShort } from "../lab/length.ts";
import { FAMILIES } from "../lab/topology.ts";
import { ExplainedPackets } from "./support/explained-packets.ts";
import { PROGRAM_RULES, type ProgramRules } from "./support/program-rules.ts";

/** Share of packets for which `explain` may say that it does not know. */
const MOST_UNKNOWN = 0.08;
/** Programs of a short run. The rules of the others differ little from theirs. */
const SHORT = ["docker, accepting one port", "calico", "firewalld"];

let packets: ExplainedPackets;
beforeAll(async () => {
  packets = await ExplainedPackets.create();
});
afterAll(() => packets.destroy());

async function load({ links = [], sets = [], iptables, nft }: ProgramRules): Promise<void> {
  const { node } = packets.cluster;
  for (const line of links) await node.mustRun(["ip", ...line.split(" ")]);
  await packets.addSets(sets);
  if (iptables !== undefined) await node.mustRun(["iptables-nft-restore"], { input: iptables });
  if (nft !== undefined) await node.mustRun(["nft", "-f", "-"], { input: nft });
}

async function unload({ sets = [], iptables = "", nft = "", removed = [] }: ProgramRules): Promise<void> {
  const { node } = packets.cluster;
  const tables = [
    ...[...iptables.matchAll(/^\*(\w+)/gm)].map(([, name]) => `ip ${name}`),
    ...[...nft.matchAll(/^table (\w+ \w+)/gm)].map(([, name]) => name),
  ];
  await node.mustRun(["nft", "-f", "-"], { input: tables.map((name) => `delete table ${name}\n`).join("") });
  await packets.removeSets(sets);
  for (const line of removed) await node.mustRun(["ip", ...line.split(" ")]);
}

interface Row {
  readonly program: string;
  readonly packets: number;
  readonly agreed: readonly string[];
  readonly unknown: readonly string[];
  readonly contradicted: readonly string[];
}

async function rowOf(rules: ProgramRules): Promise<Row> {
  const families = (rules.ip6 === true ? FAMILIES : (["ip"] as const)).map((family) => packets.of(family));
  // The families take turns.
  const asked = families[0].map((one, i) => families[i % families.length]?.[i] ?? one);
  const row = { agreed: [] as string[], unknown: [] as string[], contradicted: [] as string[] };
  await load(rules);
  try {
    for (const one of asked) {
      const { result, text } = await packets.compare(one);
      row[result].push(`${rules.program}: ${text}`);
    }
  } finally {
    await unload(rules);
  }
  return { program: rules.program, packets: asked.length, ...row };
}

const rows: Row[] = [];

test.for(PROGRAM_RULES.filter(({ program }) => !isShort || SHORT.includes(program)))(
  "$program: no packet contradicts its explanation",
  async (rules) => {
    const row = await rowOf(rules);
    rows.push(row);
    expect(row.contradicted).toEqual([]);
  },
);

test("explain says for few packets that it does not know", () => {
  const table = rows.map(({ program, packets: all, agreed, unknown, contradicted }) => {
    const figures = [all, agreed.length, unknown.length, contradicted.length];
    return `${program.padEnd(28)}${figures.map((figure) => String(figure).padStart(8)).join("")}`;
  });
  const unknown = rows.flatMap((row) => row.unknown);
  console.log(["program, packets, agreed, unknown, contradicted", ...table, ...unknown].join("\n"));
  if (process.env["EXPLAIN_TEXTS"] !== undefined) console.log(rows.flatMap((row) => row.agreed).join("\n"));
  const all = rows.reduce((sum, row) => sum + row.packets, 0);
  expect(all).toBeGreaterThan(0);
  expect(unknown.length / all).toBeLessThanOrEqual(MOST_UNKNOWN);
});
