/**
 * Rules of ours in chains that others own. They are known again by their comment, `<owner mark>:<hash of the rule>`,
 * which every nft prints; rules without our mark are not touched.
 */
import { createHash } from "node:crypto";

import { KernelError } from "../kernel/errors.js";
import type { Kernel, RuleInfo, TableRef } from "../kernel/types.js";
import type { Phases, RuleOp } from "./plan.js";
import { prepareRule, type PreparedRule } from "./prepare.js";
import { checkComment, checkName, commentOf } from "./text.js";
import type { Insertion } from "./types.js";

/** 16 characters of base64url: 96 bits. */
const HASH_CHARACTERS = 16;

interface MarkedRule {
  readonly rule: PreparedRule;
  readonly comment: string;
}

interface Target {
  readonly ref: TableRef;
  readonly chain: string;
  insert: readonly MarkedRule[];
  append: readonly MarkedRule[];
  /** "open": to be read and compared. */
  state: "open" | "done" | "deferred";
}

/** A target with the rules that its chain holds now. */
export interface OpenTarget {
  readonly target: Target;
  readonly insert: readonly MarkedRule[];
  readonly append: readonly MarkedRule[];
  readonly rules: readonly RuleInfo[];
}

export class Insertions {
  readonly #targets = new Map<string, Target>();

  constructor(readonly ownerMark: string | undefined) {
    if (ownerMark === undefined) return;
    checkComment("owner mark", `${ownerMark}:${"x".repeat(HASH_CHARACTERS)}`);
    if (ownerMark === "" || /[\s:]/.test(ownerMark))
      throw new RangeError(`owner mark ${JSON.stringify(ownerMark)}: neither spaces nor colons`);
  }

  set(insertion: Insertion): void {
    const { ownerMark } = this;
    if (ownerMark === undefined) throw new TypeError("insertions need the option ownerMark");
    checkName("table", insertion.table);
    checkName("chain", insertion.chain);
    const key = `${insertion.family} ${insertion.table} ${insertion.chain}`;
    const target = this.#targets.get(key) ?? {
      ref: { family: insertion.family, table: insertion.table },
      chain: insertion.chain,
      insert: [],
      append: [],
      state: "open" as const,
    };
    const seen = new Map<string, number>();
    target[insertion.mode] = insertion.rules.map((rule) =>
      mark(prepareRule(rule, { family: insertion.family }), insertion.mode, ownerMark, seen),
    );
    target.state = "open";
    this.#targets.set(key, target);
  }

  /** Everything is to be read and compared again. */
  invalidate(): void {
    for (const target of this.#targets.values()) target.state = "open";
  }

  /** No rule of ours is wanted anywhere. */
  clear(): void {
    for (const target of this.#targets.values()) Object.assign(target, { insert: [], append: [], state: "open" });
  }

  /** Chains that are not there, with rules that wait for them. */
  get deferred(): string[] {
    return [...this.#targets.entries()].filter(([, target]) => target.state === "deferred").map(([key]) => key);
  }

  /** Reads the chains of the targets that have to be compared. */
  async read(kernel: Kernel): Promise<OpenTarget[]> {
    const open: OpenTarget[] = [];
    for (const target of this.#targets.values()) {
      if (target.state === "done") continue;
      const rules = await readChain(kernel, target.ref, target.chain);
      if (rules === undefined) target.state = target.insert.length + target.append.length > 0 ? "deferred" : "done";
      else open.push({ target, insert: target.insert, append: target.append, rules });
    }
    return open;
  }

  /** Adds what the open targets need to the batch; a target is done when the batch is in force. */
  plan(open: readonly OpenTarget[], phases: Phases): void {
    for (const item of open) {
      this.#planTarget(item, phases);
      phases.settle.push(() => {
        if (item.target.insert === item.insert && item.target.append === item.append) item.target.state = "done";
      });
    }
  }

  #planTarget({ target, insert, append, rules }: OpenTarget, phases: Phases): void {
    const { ref, chain } = target;
    const comments = rules.map((rule) => commentOf(rule.userdata));
    let head = 0;
    while (head < insert.length && comments[head] === insert[head].comment) head++;
    let tail = 0;
    while (
      tail < append.length &&
      tail < rules.length - head &&
      comments.at(-1 - tail) === append[append.length - 1 - tail].comment
    )
      tail++;
    for (let i = head; i < rules.length - tail; i++) {
      if (this.#isOurs(comments[i])) phases.deleteRule(ref, chain, rules[i].handle, { kind: "rule", chain });
    }
    const anchor = rules
      .slice(head)
      .find((_, i) => head + i >= rules.length - tail || !this.#isOurs(comments[head + i]));
    const before = (handle: bigint | undefined): RuleOp =>
      handle === undefined ? { op: "add", chain } : { op: "insert", chain, position: handle };
    for (const { rule, comment } of insert.slice(head))
      phases.addRule(ref, rule, before(anchor?.handle), { kind: "rule", chain }, comment);
    const firstKept = tail === 0 ? undefined : rules[rules.length - tail].handle;
    for (const { rule, comment } of append.slice(0, append.length - tail))
      phases.addRule(ref, rule, before(firstKept), { kind: "rule", chain }, comment);
  }

  #isOurs(comment: string | undefined): boolean {
    if (comment === undefined || !comment.startsWith(`${this.ownerMark}:`)) return false;
    const hash = comment.slice((this.ownerMark ?? "").length + 1).split(" ", 1)[0];
    return /^[A-Za-z0-9_-]{16}$/.test(hash);
  }
}

/** The same rule twice in one chain gets two hashes. */
function mark(rule: PreparedRule, mode: string, ownerMark: string, seen: Map<string, number>): MarkedRule {
  const text = JSON.stringify([mode, rule.canonical, rule.comment], (_, value: unknown) =>
    typeof value === "bigint" ? `${value}n` : value instanceof Uint8Array ? Buffer.from(value).toString("hex") : value,
  );
  const occurrence = seen.get(text) ?? 0;
  seen.set(text, occurrence + 1);
  const hash = createHash("sha256").update(`${occurrence} ${text}`).digest("base64url").slice(0, HASH_CHARACTERS);
  const comment = `${ownerMark}:${hash}${rule.comment === undefined ? "" : ` ${rule.comment}`}`;
  checkComment("inserted rule", comment);
  return { rule, comment };
}

/** Undefined when the table or the chain is not there. */
async function readChain(kernel: Kernel, ref: TableRef, chain: string): Promise<RuleInfo[] | undefined> {
  try {
    if (!(await kernel.tables(ref.family)).some((table) => table.table === ref.table)) return undefined;
    if (!(await kernel.chains(ref)).some((info) => info.chain === chain)) return undefined;
    return await kernel.rules(ref, chain);
  } catch (error) {
    if (error instanceof KernelError && error.code === "not-found") return undefined;
    throw error;
  }
}
