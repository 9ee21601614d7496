/** The ways that a packet may have gone so far. There is more than one where something of a rule cannot be known from outside. */
import type { PacketState } from "./packet.js";

/** A look-up that found something, or a rule that did something: what a reader wants to know. */
export interface Step {
  readonly hook: string;
  /** "ip kube-proxy". */
  readonly table: string;
  readonly chain: string;
  readonly text: string;
}

/** What was taken for granted of something that could not be judged. */
export interface Guess {
  /** "ip filter INPUT: udp dport 53 limit rate over 5/second drop (handle 7): limit". */
  readonly what: string;
  readonly taken: string;
}

export interface Branch {
  readonly state: PacketState;
  readonly steps: readonly Step[];
  /** By what is guessed; "no" comes before "yes". */
  readonly guesses: ReadonlyMap<string, string>;
  /** Limits that are taken to be not exceeded. */
  readonly limited: boolean;
}

export function guessed(branch: Branch, what: string, taken: string): Branch {
  return { ...branch, guesses: new Map(branch.guesses).set(what, taken) };
}

/** Whether nothing that could not be judged was taken to match. */
export function isPlain({ guesses }: Branch): boolean {
  return ![...guesses.values()].some((taken) => taken !== "no");
}

/**
 * Ways that have come to the same are one from here on, and what told them apart was of no consequence. The first of them has its steps
 * told.
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
  const guesses = new Map([...one.guesses].filter(([what, taken]) => other.guesses.get(what) === taken));
  return { ...one, guesses, limited: one.limited || other.limited };
}
