/**
 * Finds leftovers of kube-proxy's other modes in the tables of iptables-nft, and removes it through nf_tables itself. Each
 * table is one transaction. Other programs' chains and rules stay as they are.
 */
import { KernelError } from "../../nft/kernel/errors.js";
import type { Kernel, Op, TableRef } from "../../nft/kernel/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { jumpTarget } from "../jump-target.js";
import { IPTABLES_TABLES, type IptablesTable, isEntryChain, isOwnChain } from "./iptables-names.js";

/** A chain of kube-proxy that another program uses. */
interface KeptChain {
  readonly chain: string;
  /** The user: "a rule of chain CNI-HOSTPORT-SETMARK". */
  readonly user: string;
}

/** The changes in one table. */
export interface TableCleanup {
  readonly family: IpFamily;
  readonly table: IptablesTable;
  /** Number of removed chains. */
  readonly chains: number;
  /** Number of removed rules in other programs' chains that jumped to them. */
  readonly jumps: number;
  /** Chains kept, with everything that they lead to, because other programs' jumps to them must keep their effect. */
  readonly kept: readonly KeptChain[];
}

/** Maximum number of attempts at one table, because other programs change these tables as well. */
const MOST_ATTEMPTS = 8;
/** Errors that a concurrent change causes. */
const CONCURRENT = new Set(["ENOENT", "EBUSY"]);

/**
 * Removes kube-proxy's chains, and its jumps to them, from every iptables-nft table of the families. The result omits
 * tables without any. Throws KernelError; the tables before the failed one are then clean, and that one is unchanged.
 */
export async function removeIptablesChains(kernel: Kernel, families: readonly IpFamily[]): Promise<TableCleanup[]> {
  const done: TableCleanup[] = [];
  for (const cleaner of await cleanersOf(kernel, families)) {
    const cleanup = await cleaner.run();
    if (cleanup !== undefined) done.push(cleanup);
  }
  return done;
}

/** Returns one cleaner per table that exists. */
async function cleanersOf(kernel: Kernel, families: readonly IpFamily[]): Promise<TableCleaner[]> {
  const found: TableCleaner[] = [];
  for (const family of families) {
    const present = new Set((await kernel.tables(family)).map(({ table }) => table));
    for (const table of IPTABLES_TABLES) if (present.has(table)) found.push(new TableCleaner(kernel, family, table));
  }
  return found;
}

/** Returns the changes that `removeIptablesChains` would make. Throws KernelError. */
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
  readonly #ref: TableRef;
  /** How often the kernel reported a chain as in use. */
  readonly #busy = new Map<string, number>();

  constructor(
    private readonly kernel: Kernel,
    private readonly family: IpFamily,
    private readonly table: IptablesTable,
  ) {
    this.#ref = { family, table };
  }

  /** Returns the changes that `run` would make. Returns undefined if nothing of kube-proxy is there. */
  async find(): Promise<TableCleanup | undefined> {
    return (await this.#plan())?.result;
  }

  /** Returns undefined if nothing of kube-proxy is there. */
  async run(): Promise<TableCleanup | undefined> {
    for (let attempt = 1; ; attempt++) {
      let ops: readonly Op[] = [];
      try {
        const plan = await this.#plan();
        if (plan === undefined) return undefined;
        ({ ops } = plan);
        if (ops.length > 0) await this.kernel.commit(ops);
        return plan.result;
      } catch (error) {
        if (attempt === MOST_ATTEMPTS || !(error instanceof KernelError) || !mayRetry(error)) throw error;
        this.#noteBusy(error, ops);
      }
    }
  }

  async #plan(): Promise<CleanupPlan | undefined> {
    const chains = await this.kernel.chains(this.#ref);
    const own = new Set(chains.map(({ chain }) => chain).filter((chain) => isOwnChain(this.table, chain)));
    if (own.size === 0) return undefined;
    const users = new Map<string, string>();
    const jumps: Op[] = [];
    for (const { chain, base } of chains) {
      if (own.has(chain)) continue;
      for (const rule of await this.kernel.rules(this.#ref, chain)) {
        const target = jumpTarget(rule);
        if (target === undefined || !own.has(target)) continue;
        if (base !== undefined && isEntryChain(this.table, target)) {
          jumps.push({ op: "delete", kind: "rule", ...this.#ref, chain, handle: rule.handle });
        } else users.set(target, `a rule of chain ${chain}`);
      }
    }
    for (const [chain, times] of this.#busy) {
      // A single report may come from a rule that was added meanwhile. That rule is visible by now.
      if (times > 1 && own.has(chain) && !users.has(chain)) users.set(chain, "something other than a rule");
    }
    const kept = await this.#reachable(users.keys(), own);
    const gone = [...own].filter((chain) => !kept.has(chain));
    return {
      ops: [
        ...jumps,
        // Flush all chains first, because they jump to each other.
        ...gone.map((chain): Op => ({ op: "flush", kind: "rule", ...this.#ref, chain })),
        ...gone.map((chain): Op => ({ op: "delete", kind: "chain", ...this.#ref, chain })),
      ],
      result: {
        family: this.family,
        table: this.table,
        chains: gone.length,
        jumps: jumps.length,
        kept: [...users].map(([chain, user]) => ({ chain, user })),
      },
    };
  }

  /** Returns the chains and all own chains that they lead to. */
  async #reachable(from: Iterable<string>, own: ReadonlySet<string>): Promise<ReadonlySet<string>> {
    const reached = new Set(from);
    for (const chain of reached) {
      for (const rule of await this.kernel.rules(this.#ref, chain)) {
        const target = jumpTarget(rule);
        // Iterating a Set also visits elements added meanwhile.
        if (target !== undefined && own.has(target)) reached.add(target);
      }
    }
    return reached;
  }

  #noteBusy(error: KernelError, ops: readonly Op[]): void {
    // The kernel continues after the first fault, so a jump that could not be deleted makes its chain look busy, too.
    if (error.faults.some(({ errno }) => errno !== "EBUSY")) return;
    for (const { op } of error.faults) {
      const refused = ops[op];
      if (refused?.kind !== "chain") continue;
      this.#busy.set(refused.chain, (this.#busy.get(refused.chain) ?? 0) + 1);
    }
  }
}

/** Whether reading again and retrying may help. */
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
