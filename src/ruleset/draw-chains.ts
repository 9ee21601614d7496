/**
 * The chains that draw one of N endpoints, and the elements of `dispatch` that lead to them. There is one chain per kind of
 * list, shard and N in use, shared by all services with such a list.
 */
import type { ElementSet, Field, Statement, TableDeclarations } from "../nft/engine-exports.js";
import { packNumber } from "./key-packer.js";
import { countOf, type ListValue, packList, unpackList, withCount } from "./list-values.js";
import { drawChainName, endpointsName, LOCAL_INDEX_BASE, SetName } from "./names.js";
import type { ElementSets } from "./element-sets.js";
import { goto, markForMasquerade, resetPriority, setPriority } from "./statements.js";
import { Uses } from "./uses.js";

/**
 * A large map has one draw chain per count from 1 to this, even if no list has that count. When a rule in a new chain names
 * a map, the kernel validates every element of the map. That takes 4 to 9 ms for 31,000 elements. So these chains are created
 * while the map is empty or small.
 */
const SPARE_COUNTS = 16;
/**
 * A map with more elements is large. The kernel walks a smaller one faster than we can create the chains, which take 0.1 ms of
 * CPU each.
 */
const LARGE_MAP = 1024;

/**
 * The list value, without a count, for draws of service ports with affinity. They need rules of their own per count, so they
 * have no spares.
 */
const AFFINITY = packList({ kind: "affinity", count: 0, shard: 0, nodePort: false });

/** The chains for short lists of one kind in one map, created in advance. */
interface Spares {
  /** Their list value, without a count. */
  readonly list: number;
  readonly map: ElementSet;
  /** Number of elements that have such a list. */
  lists: number;
  /** List values whose chains stay as long as the map is large. */
  readonly kept: Set<number>;
}

export class DrawChains {
  /** Number of uses of each value, by elements and by spares. A value that marks also uses its twin. */
  readonly #uses = new Uses<number>();
  /** Keyed by list value without a count. Lists that mark share the spares of their twins. */
  readonly #spares = new Map<number, Spares>();
  #masqueradeBit: number;

  constructor(
    private readonly table: TableDeclarations,
    private readonly sets: ElementSets,
    masqueradeBit: number,
  ) {
    this.#masqueradeBit = masqueradeBit;
  }

  set masqueradeBit(bit: number) {
    this.#masqueradeBit = bit;
    for (const list of Array.from(this.#uses.present.keys(), unpackList)) if (list.kind === "masq") this.#declare(list);
  }

  /** Counts one more element with this value (packList), and creates its chain if it is new. */
  use(value: number): void {
    this.#add(value);
    const spares = this.#sparesOf(value);
    if (spares === undefined) return;
    spares.lists++;
    if (spares.kept.size > 0) this.#keep(spares, withCount(spares.list, countOf(value)));
  }

  /** Counts one element fewer with this value. */
  release(value: number): void {
    this.#uses.release(value);
    const spares = this.#sparesOf(value);
    if (spares !== undefined) spares.lists--;
  }

  /**
   * Declares the spare chains of maps that have become large, and releases those of maps that are no longer large. Call it
   * before each write.
   */
  updateSpares(): void {
    for (const spares of this.#spares.values()) {
      const { lists, map, kept } = spares;
      const needed = lists > 0 && map.size > LARGE_MAP;
      if (needed && kept.size === 0) this.#fill(spares);
      if (needed) continue;
      for (const value of kept) this.#uses.release(value);
      kept.clear();
    }
  }

  /** Drops chains that have been unused for `forMs`, by default UNUSED_MS. `now`: ms, monotonic. */
  collectUnused(now: number, forMs?: number): void {
    for (const [value, since] of this.#uses.takeOverdue(now, forMs)) {
      const list = unpackList(value);
      // The element goes after a grace period, and the chain stays as long.
      this.sets.dispatch.delete(packNumber(value), true);
      this.table.removeChain(drawChainName(list));
      if (list.kind === "masq") this.#uses.release(drawnBy(value), since);
    }
  }

  #add(value: number): void {
    if (!this.#uses.add(value)) return;
    if (drawnBy(value) !== value) this.#add(drawnBy(value));
    this.#declare(unpackList(value));
  }

  #sparesOf(value: number): Spares | undefined {
    const list = withCount(value, 0);
    if (list === AFFINITY || countOf(value) > SPARE_COUNTS) return undefined;
    return this.#spares.get(list) ?? this.#addSpares(list);
  }

  #addSpares(list: number): Spares | undefined {
    const drawn = drawnBy(list);
    const spares =
      drawn === list
        ? { list, map: this.#mapOf(unpackList(list)), lists: 0, kept: new Set<number>() }
        : this.#sparesOf(drawn);
    if (spares !== undefined) this.#spares.set(list, spares);
    return spares;
  }

  #mapOf({ shard, nodePort }: ListValue): ElementSet {
    return nodePort ? this.sets.nodePortEndpoints : this.sets.endpoints[shard];
  }

