/** One branch of a packet while one rule runs on it. */
import type { RuleInfo } from "../../../nft/kernel/kernel.js";
import { type Bits, exactly, numberIn, partOf, textOf, type Ternary, unknownBits, withPart, wordOf } from "./bits.js";
import { type Branch, guessed, withStep } from "./branch.js";
import { type EndedBy, endText } from "./hooks.js";
import type { Effect, RuleEnd, World } from "./machine-world.js";
import type { PacketState } from "./packet-state.js";

/** The position of a rule. */
export interface Place extends Omit<EndedBy, "rule"> {
  readonly rule: RuleInfo;
}

/** The rule as the one that decided over a packet. */
export function actorOf({ hook, ref, chain, rule }: Place, world: Pick<World, "ruleText">): EndedBy {
  return { hook, ref, chain, rule: world.ruleText(rule) };
}

/**
 * The effect of an expression. "maybe": the rule may end or continue. "ended": all branches in which the rule ends are
 * recorded.
 */
export type Done = Effect | "maybe" | "ended";

export function judged(holds: Ternary): Done {
  return holds === undefined ? "maybe" : holds ? "next" : "break";
}

/** 16 words after the verdict register. */
const REGISTERS = 64;

export class RuleContext {
  /** Whether the rule is this program's. */
  readonly isOurs: boolean;
  readonly ends: RuleEnd[] = [];
  /** Registers are unknown until an expression writes them. */
  #registers: Bits = unknownBits(REGISTERS);
  #hasOwnState = false;
  #forks = 0;

  constructor(
    readonly world: World,
    readonly place: Place,
    public branch: Branch,
  ) {
    this.isOurs = world.isOurs(place.ref);
  }

  /** The state as other branches may share it. */
  get state(): Readonly<PacketState> {
    return this.branch.state;
  }

  /** The state for modification: a copy that only this branch uses. */
  get own(): PacketState {
    if (!this.#hasOwnState) {
      this.branch = { ...this.branch, state: this.branch.state.clone() };
      this.#hasOwnState = true;
    }
    return this.branch.state;
  }

  /** Forks the branch; in one of the two the rule ends here. */
  fork(): void {
    const what = `${this.#text}${"'".repeat(this.#forks++)}`;
    this.ends.push({ branch: guessed(this.branch, what, "no"), effect: "break" });
    this.#hasOwnState = false;
    this.branch = guessed(this.branch, what, "yes");
  }

  /** Ends the rule here in one of two branches. In the other one, the packet's fate is unknown. */
  maybeGone(): Done {
    this.fork();
    return "unknown";
  }

  /** @param what the assumption about this rule: "the decision of a program". */
  guess(what: string, taken = "yes"): Branch {
    return guessed(this.branch, `${this.#text}: ${what}`, taken);
  }

  get #text(): string {
    return endText(actorOf(this.place, this.world));
  }

  get ruleText(): string {
    return this.world.ruleText(this.place.rule);
  }

  step(text: string): void {
    this.branch = withStep(this.branch, this.place, text);
  }

  /** Changes the mark or the priority of the packet. A reader wants to see the rules of other programs that do it. */
  change(field: "mark" | "priority", value: Bits): Done {
    const before = this.state[field];
    if (textOf(before) === textOf(value)) return "next";
    const { own } = this;
    own[field] = value;
    if (field === "mark") this.#keepOwnMark(before, value);
    const [from, to] = [numberIn(before), numberIn(value)];
    if (this.isOurs) return "next";
    const how = to === undefined ? "changed" : `set to 0x${to.toString(16)}`;
    this.step(`${field} ${how}${from === undefined ? "" : ` (was 0x${from.toString(16)})`}: ${this.ruleText}`);
    return "next";
  }

  #keepOwnMark(before: Bits, value: Bits): void {
    const { own } = this;
    const [[was, wasKnown], [is, isKnown]] = [wordOf(before), wordOf(value)];
    if (this.isOurs) own.ownMark |= is & ~was;
    else if ((own.ownMark & isKnown & ~is & (was | ~wasKnown)) !== 0)
      own.markClearedBy = actorOf(this.place, this.world);
  }

  read(register: number, length: number): Bits {
    return partOf(this.#registers, offsetOf(register), length);
  }

  /** Fills the last word with 0, as the kernel's loads do. */
  write(register: number, bits: Bits): Done {
    const { length } = bits.bytes;
    const [at, padding] = [offsetOf(register), (4 - (length % 4)) % 4];
    if (at + length + padding > REGISTERS) return "next";
    this.#registers = withPart(this.#registers, at, bits);
    this.#registers = withPart(this.#registers, at + length, exactly(new Uint8Array(padding)));
    return "next";
  }

  /** Writes an unknown value; the rule may end. If the target register is unknown, all registers become unknown. */
  writeUnknown(register = 1, length = REGISTERS): Done {
    const at = offsetOf(register);
    this.#registers = withPart(this.#registers, at, unknownBits(Math.min(length, REGISTERS - at)));
    return "maybe";
  }

  /** The rule changes a set, so its content is no longer known. */
  changeSet(id: string): void {
    this.own.changedSets = new Set(this.state.changedSets).add(id);
  }
}

/** As in nft_parse_register: registers 1 to 4 have 16 bytes each, those from 8 on 4 bytes each. */
function offsetOf(register: number): number {
  return register < 8 ? (register - 1) * 16 : (register - 8) * 4;
}
