/** Tables of the older iptables in the kernel of a namespace, without the iptables tools. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { decodeTable, encodeTable, type LegacyChain, type LegacyFamily, type RawTable } from "./legacy-table.ts";
import { run } from "./namespace.ts";

/** Skip the `site` module, which takes longer than the rest. */
const PYTHON = ["python3", "-S", fileURLToPath(new URL("legacy-tables.py", import.meta.url))];
/** Exit code of the script if the kernel has no older iptables. */
const NO_LEGACY = 3;

/** `prefix` is the command that enters the namespace. Returns false if this kernel no longer has the older iptables. */
async function script(prefix: readonly string[], args: readonly string[]): Promise<boolean> {
  const [program, ...rest] = [...prefix, ...PYTHON, ...args];
  const { code, stderr } = await run(program, rest);
  if (code !== 0 && code !== NO_LEGACY) throw new Error(`${args.join(" ")}: exit ${code}: ${stderr.trim()}`);
  return code === 0;
}

async function withFile<T>(work: (file: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), "nft-proxier-legacy-"));
  try {
    return await work(join(directory, "table"));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Writes a table in the script's input format: five words for each array of hooks. */
function tableFile(family: LegacyFamily, chains: readonly LegacyChain[]): Buffer {
  const { hooks, count, bytes } = encodeTable(family, chains);
  const head = Buffer.from(
    new Uint32Array([hooks.valid, count, bytes.length, ...hooks.entry, ...hooks.underflow]).buffer,
  );
  const counters = chains.flatMap(({ policy, policyCounters, rules }) => [
    ...(policy === undefined ? [undefined] : []),
    ...rules.map((rule) => rule.counters),
    policyCounters,
  ]);
  const numbers = [...counters, undefined].flatMap((pair) => pair ?? [0n, 0n]);
  return Buffer.concat([head, bytes, Buffer.from(new BigUint64Array(numbers).buffer)]);
}

/** Replaces the table's contents by these chains. Returns false if the kernel has no such iptables. */
export async function putLegacyTable(
  prefix: readonly string[],
  family: LegacyFamily,
  table: string,
  chains: readonly LegacyChain[],
): Promise<boolean> {
  return withFile(async (file) => {
    await writeFile(file, tableFile(family, chains));
    return script(prefix, ["put", family, table, file]);
  });
}

/**
 * Returns the table's current contents. Returns undefined if the kernel has no such iptables. Creates the table if it
 * does not exist.
 */
async function rawLegacyTable(
  prefix: readonly string[],
  family: LegacyFamily,
  table: string,
): Promise<RawTable | undefined> {
  return withFile(async (file) => {
    if (!(await script(prefix, ["get", family, table, file]))) return undefined;
    const all = await readFile(file);
    const word = (index: number): number => all.readUInt32LE(4 * index);
    const five = (from: number): number[] => Array.from({ length: 5 }, (_, hook) => word(from + hook));
    return { hooks: { valid: word(0), entry: five(3), underflow: five(8) }, count: word(1), bytes: all.subarray(52) };
  });
}

export async function getLegacyTable(
  prefix: readonly string[],
  family: LegacyFamily,
  table: string,
): Promise<LegacyChain[] | undefined> {
  const raw = await rawLegacyTable(prefix, family, table);
  return raw && decodeTable(family, raw);
}

/**
 * Adds empty chains to a table. "FORWARD:drop" sets the policy of FORWARD instead. Returns false if the kernel has no
 * such iptables.
 */
export async function addLegacyChains(
  prefix: readonly string[],
  family: LegacyFamily,
  table: string,
  names: readonly string[],
): Promise<boolean> {
  const present = await getLegacyTable(prefix, family, table);
  if (present === undefined) return false;
  const chains = present.map((chain): LegacyChain => {
    const drops = chain.name === "FORWARD" && names.includes("FORWARD:drop");
    return drops ? { ...chain, policy: "DROP" } : chain;
  });
  for (const name of names) if (name !== "FORWARD:drop") chains.push({ name, rules: [] });
  return putLegacyTable(prefix, family, table, chains);
}
