/** What a read of the kernel's table shows that was not observed before: other processes' doing, in words. Pure. */
import { TableFlag } from "../../kernel/constants.js";
import type { BaseChain, SetInfo } from "../../kernel/types.js";
import type { InvalidationCause } from "./invalidations.js";
import { editScript } from "../rules/diff.js";
import type { ElementDrift } from "../elements/element-set.js";
import { sameRule } from "./plan.js";
import { printHook } from "../rules/print.js";
import type { KernelChain, KernelState } from "./dump.js";
import type { Drift } from "../rules/types.js";

/** Lines of `Drift.changes`; more are counted only. */
const MAX_LINES = 20;

export function driftIsEmpty({ gone, added, changed }: ElementDrift): boolean {
  return gone + added + changed === 0;
}

/** Collects differences; keeps a few of them as words. */
export class DriftReport {
  readonly #changes: string[] = [];
  #total = 0;
  #tableDeleted = false;

  constructor(readonly causes: ReadonlySet<InvalidationCause>) {}

  say(change: string): void {
    this.#total++;
    if (this.#changes.length < MAX_LINES) this.#changes.push(change);
  }

  tableDeleted(): void {
    this.#tableDeleted = true;
    this.say("the table was deleted");
  }

  elements(set: string, { gone, added, changed }: ElementDrift): void {
    this.counts(`set ${set}: elements`, { gone, added, changed });
  }

  /** "WHAT 1 gone, 2 added", unless all are none. */
  counts(what: string, counts: Readonly<Record<string, number>>): void {
    const parts = Object.entries(counts).flatMap(([word, count]) => (count === 0 ? [] : `${count} ${word}`));
    if (parts.length > 0) this.say(`${what} ${parts.join(", ")}`);
  }

  /** Undefined when nothing differed. */
  finish(): Drift | undefined {
    if (this.#total === 0) return undefined;
    return { causes: this.causes, changes: this.#changes, total: this.#total, tableDeleted: this.#tableDeleted };
  }
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

export function insertionDrift(changes: readonly string[]): Drift | undefined {
  if (changes.length === 0) return undefined;
  const report = new DriftReport(new Set<InvalidationCause>(["foreign"]));
  for (const change of changes) report.say(change);
  return report.finish();
}

/** Everything but elements. Returns false when the table itself is gone, so that what was in it need not be said. */
export function compareStructure(before: KernelState, after: KernelState, report: DriftReport): boolean {
  if (before.table === undefined) {
    if (after.table !== undefined) report.say("the table was made");
    return true;
  }
  if (after.table === undefined) {
    report.tableDeleted();
    return false;
  }
  // When an owner ends the kernel clears its flag (nft_rcv_nl_event): no process changed anything.
  const flags = before.table.flags & (after.table.flags | ~TableFlag.owner);
  if (flags !== after.table.flags)
    report.say(`the table's flags are ${describeFlags(after.table.flags)}, not ${describeFlags(flags)}`);
  compareNames("chain", before.chains, after.chains, report, (name, a, b) => {
    if (describeBase(a.base) !== describeBase(b.base))
      report.say(`chain ${name}: ${describeBase(b.base)}, not ${describeBase(a.base)}`);
    compareRules(name, a, b, report);
  });
  compareNames("set", before.sets, after.sets, report, (name, a, b) => {
    if (!sameSet(a, b)) report.say(`set ${name}: of another kind`);
  });
  return true;
}

function compareNames<T>(
  kind: string,
  before: ReadonlyMap<string, T>,
  after: ReadonlyMap<string, T>,
  report: DriftReport,
  both: (name: string, before: T, after: T) => void,
): void {
  for (const [name, a] of before) {
    const b = after.get(name);
    if (b === undefined) report.say(`${kind} ${name}: gone`);
    else both(name, a, b);
  }
  for (const name of after.keys()) if (!before.has(name)) report.say(`${kind} ${name}: added`);
}

function compareRules(name: string, before: KernelChain, after: KernelChain, report: DriftReport): void {
  const edits = editScript(before.rules, after.rules, sameRule);
  const count = (kind: string): number => edits.filter(({ edit }) => edit === kind).length;
  report.counts(`chain ${name}: rules`, { gone: count("delete"), added: count("add") });
}

function describeFlags(flags: number): string {
  const known = Object.entries(TableFlag).filter(([, flag]) => (flags & flag) !== 0);
  const rest = known.reduce((left, [, flag]) => left & ~flag, flags);
  const words = [...known.map(([name]) => name), ...(rest === 0 ? [] : [`0x${rest.toString(16)}`])];
  return words.length === 0 ? "none" : words.join(",");
}

function describeBase(base: BaseChain | undefined): string {
  if (base === undefined) return "no hook";
  const devices = (base.devices ?? []).toSorted().join(" ");
  // Of chains on devices the numbers mean other hooks.
  const hook = base.devices === undefined ? printHook(base.hook) : base.hook;
  return `type ${base.type} hook ${hook} priority ${base.priority} policy ${base.policy ?? "accept"}${devices}`;
}

function sameSet(a: SetInfo, b: SetInfo): boolean {
  return a.flags === b.flags && a.keyLen === b.keyLen && a.keyType === b.keyType && a.dataType === b.dataType;
}
