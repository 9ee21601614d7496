/**
 * The state that `FakeKernel` keeps: tables, chains, rules, sets and elements of one network namespace.
 *
 * Changes are made in place and recorded in a `Transaction` (transaction.ts), which reverts them if the batch fails. The state under a
 * running transaction is therefore the kernel's "next generation" (nft_is_active_next).
 */
import type { BaseChain, Expr, Family, ObjectData, SetInfo, TableRef, Verdict } from "../../kernel/kernel.js";
import { DATA_VERDICT, SetFlag } from "../../kernel/constants.js";
import { nextGeneration } from "../../kernel/generation.js";

/** An operation that the kernel would reject. The errno is symbolic; `element` is the index of the record at fault. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  constructor(
    readonly errno: string,
    readonly element?: number,
    readonly text?: string,
  ) {
    super(text === undefined ? errno : `${errno}: ${text}`);
  }
}

export class ChainState {
  readonly rules: RuleState[] = [];
  /** References by rules and elements; rules of the chain itself are not counted here. */
  references = 0;
  flags = 0;
  constructor(
    readonly name: string,
    readonly handle: bigint,
    public base: BaseChain | undefined,
    readonly userdata: Uint8Array | undefined,
  ) {}

  /** The value of NFTA_CHAIN_USE. */
  get use(): number {
    return this.references + this.rules.length;
  }
}

export class ObjectState {
  /** References by rules and elements. */
  references = 0;
  constructor(
    readonly name: string,
    readonly objType: number,
    readonly handle: bigint,
    public data: ObjectData,
    readonly userdata: Uint8Array | undefined,
  ) {}
}

/** A reference of an expression: to the chain of its verdict, to its object, or to the set that it looks up. */
export type Link = ChainState | ObjectState | SetState;

export class RuleState {
  constructor(
    readonly chain: ChainState,
    readonly handle: bigint,
    /** In the kernel's dump format. */
    readonly exprs: readonly Expr[],
    readonly links: readonly Link[],
    readonly userdata: Uint8Array | undefined,
  ) {}
}

export interface ElementState {
  /** For a set with counters; undefined if nothing has been counted. */
  readonly count?: { readonly packets: bigint; readonly bytes: bigint };
  /** Bytes as a latin1 string, so that comparing strings compares bytes. Empty for the catch-all element. */
  readonly key: string;
  /** Inclusive end of a range of a concatenation; otherwise the key itself. */
  readonly keyEnd: string;
  /** NFT_SET_ELEM_INTERVAL_END: an exclusive end in a set of intervals. */
  readonly end: boolean;
  readonly catchall: boolean;
  readonly data: string;
  readonly verdict: Verdict | undefined;
  /** The chain that `verdict` names, or the element's object. */
  readonly target: ChainState | ObjectState | undefined;
  readonly userdata: Uint8Array | undefined;
  /** ms: its own timeout, or the set's when it was added. Absent if it does not expire. */
  timeout: bigint | undefined;
  /** On the injected clock, ms. Infinity: never. */
  expiresAt: number;
}

const END = "\u0100";
const CATCHALL = "\u0101";

/** The map key of an element: elements with the same key are the same element for the kernel. */
export function elementId(element: Pick<ElementState, "key" | "keyEnd" | "end" | "catchall">): string {
  if (element.catchall) return CATCHALL;
  if (element.end) return element.key + END;
  return element.keyEnd === element.key ? element.key : element.key + element.keyEnd;
}

export class SetState {
  readonly elements = new Map<string, ElementState>();
  /** Ascending, an end before the start of the same key. Only for sets of single-field intervals (the kernel's rbtree). */
  readonly sorted: ElementState[] | undefined;
  /** References by rules. */
  references = 0;
  /** A rule has referred to it, perhaps only within this batch (nft_trans_set_bound). */
  everBound = false;
  size: number | undefined;
  timeout: bigint | undefined;
  gcInterval: number | undefined;
  constructor(
    readonly name: string,
    readonly handle: bigint,
    readonly info: SetInfo,
  ) {
    this.size = info.size === 0 ? undefined : info.size;
    this.timeout = info.timeout === 0n ? undefined : info.timeout;
    this.gcInterval = info.gcInterval === 0 ? undefined : info.gcInterval;
    this.sorted = this.has(SetFlag.interval) && (info.fieldLens?.length ?? 0) < 2 ? [] : undefined;
  }

