/** Describes in words how a read differs from the observed state, because of other processes. Pure. */
import { TableFlag } from "../kernel/constants.js";
import type { InvalidationCause } from "./invalidations.js";
import { editScript } from "./diff.js";
import { sameDefinition } from "../statements/object-definitions.js";
import { sameKind } from "../language/schema.js";
import type { ElementDrift } from "../elements/tracked-elements.js";
import { describeHook, policyOf } from "../language/hooks-and-priorities.js";
import { sameRule } from "./plan.js";
import type { KernelChain, KernelState } from "./table-dump.js";
import type { Drift } from "./apply-result.js";

/** Maximum number of lines in `Drift.changes`. Further changes are only counted. */
const MAX_LINES = 20;

/** Returns undefined if nothing differs. */
export function driftOf(
  causes: ReadonlySet<InvalidationCause>,
  changes: readonly string[],
  tableDeleted = false,
): Drift | undefined {
  if (changes.length === 0) return undefined;
  return { causes, changes: changes.slice(0, MAX_LINES), total: changes.length, tableDeleted };
}

export function joined(a: Drift | undefined, b: Drift | undefined): Drift | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return {
    causes: new Set([...a.causes, ...b.causes]),
    changes: [...a.changes, ...b.changes].slice(0, MAX_LINES),
    total: a.total + b.total,
    tableDeleted: a.tableDeleted || b.tableDeleted,
  };
}

/** Compares everything but elements. If the table is gone, its former content is not listed. */
export function structureChanges(before: KernelState, after: KernelState): string[] {
  if (before.table === undefined) return after.table === undefined ? [] : ["the table was created"];
  if (after.table === undefined) return ["the table was deleted"];
  // When an owner ends, the kernel clears its flag (nft_rcv_nl_event): this is no other process's change.
  const flags = before.table.flags & (after.table.flags | ~TableFlag.owner);
  const otherFlags = `the table's flags are ${describeFlags(after.table.flags)}, not ${describeFlags(flags)}`;
  return [
    ...(flags === after.table.flags ? [] : [otherFlags]),
    ...(before.table.comment === after.table.comment ? [] : ["the table's comment changed"]),
    ...nameChanges("chain", before.chains, after.chains, (name, a, b) => {
      const [was, is] = [a.base, b.base].map((base) => `${describeHook(base)} policy ${policyOf(base)}`);
      return [...(was === is ? [] : [`chain ${name}: ${is}, not ${was}`]), ...ruleChanges(name, a, b)];
    }),
    ...nameChanges("set", before.sets, after.sets, (name, a, b) =>
      sameKind(a, b) ? [] : [`set ${name}: definition changed`],
    ),
    ...nameChanges("", before.objects, after.objects, (name, a, b) =>
      sameDefinition(b.data, a.data) ? [] : [`${name}: definition changed`],
    ).map((change) => change.trimStart()),
  ];
}

function nameChanges<T>(
  kind: string,
  before: ReadonlyMap<string, T>,
  after: ReadonlyMap<string, T>,
  both: (name: string, before: T, after: T) => readonly string[],
): string[] {
  const changes = [...before].flatMap(([name, a]) => {
    const b = after.get(name);
    return b === undefined ? [`${kind} ${name}: gone`] : both(name, a, b);
  });
  for (const name of after.keys()) if (!before.has(name)) changes.push(`${kind} ${name}: added`);
  return changes;
}

function ruleChanges(name: string, before: KernelChain, after: KernelChain): string[] {
  const edits = editScript(before.rules, after.rules, sameRule);
  const count = (kind: string): number => edits.filter(({ edit }) => edit === kind).length;
  return countChanges(`chain ${name}: rules`, { gone: count("delete"), added: count("add") });
}

export function elementChanges(set: string, { gone, added, changed }: ElementDrift): string[] {
  return countChanges(`set ${set}: elements`, { gone, added, changed });
}

/** Returns "WHAT 1 gone, 2 added", or nothing if all counts are 0. */
function countChanges(what: string, counts: Readonly<Record<string, number>>): string[] {
  const parts = Object.entries(counts).flatMap(([word, count]) => (count === 0 ? [] : `${count} ${word}`));
  return parts.length === 0 ? [] : [`${what} ${parts.join(", ")}`];
}

function describeFlags(flags: number): string {
  const known = Object.entries(TableFlag).filter(([, flag]) => (flags & flag) !== 0);
  const rest = known.reduce((left, [, flag]) => left & ~flag, flags);
  const words = [...known.map(([name]) => name), ...(rest === 0 ? [] : [`0x${rest.toString(16)}`])];
  return words.length === 0 ? "none" : words.join(",");
}