  /**
   * A table written by an earlier version may have a full map without these chains. Adding all of them would delay other
   * commits. So each is added with the first list of its count, and stays.
   */
  #fill(spares: Spares): void {
    const cheap = spares.map.kernelSize <= 2 * LARGE_MAP;
    for (let count = 1; count <= SPARE_COUNTS; count++) {
      const value = withCount(spares.list, count);
      const exists = this.#uses.isUsed(value) || this.sets.dispatch.kernelValue(packNumber(value)) !== undefined;
      if (cheap || exists) this.#keep(spares, value);
    }
  }

  #keep({ kept }: Spares, value: number): void {
    if (kept.has(value)) return;
    kept.add(value);
    this.#add(value);
  }

  #declare(list: ListValue): void {
    const chain = drawChainName(list);
    const statements: readonly Statement[] =
      list.kind === "masq"
        ? [markForMasquerade(this.#masqueradeBit), goto(drawChainName({ ...list, kind: "cluster" }))]
        : list.kind === "affinity"
          ? [drawNumber(list.count)]
          : [resetPriority, drawFrom(list)];
    this.table.chain({ chain, rules: [{ statements }] });
    if (list.kind === "affinity") return;
    const verdict = this.table.verdictId({ verdict: "goto", chain });
    this.sets.dispatch.put(packNumber(packList(list)), packNumber(verdict));
  }
}

/**
 * The list value of the chain that draws. A chain that marks continues in its twin. If both drew, both would name the
 * endpoints' map. For every element added to a map, the kernel checks each rule that names it; for every such rule, it checks
 * each element.
 */
function drawnBy(value: number): number {
  const list = unpackList(value);
  return list.kind === "masq" ? packList({ ...list, kind: "cluster" }) : value;
}

function drawNumber(count: number): Statement {
  const draw: Field = { field: "numgen", mode: "random", modulus: count };
  return setPriority({ key: ["meta priority", draw], map: SetName.stickyDraws });
}

const HASHED = { "source-ip": ["saddr"], "source-ip-port": ["saddr", "th sport"] } as const;
/** An arbitrary value, but the same on every node and in every version: "nftp". */
const SEED = 0x6e667470;

function drawFrom({ kind, count, shard, nodePort, slots }: ListValue): Statement {
  const offset = kind === "local" ? { offset: LOCAL_INDEX_BASE } : {};
  const draw: Field =
    slots === undefined || slots === "chance"
      ? { field: "numgen", mode: "random", modulus: count, ...offset }
      : { field: "jhash", of: HASHED[slots], modulus: count, seed: SEED, ...offset };
  const [map, key]: readonly [string, Field[]] = nodePort
    ? [SetName.nodePortEndpoints, ["meta l4proto", "th dport", draw]]
    : [endpointsName(shard), ["daddr", "meta l4proto", "th dport", draw]];
  return { action: "dnat", address: { key, map, data: "address-port" } };
}