  has(flag: number): boolean {
    return (this.info.flags & flag) !== 0;
  }
  get anonymous(): boolean {
    return this.has(SetFlag.anonymous);
  }
  get isMap(): boolean {
    return this.has(SetFlag.map);
  }
  get isVerdictMap(): boolean {
    return this.info.dataType === DATA_VERDICT;
  }
  /** Whether it has a range per field: concatenations of intervals (the kernel's pipapo). */
  get ranges(): boolean {
    return this.has(SetFlag.interval) && this.sorted === undefined;
  }

  /** Inserts an element and takes a reference to the chain or object that it names. */
  insert(element: ElementState): void {
    this.elements.set(elementId(element), element);
    if (this.sorted !== undefined && !element.catchall) this.sorted.splice(this.position(element), 0, element);
    if (element.target !== undefined) element.target.references++;
  }

  remove(element: ElementState): void {
    this.elements.delete(elementId(element));
    if (this.sorted !== undefined && !element.catchall) this.sorted.splice(this.position(element), 1);
    if (element.target !== undefined) element.target.references--;
  }

  /** Index in `sorted` of the first element that is not before this one. */
  position(element: Pick<ElementState, "key" | "end">): number {
    const sorted = this.sorted ?? [];
    let low = 0;
    let high = sorted.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compareEnds(sorted[middle], element) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function compareEnds(a: Pick<ElementState, "key" | "end">, b: Pick<ElementState, "key" | "end">): number {
  if (a.key !== b.key) return a.key < b.key ? -1 : 1;
  return Number(b.end) - Number(a.end);
}

export class TableState {
  readonly chains = new Map<string, ChainState>();
  readonly sets = new Map<string, SetState>();
  /** Device names of each flowtable. */
  readonly flowtables = new Map<string, ReadonlySet<string>>();
  /** By "TYPE NAME". */
  readonly objects = new Map<string, ObjectState>();
  flags: number;
  owner: number | undefined;
  private handles = 0n;
  constructor(
    readonly ref: TableRef,
    readonly handle: bigint,
    flags: number,
    readonly userdata: Uint8Array | undefined,
  ) {
    this.flags = flags;
  }

  /** One counter for chains, rules and sets; the kernel does not revert it if a batch fails. */
  nextHandle(): bigint {
    return ++this.handles;
  }

  /** NFTA_TABLE_USE, which does not count anonymous sets. */
  get use(): number {
    let use = this.chains.size + this.flowtables.size + this.objects.size;
    for (const set of this.sets.values()) if (!set.anonymous) use++;
    return use;
  }
}

/**
 * How elements of a deleted verdict map treat the chains that they name:
 * - "let go": they release the chains with the map's deletion, and take them again if it is reverted. Linux 6.4 and later;
 * - "hold on": they release them only when the transaction ends. Before (and before 5.10.188 and 6.1.36);
 * - "come back twice": like "let go", but if the same transaction deleted elements before the map, these take their chains twice when it is
 *   reverted. Linux 6.1.176 to 6.1.190.
 */
export type DeletedMaps = "let go" | "hold on" | "come back twice";

/** Everything in one network namespace. */
export class NamespaceState {
  readonly tables = new Map<string, TableState>();
  /** The kernel's base_seq starts at 1. */
  generation = 1;
  private tableHandles = 0n;
  private ports: number;
  constructor(
    firstPort: number,
    readonly deletedMaps: DeletedMaps,
  ) {
    this.ports = firstPort;
  }

  nextTableHandle(): bigint {
    return ++this.tableHandles;
  }
  nextPort(): number {
    return this.ports++;
  }
  find(ref: TableRef): TableState | undefined {
    return this.tables.get(tableId(ref));
  }
  ofFamily(family: Family | undefined): TableState[] {
    return [...this.tables.values()].filter((table) => family === undefined || table.ref.family === family);
  }
  nextGeneration(): void {
    this.generation = nextGeneration(this.generation);
  }
}

/** Objects of a table in order of creation, in which the kernel lists them: that of their handles. */
export function byAge<T extends { readonly handle: bigint }>(objects: ReadonlyMap<string, T>): T[] {
  return [...objects.values()].sort((a, b) => Number(a.handle - b.handle));
}

export function tableId(ref: TableRef): string {
  return `${ref.family} ${ref.table}`;
}

/** Returns true if the element has expired: the kernel then acts as if it were gone. */
export function isExpired(element: ElementState, now: number): boolean {
  return element.expiresAt <= now;
}
