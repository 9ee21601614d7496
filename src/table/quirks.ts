/**
 * What kernels differ in, found out by batches that are checked and rolled back, each once.
 *
 * - Verdict maps that go, and the chains that their elements hold on to. A map that is deleted lets go of them in the same transaction since
 *   Linux 6.4 (5.10.188, 6.1.36; commit 628bd3e49cba). Before, only elements do that are deleted themselves: there the map is emptied first,
 *   lest its chains be busy (EBUSY). Where that is not needed it must not be done. Linux 6.1.176 to 6.1.190 (commit e79b47a8615d without
 *   86a1471d7cde, which 6.9 has both) take a refused transaction back such that each element counts for its chain twice: once as it comes
 *   back itself, once as its map does. Nothing shows it but that the chain stays busy, for as long as the table lives.
 * - Chains that are not desired, and that the kernel calls busy although nothing that it shows refers to them. Kernels have counted the uses
 *   of chains wrong more than once. Such a chain stays, without rules, and all else that is to go does go; each full read has it tried again.
 * - Tables that no other process can change: NFT_TABLE_F_OWNER with NFT_TABLE_F_PERSIST (Linux 6.9). While the socket lives that made or claimed
 *   such a table, others' changes are refused and their `flush ruleset` passes it by; when the socket closes, the table stays, and the next
 *   one can claim it; no event tells of that (nft_rcv_nl_event). The flags can neither be given to a plain table nor taken away
 *   (nf_tables_updtable): then it is made anew.
 */
import { DATA_VERDICT, DataTypeId, Hook, Priority, SetFlag, TableFlag } from "../netlink/constants.js";
import { KernelError } from "../netlink/errors.js";
import type { BaseChain, ElementBatch, Family, Kernel, Op, SetInfo, TableInfo } from "../netlink/kernel.js";
import { lowerRule } from "./rules/statements.js";
import type { FaultyObject, Statement } from "./rules/rule.js";

export interface Features {
  /** `destroy` operations (Linux 6.3). */
  readonly destroy: boolean;
  /** masquerade with fully random ports. */
  readonly masqueradeFullyRandom: boolean;
  /** snat with fully random ports. */
  readonly snatFullyRandom: boolean;
  /** reject in prerouting (Linux 5.9). */
  readonly rejectPrerouting: boolean;
  /** NFT_TABLE_F_OWNER (Linux 5.12). */
  readonly tableOwner: boolean;
  /** NFT_TABLE_F_PERSIST with an owner (Linux 6.9). */
  readonly tablePersist: boolean;
  /** nat chains in `inet` tables (Linux 5.2). */
  readonly inetNat: boolean;
  /** Route look-ups (`fib`). */
  readonly fib: boolean;
  /** Comments of chains in userdata (Linux 5.10). */
  readonly chainUserdata: boolean;
  /** A verdict map that is deleted lets go of its chains at once (Linux 6.4, 5.10.188, 6.1.36). */
  readonly deletedMapsLetGo: boolean;
  /** Maps whose elements have counters (Linux 5.7). */
  readonly elementCounters: boolean;
}

/** Quirks of the kernel that one table is in. */
export class Quirks {
  /** Chains that cannot be deleted; a full read forgets them. */
  readonly busyChains = new Set<string>();
  #features: Promise<Features> | undefined;
  #ownable: boolean | undefined;
  #letGo: boolean | undefined;
  #destroys: boolean | undefined;

  constructor(
    readonly kernel: Kernel,
    readonly family: Family,
  ) {}

