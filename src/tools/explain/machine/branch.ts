/**
 * The paths that a packet may have taken so far. There are several if part of a rule cannot be evaluated from outside.
 */
import type { EndedBy } from "./hooks.js";
import type { PacketState } from "./packet-state.js";

/** A lookup that found something, or a rule that acted: the steps that a reader wants to see. */
export interface Step {
  readonly hook: string;
  /** "ip kube-proxy". */
  readonly table: string;
  readonly chain: string;
  readonly text: string;
}

export interface Branch {
  readonly state: PacketState;
  readonly steps: readonly Step[];
  /**
   * Assumptions about expressions that cannot be evaluated, by expression: "ip filter INPUT: udp dport 53 limit rate over 5/second
   * drop (handle 7): limit". "no" comes before "yes".
   */
  readonly guesses: ReadonlyMap<string, string>;
  /** Some limit is assumed not to be exceeded. */
  readonly limited: boolean;
}

export function withStep(branch: Branch, { hook, ref, chain }: Omit<EndedBy, "rule">, text: string): Branch {
  return { ...branch, steps: [...branch.steps, { hook, table: `${ref.family} ${ref.table}`, chain, text }] };
}

export function guessed(branch: Branch, what: string, taken: string): Branch {
  return { ...branch, guesses: new Map(branch.guesses).set(what, taken) };
}

export function guessAll(branches: readonly Branch[], what: string, taken: string): Branch[] {
  return branches.map((branch) => guessed(branch, what, taken));
}

/** The beginning of a packet's path. */
export function branchOf(state: PacketState): Branch {
  return { state, steps: [], guesses: new Map(), limited: false };
}

/** Returns branches with changed copies of their states. */
export function changed(branches: readonly Branch[], change: (state: PacketState) => unknown): Branch[] {
  return branches.map((branch) => {
    const state = branch.state.clone();
    change(state);
    return { ...branch, state };
  });
}

/** Whether everything that cannot be evaluated was assumed not to match. */
export function isPlain({ guesses }: Branch): boolean {
  return [...guesses.values()].every((taken) => taken.split(EITHER).includes("no"));
}

/** Separates the assumptions of branches that were joined. */
const EITHER = "\n";

/**
 * Joins branches with the same state. The joined branch has the guesses of all, because others may differ from it in
 * them, and the steps of the first.
 */
export function merged(branches: readonly Branch[]): Branch[] {
  if (branches.length < 2) return [...branches];
  const byKey = new Map<string, Branch>();
  for (const branch of branches) {
    const { key } = branch.state;
    const known = byKey.get(key);
    byKey.set(key, known === undefined ? branch : withCommonGuesses(known, branch));
  }
  return [...byKey.values()];
}

function withCommonGuesses(one: Branch, other: Branch): Branch {
  const guesses = new Map<string, string>();
  for (const [what, taken] of one.guesses) {
    const otherwise = other.guesses.get(what);
    if (otherwise === undefined) continue;
    const all = new Set([...taken.split(EITHER), ...otherwise.split(EITHER)]);
    guesses.set(what, [...all].sort().join(EITHER));
  }
  return { ...one, guesses, limited: one.limited || other.limited };
}

/** Removes duplicates of plain values. */
export function distinct<T>(all: readonly T[]): T[] {
  return [...new Map(all.map((one) => [JSON.stringify(one), one])).values()];
}
