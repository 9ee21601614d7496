/**
 * Differences between kernels. Each is probed once, with a batch that the kernel checks and rolls back.
 *
 * - Chains that the elements of a deleted verdict map refer to. Since Linux 6.4 (5.10.188, 6.1.36; commit 628bd3e49cba), deleting a map releases them
 *   in the same transaction. Before, only deleting the elements themselves releases chains, so the map is emptied first: otherwise the chains are
 *   busy (EBUSY). But a kernel that does not need this must not get it. Linux 6.1.176 to 6.1.190 have commit e79b47a8615d without 86a1471d7cde (6.9
 *   has both). When they roll back a refused transaction, each element counts twice for its chain: once for itself, once for its map. The only
 *   visible effect is that the chain stays busy as long as the table lives.
 * - Undesired chains that the kernel calls busy although nothing visible refers to them. Kernels have miscounted the uses of chains more than once.
 *   Such a chain stays, without rules, and everything else is deleted. Each full read tries to delete it again.
 * - Tables that no other process can change: NFT_TABLE_F_OWNER with NFT_TABLE_F_PERSIST (Linux 6.9). While the socket that created or claimed such a
 *   table is open, the kernel refuses others' changes, and their `flush ruleset` skips the table. When the socket closes, the table stays, and
 *   another socket can claim it. No event reports this (nft_rcv_nl_event). The flags can be neither given to a plain table nor removed
 *   (nf_tables_updtable): the table has to be created again.
 */
import { DATA_VERDICT, DataTypeId, Hook, Priority, SetFlag, TableFlag } from "../kernel/constants.js";
import { KernelError } from "../kernel/errors.js";
import type { BaseChain, ElementBatch, Family, Kernel, Op, SetInfo, TableInfo } from "../kernel/kernel.js";
import { lowerRule } from "../statements/lower-rule.js";
import type { Statement } from "../statements/rule.js";
import type { FaultyObject } from "./apply-result.js";

/** The properties of the kernel that a Table or a ruleset of services depends on. */
export interface KernelFeatures {
  /** `destroy` operations (Linux 6.3). */
  readonly destroy: boolean;
  /** `reject` in prerouting (Linux 5.9). */
  readonly rejectPrerouting: boolean;
  /** NFT_TABLE_F_PERSIST with an owner (Linux 6.9). */
  readonly tablePersist: boolean;
  /** Deleting a verdict map releases its chains in the same transaction (Linux 6.4, 5.10.188, 6.1.36). */
  readonly deletedMapsLetGo: boolean;
  /** Maps whose elements have counters (Linux 5.7). */
  readonly elementCounters: boolean;
}

/** The kernel quirks that concern one table. */
export class Quirks {
  /** Chains that cannot be deleted. A full read clears the set. */
  readonly busyChains = new Set<string>();
  #ownable: boolean | undefined;
  #letGo: boolean | undefined;
  #destroys: boolean | undefined;

  constructor(
    readonly kernel: Kernel,
    readonly family: Family,
  ) {}

  /** Whether tables can outlive their owner. */
  async canOwnTables(): Promise<boolean> {
    this.#ownable ??= (await probe(this.kernel, this.family, "tablePersist")).tablePersist === true;
    return this.#ownable;
  }

  /** Whether the kernel can delete objects that may not exist (`destroy`). */
  async canDestroy(): Promise<boolean> {
    this.#destroys ??= (await probe(this.kernel, this.family, "destroy")).destroy === true;
    return this.#destroys;
  }

  /** Whether verdict maps have to be emptied before they are deleted. */
  async mapsMustBeEmptied(): Promise<boolean> {
    this.#letGo ??= (await probe(this.kernel, this.family, "deletedMapsLetGo")).deletedMapsLetGo;
    return this.#letGo === false;
  }

  /**
   * Notes the refusals of a transaction that was planned on a fresh read. A busy chain counts only if nothing else was refused: otherwise an object
   * that could not be deleted may refer to it.
   * @returns whether to try the transaction again without the chains.
   */
  noteBusy(faulty: readonly FaultyObject[], isDesired: (chain: string) => boolean): boolean {
    const chains = faulty.flatMap(({ kind, chain, errno }) =>
      kind === "chain" && errno === "EBUSY" && chain !== undefined && !isDesired(chain) ? [chain] : [],
    );
    if (chains.length === 0 || chains.length < faulty.length) return false;
    const before = this.busyChains.size;
    for (const chain of chains) this.busyChains.add(chain);
    return this.busyChains.size > before;
  }
}

/** Flags of an owned table. */
export const OWNED = TableFlag.owner | TableFlag.persist;

/** Observed flags, owner and comment of a table. */
export type TableFacts = Pick<TableInfo, "flags" | "owner"> & { readonly comment?: string };

export type TableFate =
  /** As desired. */
  | "fits"
  /** Its flags can be changed in place: the table is woken up, claimed, or both. */
  | "update"
  /** The table is deleted with all its content, and created again in the same transaction. */
  | "recreate"
  /** Another running program owns it: it cannot be changed. */
  | "theirs";

