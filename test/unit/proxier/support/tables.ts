/** A kernel's tables in a form that does not depend on their history. */
import { SetFlag } from "../../../../src/nft/kernel/constants.js";
import type { ChainInfo, Expr, Kernel, RuleInfo, SetDump, Verdict } from "../../../../src/nft/kernel/kernel.js";
import { LOCAL_INDEX_BASE } from "../../../../src/ruleset/names.js";
import { snapshot } from "../../../support/snapshot.ts";

export interface ElementView {
  /** Hex; "*" is the catch-all. */
  readonly key: string;
  readonly data?: string | Verdict;
  readonly end?: boolean;
}
export type SetView = Omit<SetDump, "handle"> & { readonly elements: readonly ElementView[] };
export interface TableView {
  readonly family: string;
  readonly table: string;
  readonly chains: readonly Omit<ChainInfo, "handle">[];
  readonly rules: readonly Omit<RuleInfo, "handle">[];
  readonly sets: readonly SetView[];
}

export async function readTables(kernel: Kernel): Promise<TableView[]> {
  return (await snapshot(kernel)) as TableView[];
}

/**
 * Returns sorted lines. They omit:
 * - sizes (sets grow, and stay so) and names of anonymous sets (numbers);
 * - remembered clients of affinity, and affinity's number for an endpoint;
 * - an endpoint's index in its list (but the indices are checked for holes).
 */
export function normalForm(tables: readonly TableView[]): string[] {
  const lines = tables.flatMap((table) => {
    const { chains, rules, sets, ...rest } = table;
    const say = (what: string, value: unknown): string => `${table.family} ${what} ${json(value)}`;
    const perChain = new Map<string, number>();
    const numbers = new Map(
      sets
        .filter(({ set }) => set === "sticky-cluster" || set === "sticky-local")
        .flatMap(({ elements }) => elements.map(({ key, data }) => [key, `number of ${json(data)}`] as const)),
    );
    const withoutNumbers = (text: string): string =>
      text.replaceAll(/(?<=")[0-9a-f]{8}(?=")/g, (hex) => numbers.get(hex) ?? hex);
    const ruleLines = rules.map(({ chain, exprs, userdata }) => {
      const index = perChain.get(chain) ?? 0;
      perChain.set(chain, index + 1);
      return withoutNumbers(
        say(`rule ${chain} ${index}`, { exprs: exprs.map((expr) => inlined(expr, sets)), userdata }),
      );
    });
    const setLines = sets
      .filter(({ flags }) => (flags & SetFlag.anonymous) === 0)
      .flatMap(({ elements, size: _, ...set }) => [
        say(`set ${set.set}`, set),
        ...elementLines(set, elements, numbers).map((line) => `${table.family} element of ${set.set}: ${line}`),
      ]);
    const chainLines = chains.map(({ chain, ...more }) => say(`chain ${chain}`, more));
    return [say("table", rest), ...chainLines, ...ruleLines, ...setLines];
  });
  return lines.sort();
}

function elementLines(
  set: Omit<SetView, "elements" | "size">,
  elements: readonly ElementView[],
  numbers: ReadonlyMap<string, string>,
): string[] {
  if ((set.flags & SetFlag.eval) !== 0) return [];
  if (/^sticky-(cluster|local)$/.test(set.set)) return elements.map(({ data }) => json(data));
  if (!/^((nodeport-)?endpoints(-[0-9a-f])?|sticky-draws)$/.test(set.set)) return elements.map(json);
  const lists = new Map<string, { indices: number[]; data: string[] }>();
  for (const { key, data } of elements) {
    const index = Buffer.from(key.slice(-8), "hex").readUInt32LE();
    const local = index >= LOCAL_INDEX_BASE;
    const name = `${key.slice(0, -8)} ${local ? "local" : "cluster"}`;
    const list = lists.get(name) ?? { indices: [], data: [] };
    lists.set(name, list);
    list.indices.push(local ? index - LOCAL_INDEX_BASE : index);
    list.data.push(typeof data === "string" ? (numbers.get(data) ?? data) : json(data));
  }
  return Array.from(lists, ([name, { indices, data }]) => {
    const holes = indices.sort((a, b) => a - b).some((index, i) => index !== i);
    return `${name}: ${data.sort().join(" ")}${holes ? ` at indices ${indices.join(" ")}` : ""}`;
  });
}

function inlined(expr: Expr, sets: readonly SetView[]): unknown {
  if (expr.type !== "lookup") return expr;
  const set = sets.find((candidate) => candidate.set === expr.set);
  if (set === undefined || (set.flags & SetFlag.anonymous) === 0) return expr;
  const { setId: _, ...rest } = expr;
  const { set: _name, ...anonymous } = set;
  return { ...rest, set: anonymous };
}

function json(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) =>
    typeof part === "bigint" ? `#${part}` : part instanceof Uint8Array ? Buffer.from(part).toString("hex") : part,
  );
}