  /** Probed once; again with `refresh`. */
  features(refresh: boolean): Promise<Features> {
    if (this.#features === undefined || refresh) {
      const probing = probeAll(this.kernel, this.family);
      probing.catch(() => {
        if (this.#features === probing) this.#features = undefined;
      });
      this.#features = probing;
    }
    return this.#features;
  }

  /** Whether tables can outlive their owner. */
  async canOwnTables(): Promise<boolean> {
    this.#ownable ??= (await probe(this.kernel, this.family, "tablePersist")).tablePersist === true;
    return this.#ownable;
  }

  /** Whether objects can be deleted that may not be there. */
  async canDestroy(): Promise<boolean> {
    this.#destroys ??= (await probe(this.kernel, this.family, "destroy")).destroy === true;
    return this.#destroys;
  }

  /** Whether verdict maps have to be emptied before they go. */
  async mapsMustBeEmptied(): Promise<boolean> {
    this.#letGo ??= (await probe(this.kernel, this.family, "deletedMapsLetGo")).deletedMapsLetGo;
    return this.#letGo === false;
  }

  /**
   * Takes note of what a transaction was refused for that was planned on a fresh read. A chain that is busy counts only where nothing else is at
   * fault: what refers to it may be what could not be deleted.
   * @returns whether the transaction is worth another try without them.
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

/** Flags of a table that is to be owned. */
export const OWNED = TableFlag.owner | TableFlag.persist;

/** Observed flags, owner and comment of a table. */
export type TableFacts = Pick<TableInfo, "flags" | "owner"> & { readonly comment?: string };

export type TableFate =
  /** As it should be. */
  | "fits"
  /** Its flags are set in place: woken up, claimed, or both. */
  | "update"
  /** It goes, with all that is in it, and comes anew in the same transaction. */
  | "recreate"
  /** Another program owns it and runs: nothing can be done. */
  | "theirs";

export function fateOf({ flags, owner }: TableFacts, own: boolean, portId: number): TableFate {
  const owned = (flags & TableFlag.owner) !== 0;
  if (owned && owner !== portId) return "theirs";
  const persistent = (flags & TableFlag.persist) !== 0;
  if (persistent !== own || (owned && !own)) return "recreate";
  return owned === own && (flags & TableFlag.dormant) === 0 ? "fits" : "update";
}

const TABLE = "feature-probe";

/** The errno that the kernel refuses a probe with where it lacks the feature; of the others any. */
const REFUSALS: { readonly [K in keyof Features]?: string } = {
  // nft_reject_validate of a hook that it does not know.
  rejectPrerouting: "EOPNOTSUPP",
  deletedMapsLetGo: "EBUSY",
  // NFTA_SET_EXPR is not known before: the kernel ignores it, and refuses the element's.
  elementCounters: "EOPNOTSUPP",
};

/** Undefined: the kernel refuses something else about it, or does not say what, which tells nothing. */
type Probed<Feature extends keyof Features> = { readonly [K in Feature]: boolean | undefined };

/** What a ruleset of services has to know of the kernel. */
export type RuleFeatures = Probed<"rejectPrerouting" | "elementCounters">;

/** Throws KernelError for anything but a refusal. */
export function probeRuleFeatures(kernel: Kernel, family: Family): Promise<RuleFeatures> {
  return probe(kernel, family, "rejectPrerouting", "elementCounters");
}

/** In one batch: each costs the kernel a grace period of RCU, and it answers for every operation of one. */
async function probe<F extends keyof Features>(kernel: Kernel, family: Family, ...features: F[]): Promise<Probed<F>> {
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

/** Undefined: the kernel takes it. */
async function refusal(kernel: Kernel, ops: readonly Op[]): Promise<KernelError | undefined> {
  try {
    await kernel.commit(ops, { dryRun: true });
    return undefined;
  } catch (error) {
    if (error instanceof KernelError && error.code === "refused") return error;
    throw error;
  }
}

async function probeAll(kernel: Kernel, family: Family): Promise<Features> {
  const features: Partial<Record<keyof Features, boolean>> = {};
  for (const feature of Object.keys(PROBES) as (keyof Features)[])
    features[feature] = (await probe(kernel, family, feature))[feature] === true;
  return features as Features;
}

function tableOp(family: Family, flags?: number): Op {
  return { op: "add", kind: "table", family, table: TABLE, flags };
}

function chainOps(family: Family, more: { readonly base?: BaseChain; readonly userdata?: Uint8Array } = {}): Op[] {
  return [tableOp(family), { op: "add", kind: "chain", family, table: TABLE, chain: "probe", ...more }];
}

const PREROUTING: BaseChain = { type: "filter", hook: Hook.prerouting, priority: Priority.filter };
const POSTROUTING: BaseChain = { type: "nat", hook: Hook.postrouting, priority: Priority.srcnat };

/** A rule in a base chain. */
function ruleOps(family: Family, base: BaseChain, statement: Statement): Op[] {
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

/** What the kernel is to check, in the order in which it is asked for all. */
const PROBES: { readonly [K in keyof Features]: (family: Family) => Op[] } = {
  destroy: (family) => [tableOp(family), { op: "destroy", kind: "chain", family, table: TABLE, chain: "not-there" }],
  masqueradeFullyRandom: (family) => ruleOps(family, POSTROUTING, { action: "masquerade", fullyRandom: true }),
  snatFullyRandom: (family) => {
    const address = family === "ip6" ? "2001:db8::1" : "192.0.2.1";
    return ruleOps(family, POSTROUTING, { action: "snat", address, fullyRandom: true });
  },
  rejectPrerouting: (family) => ruleOps(family, PREROUTING, { action: "reject" }),
  tableOwner: (family) => [tableOp(family, TableFlag.owner)],
  tablePersist: (family) => [tableOp(family, OWNED)],
  inetNat: () => chainOps("inet", { base: { type: "nat", hook: Hook.prerouting, priority: Priority.dstnat } }),
  fib: (family) => ruleOps(family, PREROUTING, { match: "address-type", direction: "source", type: "local" }),
  chainUserdata: (family) => chainOps(family, { userdata: Uint8Array.of(0, 2, 0x78, 0) }),
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
