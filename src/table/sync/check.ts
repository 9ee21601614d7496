/**
 * A comparison of everything with the kernel: the structure, then one set after another, each while none of our own applies runs. The parts
 * are of different moments: what another process changes meanwhile is found now or by the next check. Dumps take no lock of the kernel's,
 * and a check only notes what differs: the next read finds and repairs it.
 */
import type { KernelView } from "./observed.js";

/** "same": the kernel holds what it was thought to. "different": it may not, and the next apply that repairs reads it. */
export type CheckOutcome = "same" | "different";

/**
 * @param undisturbed does a part while no apply runs.
 * @param insertions compares our rules in others' chains.
 */
export async function compareAll(
  view: KernelView,
  undisturbed: <T>(part: () => Promise<T>) => Promise<T>,
  insertions: () => Promise<{ readonly differing: readonly string[]; note(): void }>,
): Promise<CheckOutcome> {
  if (view.doubts.any) return "different";
  const { same, sets } = await undisturbed(() => view.compareStructure());
  const differing: string[] = [];
  for (const set of sets) {
    if (view.doubts.any) return "different";
    if (!(await undisturbed(() => view.compareElements(set)))) differing.push(set);
  }
  const inserted = await undisturbed(insertions);
  inserted.note();
  if (same && differing.length === 0) return inserted.differing.length === 0 ? "same" : "different";
  view.doubts.add({ cause: "check", reason: "a check found the table otherwise than it was left", sets: differing });
  return "different";
}
