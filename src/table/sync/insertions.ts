/**
 * Our rules in chains that others own. Their comment identifies them: `<owner mark>:<hash of the rule>`, which every nft prints. Rules without our
 * mark are not changed.
 *
 * An earlier run may have left such rules in chains that are no longer named. So every full read, and `destroy`, goes through the rules of all tables
 * once ("sweep"). Otherwise only the named chains are read, and only if there is a reason to.
 */
import { createHash } from "node:crypto";

import { Backoff } from "../../base/backoff.js";
import type { ChangeEvent, Kernel, RuleInfo, TableRef } from "../../netlink/kernel.js";
import type { Plan, RuleEdit } from "./plan.js";
import { prepareRule, type PreparedRule } from "../rules/diff.js";
import { printRule } from "../rules/statements.js";
import { checkComment, checkName, commentOf } from "../rules/names-and-comments.js";
import type { Insertion, Rule, TableOptions } from "../rules/rule.js";

/** 16 characters of base64url: 96 bits. */
const HASH_CHARACTERS = 16;
const HASH = /^[A-Za-z0-9_-]{16}$/;
/** Wait between two attempts to find a missing chain. */
const RETRY = { firstMs: 1000, longestMs: 60_000 };

interface MarkedRule extends PreparedRule {
  /** The rule as nft prints it. */
  readonly text: string;
}

type Inserted = Readonly<Record<Insertion["mode"], readonly MarkedRule[]>>;

export const NOTHING_INSERTED: Inserted = { insert: [], append: [] };

interface Target {
  readonly ref: TableRef;
  readonly chain: string;
  desired: Inserted;
  /**
   * "open": to be read and compared. "done": the chain holds the desired rules. "suspect": it did, but another process has changed it since.
   * "deferred": the chain does not exist.
   */
  state: "open" | "done" | "suspect" | "deferred";
  /** Counts changes by others, so that a change during a read is not lost. */
  changes: number;
}

/** A target with the current rules of its chain. */
export interface OpenTarget {
  readonly target: Target;
  readonly desired: Inserted;
  readonly rules: readonly RuleInfo[];
  /** The target's `changes` when the read began. */
  readonly changes: number;
}

export interface InsertionReading {
  readonly open: readonly OpenTarget[];
  /** Changes by others since the last write, in words, one for each chain. */
  readonly drift: readonly string[];
}

export class Insertions {
  readonly #ownerMark: string | undefined;
  readonly #targets = new Map<string, Target>();
  #sweepDue: boolean;
  readonly #backoff = new Backoff(RETRY);
  #retryAt: number | undefined;

  constructor({ ownerMark }: Pick<TableOptions, "ownerMark">) {
    this.#ownerMark = ownerMark;
    this.#sweepDue = ownerMark !== undefined;
    if (ownerMark === undefined) return;
    checkComment("owner mark", `${ownerMark}:${"x".repeat(HASH_CHARACTERS)}`);
    if (ownerMark === "" || /[\s:]/.test(ownerMark))
      throw new RangeError(`owner mark ${JSON.stringify(ownerMark)}: neither spaces nor colons`);
  }

  /** Whether our rules may be in others' tables, so that events of those tables matter. */
  get used(): boolean {
    return this.#ownerMark !== undefined;
  }

  set(insertion: Insertion): void {
    const ownerMark = this.#ownerMark;
    if (ownerMark === undefined) throw new TypeError("insertions need the option ownerMark");
    checkName("table", insertion.table);
    checkName("chain", insertion.chain);
    const target = this.#target(insertion, insertion.chain);
    const seen = new Map<string, number>();
    const rules = insertion.rules.map((rule) => mark(rule, insertion, ownerMark, seen));
    target.desired = { ...target.desired, [insertion.mode]: rules };
    target.state = "open";
  }