export function fateOf({ flags, owner }: TableFacts, own: boolean, portId: number): TableFate {
  const owned = (flags & TableFlag.owner) !== 0;
  if (owned && owner !== portId) return "theirs";
  const persistent = (flags & TableFlag.persist) !== 0;
  if (persistent !== own || (owned && !own)) return "recreate";
  return owned === own && (flags & TableFlag.dormant) === 0 ? "fits" : "update";
}

const TABLE = "feature-probe";

/** The errno with which a kernel without the feature refuses its probe. Features without an entry: any errno. */
const REFUSALS: { readonly [K in keyof KernelFeatures]?: string } = {
  // nft_reject_validate, for a hook that it does not support.
  rejectPrerouting: "EOPNOTSUPP",
  deletedMapsLetGo: "EBUSY",
  // Older kernels ignore NFTA_SET_EXPR, and refuse the expression of the element.
  elementCounters: "EOPNOTSUPP",
};

/** Undefined if the kernel refuses the probe for another reason, or gives none: then the feature is unknown. */
type Probed<Feature extends keyof KernelFeatures> = { readonly [K in Feature]: boolean | undefined };

/** The features that the rules for services depend on. */
export type RuleFeatures = Probed<"rejectPrerouting" | "elementCounters">;

/** Throws KernelError, except for a refusal. */
export function probeRuleFeatures(kernel: Kernel, family: Family): Promise<RuleFeatures> {
  return probe(kernel, family, "rejectPrerouting", "elementCounters");
}

/** Sends all probes in one batch, because each batch costs the kernel an RCU grace period. The kernel answers every operation. */
export async function probe<F extends keyof KernelFeatures>(
  kernel: Kernel,
  family: Family,
  ...features: F[]
): Promise<Probed<F>> {
  const batches = features.map((feature) => PROBES[feature](family));
  const refused = await refusal(kernel, batches.flat());
  let end = 0;
  const answers = features.map((feature, i) => {
    const first = end;
    end += batches[i].length;
    if (refused === undefined) return [feature, true];
    if (refused.faults.length === 0) return [feature, undefined];
    const faults = refused.faults.filter(({ op }) => op >= first && op < end);
    const lacks = faults.every(({ errno }) => errno === (REFUSALS[feature] ?? errno));
    return [feature, faults.length === 0 ? true : lacks ? false : undefined];
  });
  return Object.fromEntries(answers) as Probed<F>;
}

/** Returns undefined if the kernel accepts the operations. */
export async function refusal(kernel: Kernel, ops: readonly Op[]): Promise<KernelError | undefined> {
  try {
    await kernel.commit(ops, { dryRun: true });
    return undefined;
  } catch (error) {
    if (error instanceof KernelError && error.code === "refused") return error;
    throw error;
  }
}

export function tableOp(family: Family, flags?: number): Op {
  return { op: "add", kind: "table", family, table: TABLE, flags };
}

export function chainOps(
  family: Family,
  more: { readonly base?: BaseChain; readonly userdata?: Uint8Array } = {},
): Op[] {
  return [tableOp(family), { op: "add", kind: "chain", family, table: TABLE, chain: "probe", ...more }];
}

export const PREROUTING: BaseChain = { type: "filter", hook: Hook.prerouting, priority: Priority.filter };

/** A rule in a base chain. */
export function ruleOps(family: Family, base: BaseChain, statement: Statement): Op[] {
  const { exprs } = lowerRule({ statements: [statement] }, { family });
  return [...chainOps(family, { base }), { op: "add", kind: "rule", family, table: TABLE, chain: "probe", exprs }];
}

/** A map, and one element of it. */
function mapOps(family: Family, map: Partial<SetInfo>, element: Partial<ElementBatch> & { bytes: Uint8Array }): Op[] {
  const ref = { family, table: TABLE, set: "probe" } as const;
  const integer = { flags: SetFlag.map, keyType: DataTypeId.integer, keyLen: 4 };
  return [
    { op: "add", kind: "set", ...ref, ...integer, ...map },
    { op: "add", kind: "elements", ...ref, elements: { count: 1, keyLen: 4, dataLen: 4, ...element } },
  ];
}

/** The operations that probe each feature. */
export const PROBES: { readonly [K in keyof KernelFeatures]: (family: Family) => Op[] } = {
  destroy: (family) => [tableOp(family), { op: "destroy", kind: "chain", family, table: TABLE, chain: "not-there" }],
  rejectPrerouting: (family) => ruleOps(family, PREROUTING, { action: "reject" }),
  tablePersist: (family) => [tableOp(family, OWNED)],
  deletedMapsLetGo: (family) => {
    const verdicts = [{ verdict: "goto", chain: "probe" }] as const;
    return [
      ...chainOps(family),
      ...mapOps(family, { dataType: DATA_VERDICT }, { verdicts, bytes: new Uint8Array(8) }),
      { op: "delete", kind: "set", family, table: TABLE, set: "probe" },
      { op: "delete", kind: "chain", family, table: TABLE, chain: "probe" },
    ];
  },
  elementCounters: (family) => {
    const map = { dataLen: 4, dataType: DataTypeId.mark, exprs: [{ type: "counter" }] } as const;
    return [tableOp(family), ...mapOps(family, map, { counters: true, bytes: new Uint8Array(24).fill(1) })];
  },
};
