/**
 * Our rules in chains of other programs' tables. We recognise them by their comment, `<owner mark>:<hash of the rule>`,
 * which every nft prints. Rules without our mark stay untouched. Two programs that both want to be first would push each other down for ever. So
 * ours are in place if only rules with marks come before them, or after those to append.
 *
 * An earlier run may have left such rules in chains that are no longer named. So the first apply, each one after `invalidate`, and `destroy` read
 * the rules of all tables once ("sweep"). In between only the named chains are read, and only if there is a reason.
 */
import { createHash } from "node:crypto";
import { Backoff } from "../../base/backoff.js";
import type { ChangeBatch, ChangeEvent, Kernel, Op, RuleInfo, TableRef } from "../kernel/kernel.js";
import { type Edit, prepareRule, type PreparedRule } from "./diff.js";
import { commentOf } from "../bytes/names-and-comments.js";
import { check, FieldError, within } from "../language/fields/field-error.js";
import { comment as commentShape } from "../language/vocabulary.js";
import { printRule } from "../statements/lower-rule.js";
import { describeForeignChanges } from "./describe-changes.js";
import { driftOf } from "./drift.js";
import { Plan } from "./plan.js";
import { commitPlan, isDrift, joinCounts, joinResults, TableError, toTableError } from "./results.js";
import type { Rule } from "../statements/rule.js";
import type { ApplyResult, Clock } from "./apply-result.js";
import type { TablePlan } from "./plan-text.js";

/** 16 characters of base64url: 96 bits. */
const HASH_CHARACTERS = 16;
const HASH = /^[A-Za-z0-9_-]{16}$/;
/** Times between searches for a chain that does not exist. */
const RETRY = { firstMs: 1000, longestMs: 60_000 };
/** Retries of one apply, each after another read. If the kernel refuses again, it was no race with another process. */
const MAX_RETRIES = 1;

/** Our rules at one end of a chain that another program owns. */
export interface Insertion extends TableRef {
  readonly chain: string;
  /** insert: before all others. append: after them. The marked rules of other programs may stand before and after ours. */
  readonly mode: "insert" | "append";
  readonly rules: readonly Rule[];
}

interface MarkedRule extends PreparedRule {
  /** As nft prints it. */
  readonly text: string;
}

/** Our rules in one chain. */
type Inserted = Readonly<Record<Insertion["mode"], readonly MarkedRule[]>>;

const NOTHING_INSERTED: Inserted = { insert: [], append: [] };

interface ForeignChain {
  readonly ref: TableRef;
  readonly chain: string;
  desired: Inserted;
  /**
   * "open": to be read and compared. "done": the chain holds what is desired. "suspect": it did, and another process changed it
   * since. "deferred": the chain does not exist.
   */
  state: "open" | "done" | "suspect" | "deferred";
  /** Another process changed the chain since an apply began to read it. */
  changed: boolean;
}

export interface InsertedRulesOptions {
  /** Our own table, which is never searched. */
  readonly own: TableRef;
  readonly ownerMark: string;
  readonly clock: Clock;
}

/** All our rules in other tables. Each method must have returned before the next is called, except `notice` and `invalidate`. */
export class InsertedRules {
  readonly #kernel: Kernel;
  readonly #own: TableRef;
  readonly #ownerMark: string;
  readonly #clock: Clock;
  readonly #foreign = new Map<string, ForeignChain>();
  readonly #backoff = new Backoff(RETRY);
  #sweepDue = true;
  #retryAt: number | undefined;

  /** Throws FieldError if a comment cannot hold the mark. */
  constructor(kernel: Kernel, { own, ownerMark, clock }: InsertedRulesOptions) {
    this.#kernel = kernel;
    this.#own = own;
    this.#ownerMark = ownerMark;
    this.#clock = clock;
    check(commentShape, "owner mark", `${ownerMark}:${"x".repeat(HASH_CHARACTERS)}`);
    if (ownerMark === "" || /[\s:]/.test(ownerMark))
      throw new FieldError("owner mark", "a word without spaces and colons", ownerMark);
  }

