/**
 * A comparison of everything with the kernel that keeps nobody waiting: the dump is read beside the applies, and counts only if
 * none of them ran meanwhile. Nothing is changed but what is in doubt.
 */
import { compareStructure, DriftReport, driftIsEmpty } from "./drift.js";
import type { KernelView } from "./view.js";
import type { WantedState } from "./wanted.js";

/** "same": the kernel holds what it was thought to. "different": it may not, and the next apply that repairs reads it. */
export type CheckOutcome = "same" | "different";

/** Tries beside the applies before one is kept waiting. */
const ATTEMPTS = 3;

/**
 * @param steps a number that changes with everything that may change the view.
 * @param insertions compares our rules in others' chains.
 * @returns undefined when the view changed during each attempt.
 */
export async function compareInBackground(
  view: KernelView,
  wanted: WantedState,
  steps: () => number,
  insertions: () => Promise<{ readonly differing: readonly string[]; note(): void }>,
): Promise<CheckOutcome | undefined> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    if (view.doubts.any) return "different";
    const before = steps();
    const differing = await differences(view, wanted, () => steps() === before);
    if (differing === undefined) continue;
    const { structure, sets } = differing;
    const inserted = await insertions();
    if (steps() !== before) continue;
    inserted.note();
    if (!structure && sets.length === 0) return inserted.differing.length === 0 ? "same" : "different";
    view.doubts.add({ cause: "check", reason: "a check found the table otherwise than it was left", sets });
    return "different";
  }
  return undefined;
}

/** Undefined when the view did not hold still. */
async function differences(
  view: KernelView,
  wanted: WantedState,
  still: () => boolean,
): Promise<{ structure: boolean; sets: string[] } | undefined> {
  const dump = await view.dump((set) => wanted.sets.get(set)?.known === true && view.state.sets.has(set));
  if (!still()) return undefined;
  const report = new DriftReport(new Set());
  compareStructure(view.state, dump.state, report);
  const sets: string[] = [];
  for (const [name, batch] of dump.elements) {
    const drift = await wanted.sets.get(name)?.elements.compare(batch);
    if (!still()) return undefined;
    if (drift !== undefined && !driftIsEmpty(drift)) sets.push(name);
  }
  return { structure: report.finish() !== undefined, sets };
}
