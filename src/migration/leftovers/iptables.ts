/**
 * What kube-proxy's other modes left in the tables of iptables-nft: found and removed through nf_tables itself. One
 * transaction for each table; other programs' chains and rules stay as they are.
 */
import { KernelError } from "../../netlink/errors.js";
import type { Kernel, Op, RuleInfo, TableRef } from "../../netlink/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { IPTABLES_TABLES, type IptablesTable, isEntryChain, isOwnChain } from "./names.js";

/** A chain of kube-proxy's that another program uses. */
export interface KeptChain {
  readonly chain: string;
  /** Who: "a rule of chain CNI-HOSTPORT-SETMARK". */
  readonly user: string;
}

/** What was done in one table. */
export interface TableCleanup {
  readonly family: IpFamily;
  readonly table: IptablesTable;
  /** How many chains were removed. */
  readonly chains: number;
  /** How many rules in other programs' chains, which jumped to them. */
  readonly jumps: number;
  /** Kept, with all that they lead to: what other programs jump to must go on doing what it did. */
  readonly kept: readonly KeptChain[];
}

/** Other programs change these tables as well: attempts at one table. */
const MOST_ATTEMPTS = 8;
/** What a change that came in between makes the kernel say. */
const CONCURRENT = new Set(["ENOENT", "EBUSY"]);

/**
 * Removes kube-proxy's chains and its jumps to them from every iptables-nft table of the families. Tables without any are
 * not in the result. Throws KernelError; the tables before that one are clean then, and it is as it was.
 */
export async function removeIptablesChains(kernel: Kernel, families: readonly IpFamily[]): Promise<TableCleanup[]> {
  const done: TableCleanup[] = [];
  for (const cleaner of await cleanersOf(kernel, families)) {
    const cleanup = await cleaner.run();
    if (cleanup !== undefined) done.push(cleanup);
  }
  return done;
}

/** One for each of these tables that is there. */
async function cleanersOf(kernel: Kernel, families: readonly IpFamily[]): Promise<TableCleaner[]> {
  const found: TableCleaner[] = [];
  for (const family of families) {
    const present = new Set((await kernel.tables(family)).map(({ table }) => table));
    for (const table of IPTABLES_TABLES) if (present.has(table)) found.push(new TableCleaner(kernel, family, table));
  }
  return found;
}

/** What `removeIptablesChains` would do, and nothing of it done. Throws KernelError. */
export async function findIptablesChains(kernel: Kernel, families: readonly IpFamily[]): Promise<TableCleanup[]> {
  const cleaners = await cleanersOf(kernel, families);
  const found = await Promise.all(cleaners.map((cleaner) => cleaner.find()));
  return found.filter((cleanup) => cleanup !== undefined);
}

interface CleanupPlan {
  readonly ops: readonly Op[];
  readonly result: TableCleanup;
}

class TableCleaner {
  readonly #kernel: Kernel;
  readonly #family: IpFamily;
  readonly #table: IptablesTable;
  readonly #ref: TableRef;
  /** How often the kernel said of a chain that it is in use. */
  readonly #busy = new Map<string, number>();

  constructor(kernel: Kernel, family: IpFamily, table: IptablesTable) {
    this.#kernel = kernel;
    this.#family = family;
    this.#table = table;
    this.#ref = { family, table };
  }

  /** What `run` would do; undefined when there is nothing of kube-proxy's. */
  async find(): Promise<TableCleanup | undefined> {
    return (await this.#plan())?.result;
  }

  /** Undefined when there is nothing of kube-proxy's. */
  async run(): Promise<TableCleanup | undefined> {
    for (let attempt = 1; ; attempt++) {
      let ops: readonly Op[] = [];
      try {
        const plan = await this.#plan();
        if (plan === undefined) return undefined;
        ({ ops } = plan);
        if (ops.length > 0) await this.#kernel.commit(ops);
        return plan.result;
      } catch (error) {
        if (attempt === MOST_ATTEMPTS || !(error instanceof KernelError) || !mayRetry(error)) throw error;
        this.#noteBusy(error, ops);
      }
    }
  }

  async #plan(): Promise<CleanupPlan | undefined> {
    const chains = await this.#kernel.chains(this.#ref);
    const own = new Set(chains.map(({ chain }) => chain).filter((chain) => isOwnChain(this.#table, chain)));
    if (own.size === 0) return undefined;
    const users = new Map<string, string>();
    const jumps: Op[] = [];
    for (const { chain, base } of chains) {
      if (own.has(chain)) continue;
      for (const rule of await this.#kernel.rules(this.#ref, chain)) {
        const target = jumpTarget(rule);
        if (target === undefined || !own.has(target)) continue;
        if (base !== undefined && isEntryChain(this.#table, target)) {
          jumps.push({ op: "delete", kind: "rule", ...this.#ref, chain, handle: rule.handle });
        } else users.set(target, `a rule of chain ${chain}`);
      }
    }
    for (const [chain, times] of this.#busy) {
      // Once may have been a rule that came in between; that one was seen now.
      if (times > 1 && own.has(chain) && !users.has(chain)) users.set(chain, "something else than a rule");
    }
    const kept = await this.#reachable(users.keys(), own);
    const gone = [...own].filter((chain) => !kept.has(chain));
    return {
      ops: [
        ...jumps,
        // All are emptied first, as they jump to each other.
        ...gone.map((chain): Op => ({ op: "flush", kind: "rule", ...this.#ref, chain })),
        ...gone.map((chain): Op => ({ op: "delete", kind: "chain", ...this.#ref, chain })),
      ],
      result: {
        family: this.#family,
        table: this.#table,
        chains: gone.length,
        jumps: jumps.length,
        kept: [...users].map(([chain, user]) => ({ chain, user })),
      },
    };
  }

  /** The chains themselves, and all own ones that they lead to. */
  async #reachable(from: Iterable<string>, own: ReadonlySet<string>): Promise<ReadonlySet<string>> {
    const reached = new Set(from);
    for (const chain of reached) {
      for (const rule of await this.#kernel.rules(this.#ref, chain)) {
        const target = jumpTarget(rule);
        // A set that grows while it is walked is walked to its end.
        if (target !== undefined && own.has(target)) reached.add(target);
      }
    }
    return reached;
  }

  #noteBusy(error: KernelError, ops: readonly Op[]): void {
    // The kernel goes on after the first fault: a jump that could not be deleted makes its chain look busy, too.
    if (error.faults.some(({ errno }) => errno !== "EBUSY")) return;
    for (const { op } of error.faults) {
      const refused = ops[op];
      if (refused?.kind !== "chain") continue;
      this.#busy.set(refused.chain, (this.#busy.get(refused.chain) ?? 0) + 1);
    }
  }
}

/** Whether reading again and trying once more may help. */
function mayRetry(error: KernelError): boolean {
  switch (error.code) {
    case "refused":
      return error.faults.every(({ errno }) => CONCURRENT.has(errno));
    case "not-found":
    case "interrupted":
    case "stale":
    case "unknown-outcome":
      return true;
    default:
      return false;
  }
}

/** The chain that a rule goes to, by jump or goto. */
function jumpTarget({ exprs }: RuleInfo): string | undefined {
  for (const expr of exprs) {
    if (expr.type !== "immediate" || expr.data instanceof Uint8Array) continue;
    if (expr.data.verdict === "jump" || expr.data.verdict === "goto") return expr.data.chain;
  }
  return undefined;
}