  /** Lets the next read compare the named chains again, and search all other chains for our rules. */
  invalidate(): void {
    for (const target of this.#targets.values()) if (target.state === "done") target.state = "suspect";
    this.#sweepDue = this.used;
  }

  /** Notes changes by another process. Returns the events that concern chains with our rules. */
  notice(events: readonly ChangeEvent[]): ChangeEvent[] {
    const concerned = new Set<ChangeEvent>();
    for (const target of this.#targets.values()) {
      const own = events.filter((event) => concerns(event, target));
      if (own.length === 0 || isEmpty(target.desired)) continue;
      target.changes++;
      if (target.state === "done") target.state = "suspect";
      for (const event of own) concerned.add(event);
    }
    return [...concerned];
  }

  /** Whether a chain may have changed since our last write, according to `notice` and `check`. */
  get suspect(): boolean {
    return [...this.#targets.values()].some(({ state }) => state === "suspect");
  }

  /** Missing chains with rules that wait for them. */
  get deferred(): string[] {
    return [...this.#targets.entries()].filter(([, target]) => target.state === "deferred").map(([key]) => key);
  }

  /** When to look for deferred chains again, with backoff, on the clock of `now`, ms. */
  retryAt(now: number): number | undefined {
    if (this.deferred.length === 0) {
      this.#backoff.reset();
      this.#retryAt = undefined;
    } else if (this.#retryAt === undefined || now >= this.#retryAt) {
      this.#retryAt = now + this.#backoff.next();
    }
    return this.#retryAt;
  }

  /** Renders the desired rules as lines for `nft -f` that add them to the chains. */
  render(): string[] {
    return [...this.#targets.values()].flatMap(({ ref, chain, desired: { insert, append } }) => {
      const name = `rule ${ref.family} ${ref.table} ${chain}`;
      // Each line inserts its rule before the existing ones.
      const first = insert.toReversed().map(({ text }) => `insert ${name} ${text}`);
      return [...first, ...append.map(({ text }) => `add ${name} ${text}`)];
    });
  }

  /**
   * Reads the chains that have to be compared. Without `repair`, skips chains that another process changed.
   * @param own our own table, which has no insertions.
   */
  async read(kernel: Kernel, own: TableRef, repair = true): Promise<InsertionReading> {
    const before = new Map([...this.#targets].map(([key, { changes }]) => [key, changes]));
    const swept = this.#sweepDue ? await this.#sweep(kernel, own) : undefined;
    this.#sweepDue = false;
    const open: OpenTarget[] = [];
    const drift: string[] = [];
    for (const [key, target] of this.#targets) {
      const { state, ref, chain, desired } = target;
      if (state === "done" || (state === "suspect" && !repair)) continue;
      const rules = swept?.get(key) ?? (await readChain(kernel, ref, chain));
      if (state === "suspect") drift.push(...this.#driftOf(target, rules));
      target.state = rules === undefined ? "deferred" : "open";
      if (rules !== undefined) open.push({ target, desired, rules, changes: before.get(key) ?? 0 });
      else if (isEmpty(desired)) this.#targets.delete(key);
    }
    return { open, drift };
  }

  /** Compares the "done" chains with the kernel. Returns whether all are the same. */
  async check(kernel: Kernel): Promise<boolean> {
    for (const target of this.#targets.values()) {
      if (target.state !== "done") continue;
      const drift = this.#driftOf(target, await readChain(kernel, target.ref, target.chain));
      if (drift.length > 0) target.state = "suspect";
    }
    return !this.suspect;
  }

  /** Adds the changes of the open targets to the batch. A target is "done" when the batch is committed. */
  plan(open: readonly OpenTarget[], plan: Plan): void {
    for (const { target, desired, rules, changes } of open) {
      const { ref, chain } = target;
      const edits = this.#edits(desired, rules);
      const to = [...desired.insert, ...desired.append];
      plan.editRules(ref, chain, { from: rules, to, edits }, () => ({ kind: "rule", chain }));
      plan.onceInForce(() => {
        if (target.desired !== desired) return;
        target.state = target.changes === changes ? "done" : "suspect";
        if (isEmpty(desired)) this.#targets.delete(keyOf(ref, chain));
      });
    }
  }

  #target({ family, table }: TableRef, chain: string): Target {
    const key = keyOf({ family, table }, chain);
    let target = this.#targets.get(key);
    if (target === undefined) {
      target = { ref: { family, table }, chain, desired: NOTHING_INSERTED, state: "open", changes: 0 };
      this.#targets.set(key, target);
    }
    return target;
  }

  /** Reads the rules of all foreign tables, and adds a target for each chain with one of our rules. Returns the rules by chain. */
  async #sweep(kernel: Kernel, own: TableRef): Promise<ReadonlyMap<string, readonly RuleInfo[]>> {
    const found = new Map<string, RuleInfo[]>();
    for (const { family, table, owner } of await kernel.tables()) {
      if (family === own.family && table === own.table) continue;
      // A table that another program owns cannot be changed.
      if (owner !== undefined && owner !== kernel.portId) continue;
      const ref = { family, table };
      for (const [chain, rules] of Map.groupBy(await kernel.rules(ref), (rule) => rule.chain)) {
        found.set(keyOf(ref, chain), rules);
        if (rules.some((rule) => this.#isOurs(rule))) this.#target(ref, chain);
      }
    }
    return found;
  }

  /** Our rules go before and after the others' rules. "add" counts through the rules to insert, then through those to append. */
  #edits({ insert, append }: Inserted, rules: readonly RuleInfo[]): RuleEdit[] {
    const comments = rules.map(({ userdata }) => commentOf(userdata));
    let head = 0;
    while (head < insert.length && comments[head] === insert[head].comment) head++;
    let [end, last] = [rules.length, append.length];
    while (end > head && last > 0 && comments[end - 1] === append[last - 1].comment) [end, last] = [end - 1, last - 1];
    const old = rules.map((rule, from): RuleEdit => {
      const misplaced = from >= head && from < end && this.#isOurs(rule);
      return { edit: misplaced ? "delete" : "keep", from };
    });
    const added = [...insert, ...append].map((_, to): RuleEdit => ({ edit: "add", to }));
    const [first, behind] = [added.slice(head, insert.length), added.slice(insert.length, insert.length + last)];
    return [...old.slice(0, head), ...first, ...old.slice(head, end), ...behind, ...old.slice(end)];
  }

  #driftOf(target: Target, rules: readonly RuleInfo[] | undefined): string[] {
    const { ref, chain, desired } = target;
    const where = `chain ${chain} of table ${ref.family} ${ref.table}`;
    if (rules === undefined) return isEmpty(desired) ? [] : [`${where}: gone`];
    const differs = this.#edits(desired, rules).some(({ edit }) => edit !== "keep");
    return differs ? [`${where}: inserted rules missing or out of place`] : [];
  }

  #isOurs({ userdata }: RuleInfo): boolean {
    const [mark, hash] = (commentOf(userdata) ?? "").split(" ", 1)[0].split(":");
    return mark === this.#ownerMark && HASH.test(hash ?? "");
  }
}

function isEmpty({ insert, append }: Inserted): boolean {
  return insert.length + append.length === 0;
}

function keyOf({ family, table }: TableRef, chain: string): string {
  return `${family} ${table} ${chain}`;
}

function concerns(event: ChangeEvent, { ref, chain }: Target): boolean {
  if (event.family !== ref.family || event.table !== ref.table) return false;
  return event.kind === "table" || ((event.kind === "chain" || event.kind === "rule") && event.name === chain);
}

/**
 * Marks a rule with its hash. The same rule twice in one chain gets two hashes. The hashed text has the fields of expressions in the order in which
 * `prepareRule` builds them. A version with another order has other hashes, and replaces the former version's rules once.
 */
function mark(source: Rule, { family, mode }: Insertion, ownerMark: string, seen: Map<string, number>): MarkedRule {
  const rule = prepareRule(source, { family });
  const text = JSON.stringify([mode, rule.canonical, rule.comment], (_, value: unknown) =>
    typeof value === "bigint" ? `${value}n` : value instanceof Uint8Array ? Buffer.from(value).toString("hex") : value,
  );
  const occurrence = seen.get(text) ?? 0;
  seen.set(text, occurrence + 1);
  const hash = createHash("sha256").update(`${occurrence} ${text}`).digest("base64url").slice(0, HASH_CHARACTERS);
  const comment = `${ownerMark}:${hash}${rule.comment === undefined ? "" : ` ${rule.comment}`}`;
  checkComment("inserted rule", comment);
  return { ...rule, comment, text: printRule({ ...source, comment }, { family }) };
}

/** Returns undefined if there is no such chain. */
async function readChain(kernel: Kernel, ref: TableRef, chain: string): Promise<RuleInfo[] | undefined> {
  const found = await kernel.chains(ref, [chain]);
  return found.length === 0 ? undefined : kernel.rules(ref, chain);
}
