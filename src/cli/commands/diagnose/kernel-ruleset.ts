/** Reads the kernel's ruleset for a bug report: our own tables completely, and only the base chains of other programs' tables. */
import { elementsOf } from "../../../nft/kernel/element-batch.js";
import { keyText, mappedText } from "../../../nft/engine-exports.js";
import type { ElementBatch, Kernel, SetDump, TableInfo } from "../../../nft/kernel/kernel.js";
import { TABLE_NAME } from "../../../ruleset/names.js";

/** Maximum number of elements to write per set. The total number is also written. */
const MOST_ELEMENTS = 20_000;

/** Rejects with KernelError. */
export async function rulesetOf(kernel: Kernel): Promise<unknown> {
  const tables = await kernel.tables();
  const ours = tables.filter(({ family, table }) => table === TABLE_NAME && (family === "ip" || family === "ip6"));
  const others = tables.filter((table) => !ours.includes(table));
  return {
    generation: await kernel.generation(),
    ours: await Promise.all(ours.map((table) => contentsOf(kernel, table))),
    others: await Promise.all(others.map((table) => baseChainsOf(kernel, table))),
  };
}

async function contentsOf(kernel: Kernel, table: TableInfo): Promise<unknown> {
  const { family, table: name } = table;
  const ref = { family, table: name };
  const [chains, rules, sets] = await Promise.all([kernel.chains(ref), kernel.rules(ref), kernel.sets(ref)]);
  const withElements = [];
  for (const set of sets) withElements.push({ ...set, ...elementTexts(set, await kernel.elements(ref, set)) });
  return { ...table, chains, rules, sets: withElements };
}

function elementTexts(
  set: SetDump,
  batch: ElementBatch,
): { readonly count: number; readonly elements: readonly string[] } {
  const elements: string[] = [];
  for (const element of elementsOf(batch)) {
    if (elements.length === MOST_ELEMENTS) break;
    const value = mappedText(set, element);
    const key = element.catchall ? "*" : keyText(set, element.key);
    elements.push(`${key}${element.end ? " (end of a range)" : ""}${value === undefined ? "" : ` → ${value}`}`);
  }
  return { count: batch.count, elements };
}

async function baseChainsOf(kernel: Kernel, { family, table, flags, owner }: TableInfo): Promise<unknown> {
  const chains = await kernel.chains({ family, table });
  const base = chains.flatMap(({ chain, base: of }) => (of === undefined ? [] : [{ chain, ...of }]));
  return { family, table, flags, owner, chains: chains.length, base };
}

/** Like JSON.stringify, for values with bigints and bytes. */
export function kernelJson(value: unknown): string {
  return JSON.stringify(
    value,
    (_, field: unknown) => {
      if (typeof field === "bigint") return Number(field);
      return field instanceof Uint8Array ? Buffer.from(field).toString("hex") : field;
    },
    1,
  );
}