  /** Desires exactly these rules at that end of the chain. */
  set(insertion: Insertion): void {
    const foreign = this.#foreignChain(insertion, insertion.chain);
    const seen = new Map<string, number>();
    const { table, chain } = insertion;
    const rules = insertion.rules.map((rule, index) =>
      within(`insertion in ${table} ${chain}, rule ${index}`, () => mark(rule, insertion, this.#ownerMark, seen)),
    );
    foreign.desired = { ...foreign.desired, [insertion.mode]: rules };
    foreign.state = "open";
  }

  /** The next apply reads the named chains, and searches all others for our rules. */
  invalidate(): void {
    for (const foreign of this.#foreign.values()) if (foreign.state === "done") foreign.state = "suspect";
    this.#sweepDue = true;
  }

  /** Notes a transaction that events reported. Returns descriptions of another process's changes to chains with our rules. */
  notice({ portId, events }: ChangeBatch): string[] {
    if (portId === this.#kernel.portId) return [];
    const concerned = new Set<ChangeEvent>();
    for (const foreign of this.#foreign.values()) {
      const changes = events.filter((event) => concerns(event, foreign));
      if (changes.length === 0 || isEmpty(foreign.desired)) continue;
      foreign.changed = true;
      if (foreign.state === "done") foreign.state = "suspect";
      for (const event of changes) concerned.add(event);
    }
    return describeForeignChanges([...concerned]);
  }

  /** Renders the desired rules as lines for `nft -f` that add them to the chains. */
  render(): string[] {
    return [...this.#foreign.values()].flatMap(({ ref, chain, desired: { insert, append } }) => {
      const name = `rule ${ref.family} ${ref.table} ${chain}`;
      // Each line inserts its rule before the existing ones.
      const first = insert.toReversed().map(({ text }) => `insert ${name} ${text}`);
      return [...first, ...append.map(({ text }) => `add ${name} ${text}`)];
    });
  }

  /** Compares the chains with the kernel. The next apply repairs the differences. Throws TableError. */
  async check(): Promise<"same" | "different"> {
    for (const foreign of this.#foreign.values()) {
      if (foreign.state !== "done") continue;
      const rules = await readChain(this.#kernel, foreign.ref, foreign.chain);
      if (this.#driftOf(foreign, rules).length > 0) foreign.state = "suspect";
    }
    return [...this.#foreign.values()].some(({ state }) => state === "suspect") ? "different" : "same";
  }

  /** Writes the difference, in one transaction, or none. Throws TableError; then nothing has changed. */
  apply(): Promise<ApplyResult> {
    return this.#write(({ desired }) => desired);
  }

  /** Returns what `apply()` would write. Writes nothing. Throws TableError. */
  async plan(): Promise<TablePlan> {
    const [sweepDue, states] = [this.#sweepDue, new Map([...this.#foreign].map(([key, { state }]) => [key, state]))];
    const { ops, counts } = await this.#plan(({ desired }) => desired, []);
    this.#sweepDue = sweepDue;
    for (const [key, state] of states) this.#foreign.get(key)!.state = state;
    const operations = ops.map(({ op }) => op);
    return { operations, counts, text: operations.map((op) => this.#command(op)).join("") };
  }

  /** The operation as a command for `nft -f`. Anonymous sets are part of their rules' text. */
  #command(op: Op): string {
    if (op.kind !== "rule") return "";
    const { family, table, chain = "" } = op;
    const place = `rule ${family} ${table} ${chain}`;
    if (op.op === "delete") return `delete ${place} handle ${op.handle}\n`;
    const { insert, append } = this.#foreignChain({ family, table }, chain).desired;
    const comment = "userdata" in op ? commentOf(op.userdata) : undefined;
    const text = [...insert, ...append].find((rule) => rule.comment === comment)?.text;
    const at = "position" in op && op.position !== undefined ? ` handle ${op.position}` : "";
    return `${op.op} ${place}${at} ${text}\n`;
  }

  /** Removes all of our rules. They stay desired. */
  async destroy(): Promise<ApplyResult> {
    this.invalidate();
    try {
      return await this.#write(() => NOTHING_INSERTED);
    } finally {
      this.invalidate();
    }
  }

  async #write(wanted: (foreign: ForeignChain) => Inserted): Promise<ApplyResult> {
    const drift: string[] = [];
    for (let retry = 0; ; retry++) {
      const plan = await this.#plan(wanted, drift);
      try {
        const result = await commitPlan(this.#kernel, this.#own.table, plan);
        return { ...result, drift: driftOf(new Set(["foreign"]), drift), ...this.#remains() };
      } catch (failure) {
        const error = toTableError(this.#own.table, failure);
        this.invalidate();
        if (retry === MAX_RETRIES || !(isDrift(error) || error.code === "unknown-outcome"))
          throw this.#explained(error);
      }
    }
  }

  /** The kernel does not say which object a rule misses. */
  #explained(error: TableError): TableError {
    const rules = [...this.#foreign.values()].flatMap(({ desired: { insert, append } }) => [...insert, ...append]);
    const names = rules.flatMap(({ refs: { sets, chains } }) => [...sets, ...chains]);
    if (names.length === 0 || !error.faulty.some(({ errno }) => errno === "ENOENT")) return error;
    const message = `${error.message}. A rule reaches the sets and chains of its own table only: ${names.join(", ")}`;
    return new TableError(error.code, message, error.faulty, { cause: error });
  }

  /** Reads the chains that have to be compared. @param drift gets the changes by other processes since the last write, in words. */
  async #plan(wanted: (foreign: ForeignChain) => Inserted, drift: string[]): Promise<Plan> {
    for (const foreign of this.#foreign.values()) foreign.changed = false;
    const swept = this.#sweepDue ? await this.#sweep() : undefined;
    this.#sweepDue = false;
    const plan = new Plan();
    for (const [key, foreign] of this.#foreign) {
      const { state, ref, chain } = foreign;
      if (state === "done") continue;
      const from = swept?.get(key) ?? (await readChain(this.#kernel, ref, chain));
      if (state === "suspect") drift.push(...this.#driftOf(foreign, from));
      foreign.state = from === undefined ? "deferred" : "open";
      if (from !== undefined) {
        const desired = wanted(foreign);
        const to = [...desired.insert, ...desired.append];
        const edits = this.#edits(desired, from);
        plan.editRules(ref, chain, { from, to, edits }, () => ({ kind: "rule", chain }));
        plan.onCommit(() => void (foreign.state = foreign.changed ? "suspect" : "done"));
      }
      // Nothing is left to do once its last rules are gone.
      if (isEmpty(foreign.desired)) plan.onCommit(() => void this.#foreign.delete(key));
    }
    return plan;
  }

  #remains(): Pick<ApplyResult, "deferred" | "applyAgainMs"> {
    const deferred = [...this.#foreign].filter(([, { state }]) => state === "deferred").map(([key]) => key);
    if (deferred.length === 0) {
      this.#backoff.reset();
      this.#retryAt = undefined;
      return {};
    }
    const now = this.#clock.now();
    if (this.#retryAt === undefined || now >= this.#retryAt) this.#retryAt = now + this.#backoff.next();
    return { deferred, applyAgainMs: Math.ceil(this.#retryAt - now) };
  }

  #foreignChain({ family, table }: TableRef, chain: string): ForeignChain {
    const key = keyOf({ family, table }, chain);
    let foreign = this.#foreign.get(key);
    if (foreign === undefined) {
      foreign = { ref: { family, table }, chain, desired: NOTHING_INSERTED, state: "open", changed: false };
      this.#foreign.set(key, foreign);
    }
    return foreign;
  }

  /** Reads the rules of all tables but ours, and names every chain with a rule of ours. Returns the rules by chain. */
  async #sweep(): Promise<ReadonlyMap<string, readonly RuleInfo[]>> {
    const found = new Map<string, RuleInfo[]>();
    for (const { family, table, owner } of await this.#kernel.tables()) {
      if (family === this.#own.family && table === this.#own.table) continue;
      // Nothing can be changed in a table that another program owns.
      if (owner !== undefined && owner !== this.#kernel.portId) continue;
      const ref = { family, table };
      for (const [chain, rules] of Map.groupBy(await this.#kernel.rules(ref), (rule) => rule.chain)) {
        found.set(keyOf(ref, chain), rules);
        if (rules.some((rule) => this.#isOurs(rule))) this.#foreignChain(ref, chain);
      }
    }
    return found;
  }

  /** Our rules go before and after those of others. "add" counts on from the rules to insert to the rules to append. */
  #edits({ insert, append }: Inserted, rules: readonly RuleInfo[]): Edit[] {
    const comments = rules.map(({ userdata }) => commentOf(userdata));
    const isTheirs = (at: number): boolean => markIn(comments[at]) !== undefined && !this.#isOurs(rules[at]);
    // The rules up to `head` include our first ones, and those from `end` on our last ones.
    let [head, first] = [0, 0];
    for (let at = 0; at < rules.length && first < insert.length; at++)
      if (comments[at] === insert[first].comment) [head, first] = [at + 1, first + 1];
      else if (!isTheirs(at)) break;
    let [end, last] = [rules.length, append.length];
    for (let at = end - 1; at >= head && last > 0; at--)
      if (comments[at] === append[last - 1].comment) [end, last] = [at, last - 1];
      else if (!isTheirs(at)) break;
    const old = rules.map((rule, from): Edit => {
      const misplaced = from >= head && from < end && this.#isOurs(rule);
      return { edit: misplaced ? "delete" : "keep", from };
    });
    const added = [...insert, ...append].map((_, to): Edit => ({ edit: "add", to }));
    const [before, after] = [added.slice(first, insert.length), added.slice(insert.length, insert.length + last)];
    return [...old.slice(0, head), ...before, ...old.slice(head, end), ...after, ...old.slice(end)];
  }

  #driftOf(foreign: ForeignChain, rules: readonly RuleInfo[] | undefined): string[] {
    const { ref, chain, desired } = foreign;
    const where = `chain ${chain} of table ${ref.family} ${ref.table}`;
    if (rules === undefined) return isEmpty(desired) ? [] : [`${where}: gone`];
    const differs = this.#edits(desired, rules).some(({ edit }) => edit !== "keep");
    return differs ? [`${where}: inserted rules missing or out of place`] : [];
  }

  #isOurs({ userdata }: RuleInfo): boolean {
    return markIn(commentOf(userdata)) === this.#ownerMark;
  }
}

/** Returns the mark of the program that inserted the rule with this comment. */
function markIn(comment = ""): string | undefined {
  const [mark, hash = ""] = comment.split(" ", 1)[0].split(":");
  return mark !== "" && HASH.test(hash) ? mark : undefined;
}

function isEmpty({ insert, append }: Inserted): boolean {
  return insert.length + append.length === 0;
}

function keyOf({ family, table }: TableRef, chain: string): string {
  return `${family} ${table} ${chain}`;
}

function concerns(event: ChangeEvent, { ref, chain }: ForeignChain): boolean {
  if (event.family !== ref.family || event.table !== ref.table) return false;
  return event.kind === "table" || ((event.kind === "chain" || event.kind === "rule") && event.name === chain);
}

/**
 * The same rule twice in one chain gets two hashes. The text has the fields of expressions in the order in which `prepareRule` builds them. A version
 * with another order has other hashes, and replaces the rules of the former version once.
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
  check(commentShape, "comment", comment);
  return { ...rule, comment, text: printRule({ ...source, comment }, { family }) };
}

/** Returns undefined if there is no such chain. */
async function readChain(kernel: Kernel, ref: TableRef, chain: string): Promise<RuleInfo[] | undefined> {
  const found = await kernel.chains(ref, [chain]);
  return found.length === 0 ? undefined : kernel.rules(ref, chain);
}

/** Joins the plans of our table and of our rules elsewhere, which are written one after the other. */
export function joinPlans(table: TablePlan, inserted: TablePlan): TablePlan {
  return {
    operations: [...table.operations, ...inserted.operations],
    counts: joinCounts(table.counts, inserted.counts),
    text: table.text + inserted.text,
  };
}

/** Joins the results of our table and of our rules elsewhere. Both list the remaining work. */
export function joinInserted(table: ApplyResult, inserted: ApplyResult): ApplyResult {
  const waits = [inserted.applyAgainMs, table.applyAgainMs].filter((ms) => ms !== undefined);
  return {
    ...joinResults(inserted, table),
    applyAgainMs: waits.length === 0 ? undefined : Math.min(...waits),
    deferred: inserted.deferred,
  };
}
