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
import {
  DATA_VERDICT,
  DataTypeId,
  FibFlag,
  FibResult,
  Hook,
  NatFlag,
  NatType,
  NfProto,
  Priority,
  RejectType,
  SetFlag,
  TableFlag,
} from "../kernel/constants.js";
import { KernelError } from "../kernel/errors.js";
import type { BaseChain, ElementBatch, Expr, Family, Kernel, Op } from "../kernel/types.js";
import type { FaultyObject } from "./rules/types.js";

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
  readonly #kernel: Kernel;
  readonly #family: Family;
  readonly #busy = new Set<string>();
  #features: Promise<Features> | undefined;
  #ownable: boolean | undefined;
  #letGo: boolean | undefined;

  constructor(kernel: Kernel, family: Family) {
    this.#kernel = kernel;
    this.#family = family;
  }

  /** Probed once; again with `refresh`. */
  features(refresh: boolean): Promise<Features> {
    if (this.#features === undefined || refresh) {
      const probe = probeFeatures(this.#kernel, this.#family);
      probe.catch(() => {
        if (this.#features === probe) this.#features = undefined;
      });
      this.#features = probe;
    }
    return this.#features;
  }

  /** Whether tables can outlive their owner. */
  async canOwnTables(): Promise<boolean> {
    return (this.#ownable ??= await probeOwnedTables(this.#kernel, this.#family));
  }

  /** Whether verdict maps have to be emptied before they go. */
  async mapsMustBeEmptied(): Promise<boolean> {
    this.#letGo ??= await probeDeletedMaps(this.#kernel, this.#family);
    return this.#letGo === false;
  }

  /** Chains that cannot be deleted. */
  get busyChains(): ReadonlySet<string> {
    return this.#busy;
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
    const before = this.#busy.size;
    for (const chain of chains) this.#busy.add(chain);
    return this.#busy.size > before;
  }

  forgetBusy(): void {
    this.#busy.clear();
  }
}

const OWNED = TableFlag.owner | TableFlag.persist;

/** Flags to make the table with. */
export function tableFlags(own: boolean): number {
  return own ? OWNED : 0;
}

/** Observed flags and owner of a table. */
export interface TableFacts {
  readonly flags: number;
  /** Netlink port of the owner. */
  readonly owner?: number;
}

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

/** Undefined: the kernel takes it. Else what it refuses it with; throws KernelError for anything but a refusal. */
async function refusal(kernel: Kernel, ops: readonly Op[]): Promise<KernelError | undefined> {
  try {
    await kernel.commit(ops, { dryRun: true });
    return undefined;
  } catch (error) {
    if (error instanceof KernelError && error.code === "refused") return error;
    throw error;
  }
}

/** True: the kernel takes it. False: it refuses it with this errno alone. Undefined: with another, or it does not say. */
async function takesUnless(errno: string, kernel: Kernel, ops: readonly Op[]): Promise<boolean | undefined> {
  const error = await refusal(kernel, ops);
  if (error === undefined) return true;
  return error.faults.length > 0 && error.faults.every((fault) => fault.errno === errno) ? false : undefined;
}

/** `Features.tablePersist` alone: each probe costs the kernel some 10 ms. */
async function probeOwnedTables(kernel: Kernel, family: Family): Promise<boolean> {
  return (await refusal(kernel, [{ op: "add", kind: "table", family, table: TABLE, flags: OWNED }])) === undefined;
}

/** What a ruleset of services has to know of the kernel. Undefined: the kernel refuses something else about it, which tells nothing. */
export interface RuleFeatures {
  readonly rejectPrerouting: boolean | undefined;
  readonly elementCounters: boolean | undefined;
}

/**
 * `Features.rejectPrerouting` and `elementCounters` alone, in one batch: each costs the kernel a grace period of RCU, and it answers for
 * every operation of one. Throws KernelError for anything but a refusal.
 */
export async function probeRuleFeatures(kernel: Kernel, family: Family): Promise<RuleFeatures> {
  const reject = rejectInPrerouting(family);
  const counters = countingElements(family);
  const error = await refusal(kernel, [...reject, ...counters]);
  return {
    // nft_reject_validate of a hook that it does not know.
    rejectPrerouting: taken(error, (op) => op < reject.length),
    // NFTA_SET_EXPR is not known before: the kernel ignores it, and refuses the element's.
    elementCounters: taken(error, (op) => op >= reject.length),
  };
}

/** True: the kernel takes these operations. False: it supports one of them not. Undefined: it refuses them for something else, or does not say. */
function taken(error: KernelError | undefined, isTheirs: (op: number) => boolean): boolean | undefined {
  if (error === undefined) return true;
  if (error.faults.length === 0) return undefined;
  const faults = error.faults.filter(({ op }) => isTheirs(op));
  if (faults.length === 0) return true;
  return faults.every(({ errno }) => errno === "EOPNOTSUPP") ? false : undefined;
}

function rejectInPrerouting(family: Family): Op[] {
  const reject: Expr =
    family === "inet"
      ? { type: "reject", rejectType: RejectType.icmpxUnreachable, code: 1 }
      : { type: "reject", rejectType: RejectType.icmpUnreachable, code: family === "ip6" ? 4 : 3 };
  return ruleOps(family, "filter", Hook.prerouting, Priority.filter, reject);
}

/** A map whose elements count the packets that find them. */
function countingElements(family: Family): Op[] {
  const ref = { family, table: TABLE } as const;
  const map = { set: "probe", flags: SetFlag.map, keyType: DataTypeId.integer, keyLen: 4, dataLen: 4 } as const;
  const counted = { ...map, dataType: DataTypeId.mark, exprs: [{ type: "counter" }] } as const;
  const elements: ElementBatch = { count: 1, keyLen: 4, dataLen: 4, counters: true, bytes: new Uint8Array(24).fill(1) };
  return [
    { op: "add", kind: "table", ...ref },
    { op: "add", kind: "set", ...ref, ...counted },
    { op: "add", kind: "elements", ...ref, set: "probe", elements },
  ];
}

function probeDeletedMaps(kernel: Kernel, family: Family): Promise<boolean | undefined> {
  const ref = { family, table: TABLE } as const;
  const elements: ElementBatch = {
    count: 1,
    keyLen: 4,
    dataLen: 4,
    verdicts: [{ verdict: "goto", chain: "probe" }],
    bytes: new Uint8Array(8),
  };
  const keyType = DataTypeId.integer;
  const map = { set: "probe", flags: SetFlag.map, keyType, keyLen: 4, dataType: DATA_VERDICT } as const;
  return takesUnless("EBUSY", kernel, [
    ...chainOps(family),
    { op: "add", kind: "set", ...ref, ...map },
    { op: "add", kind: "elements", ...ref, set: "probe", elements },
    { op: "delete", kind: "set", ...ref, set: "probe" },
    { op: "delete", kind: "chain", ...ref, chain: "probe" },
  ]);
}

function chainOps(family: Family, base?: BaseChain, userdata?: Uint8Array): Op[] {
  const ref = { family, table: TABLE } as const;
  const chain: Op = {
    op: "add",
    kind: "chain",
    ...ref,
    chain: "probe",
    ...(base && { base }),
    ...(userdata && { userdata }),
  };
  return [{ op: "add", kind: "table", ...ref }, chain];
}

function ruleOps(family: Family, type: "nat" | "filter", hook: number, priority: number, ...exprs: Expr[]): Op[] {
  const rule: Op = { op: "add", kind: "rule", family, table: TABLE, chain: "probe", exprs };
  return [...chainOps(family, { type, hook, priority }), rule];
}

async function probeFeatures(kernel: Kernel, family: Family): Promise<Features> {
  const table: Op = { op: "add", kind: "table", family, table: TABLE };
  const v6 = family === "ip6";
  const flags = NatFlag.protoRandomFully;
  const snat: Expr[] = [
    { type: "immediate", dreg: 1, data: new Uint8Array(v6 ? 16 : 4).fill(1) },
    { type: "nat", natType: NatType.snat, family: v6 ? NfProto.ip6 : NfProto.ip, regAddrMin: 1, flags },
  ];
  const addrtype: Expr = { type: "fib", dreg: 1, result: FibResult.addrtype, flags: FibFlag.saddr };
  const takes = async (...ops: Op[]): Promise<boolean> => (await refusal(kernel, ops)) === undefined;
  const { rejectPrerouting, elementCounters } = await probeRuleFeatures(kernel, family);
  const atPostrouting = (...exprs: Expr[]): Op[] => ruleOps(family, "nat", Hook.postrouting, Priority.srcnat, ...exprs);
  return {
    destroy: await takes(table, { op: "destroy", kind: "chain", family, table: TABLE, chain: "not-there" }),
    masqueradeFullyRandom: await takes(...atPostrouting({ type: "masq", flags })),
    snatFullyRandom: await takes(...atPostrouting(...snat)),
    rejectPrerouting: rejectPrerouting === true,
    tableOwner: await takes({ ...table, flags: TableFlag.owner }),
    tablePersist: await probeOwnedTables(kernel, family),
    inetNat: await takes(...chainOps("inet", { type: "nat", hook: Hook.prerouting, priority: Priority.dstnat })),
    fib: await takes(...ruleOps(family, "filter", Hook.prerouting, Priority.filter, addrtype)),
    chainUserdata: await takes(...chainOps(family, undefined, Uint8Array.of(0, 2, 0x78, 0))),
    deletedMapsLetGo: (await probeDeletedMaps(kernel, family)) === true,
    elementCounters: elementCounters === true,
  };
}
