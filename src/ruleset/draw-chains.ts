/**
 * The chains that draw one of N endpoints, and the elements of `dispatch` that lead to them: one for each kind of list, shard and N in
 * use, shared by all services with such a list.
 */
import type { ElementSet, Field, Statement, TableDeclarations } from "../table/index.js";
import { packNumber } from "./keys.js";
import { type ListValue, packList, unpackList } from "./list-values.js";
import { drawChainName, endpointsName, LOCAL_INDEX_BASE, SetName } from "./names.js";
import { goto, markForMasquerade, resetPriority } from "./statements.js";
import { Uses } from "./uses.js";

export class DrawChains {
  readonly #table: TableDeclarations;
  readonly #dispatch: ElementSet;
  /** Of each value, by elements; those that mark lead to their twins as well. */
  readonly #uses = new Uses<number>();
  #masqueradeBit: number;

  constructor(table: TableDeclarations, dispatch: ElementSet, masqueradeBit: number) {
    this.#table = table;
    this.#dispatch = dispatch;
    this.#masqueradeBit = masqueradeBit;
  }

  set masqueradeBit(bit: number) {
    this.#masqueradeBit = bit;
    for (const list of Array.from(this.#uses.present.keys(), unpackList)) if (list.kind === "masq") this.#declare(list);
  }

  /** One more element has this value (packList): there is a chain for it from now on. */
  use(value: number): void {
    if (!this.#uses.add(value)) return;
    const list = unpackList(value);
    if (list.kind === "masq") this.use(twinOf(list));
    this.#declare(list);
  }

  /** One element fewer has this value. */
  release(value: number): void {
    this.#uses.release(value);
  }

  /** Drops chains that nothing has led to for `forMs`, by default a while. `now`: ms, monotonic. */
  collectUnused(now: number, forMs?: number): void {
    for (const [value, since] of this.#uses.takeOverdue(now, forMs)) {
      const list = unpackList(value);
      // The chain stays for as long.
      this.#dispatch.delete(packNumber(value), true);
      this.#table.removeChain(drawChainName(list));
      if (list.kind === "masq") this.#uses.release(twinOf(list), since);
    }
  }

  #declare(list: ListValue): void {
    const chain = drawChainName(list);
    const statements: readonly Statement[] =
      list.kind === "masq"
        ? [markForMasquerade(this.#masqueradeBit), goto(drawChainName({ ...list, kind: "cluster" }))]
        : list.kind === "sticky"
          ? [drawNumber(list.count)]
          : [resetPriority, drawFrom(list)];
    this.#table.chain({ chain, rules: [{ statements }] });
    if (list.kind === "sticky") return;
    const verdict = this.#table.verdictId({ verdict: "goto", chain });
    this.#dispatch.put(packNumber(packList(list)), packNumber(verdict));
  }
}

/**
 * The list value of the chain that one which marks goes on to. Two chains that draw would name the endpoints' map twice, and the kernel looks at
 * each rule that names a map for every element it adds there, and at each element for every rule.
 */
function twinOf(list: ListValue): number {
  return packList({ ...list, kind: "cluster" });
}

function drawNumber(count: number): Statement {
  const draw: Field = { field: "numgen", mode: "random", modulus: count };
  return { action: "priority-map", key: ["priority", draw], map: SetName.stickyDraws };
}

const HASHED = { "source-ip": ["saddr"], "source-ip-port": ["saddr", "sport"] } as const;
/** Any, but the same on every node, and in every version: "nftp". */
const SEED = 0x6e667470;

function drawFrom({ kind, count, shard, nodePort, slots }: ListValue): Statement {
  const offset = kind === "local" ? { offset: LOCAL_INDEX_BASE } : {};
  const draw: Field =
    slots === undefined || slots === "chance"
      ? { field: "numgen", mode: "random", modulus: count, ...offset }
      : { field: "jhash", of: HASHED[slots], modulus: count, seed: SEED, ...offset };
  const [map, key]: readonly [string, Field[]] = nodePort
    ? [SetName.nodePortEndpoints, ["l4proto", "dport", draw]]
    : [endpointsName(shard), ["daddr", "l4proto", "dport", draw]];
  return { action: "dnat-map", key, map, data: "address-port" };
}
