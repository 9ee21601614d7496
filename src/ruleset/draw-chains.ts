/**
 * The chains that draw one of N endpoints: one for each N in use, shared by all services with a list of that length.
 */
import type { Table } from "../table/index.js";
import type { Field, Rule } from "../table/types.js";
import { type DrawKind, drawChainName, LOCAL_INDEX_BASE, SetName } from "./names.js";
import { markForMasquerade } from "./skeleton.js";

/** How long a chain that nothing goes to is kept, ms: the count may come back with the next scaling. */
const UNUSED_MS = 60_000;

interface DrawChain {
  readonly kind: DrawKind;
  readonly count: number;
  readonly nodePort: boolean;
  readonly name: string;
  /** The Table's number for "goto name". */
  readonly verdict: number;
  /** Elements that go here. */
  uses: number;
  /** ms; undefined while in use, and until the clock is next looked at. */
  unusedSince: number | undefined;
}

const KIND_NUMBER: Readonly<Record<DrawKind, number>> = { cluster: 0, masq: 1, local: 2 };

/** One number for what makes a draw chain, so that finding it builds no string. */
function chainNumber(kind: DrawKind, count: number, nodePort: boolean): number {
  return (count * 3 + KIND_NUMBER[kind]) * 2 + (nodePort ? 1 : 0);
}

function drawRule(chain: DrawChain): Rule {
  const offset = chain.kind === "local" ? { offset: LOCAL_INDEX_BASE } : {};
  const draw: Field = { field: "numgen", mode: "random", modulus: chain.count, ...offset };
  const [map, key]: readonly [string, Field[]] = chain.nodePort
    ? [SetName.nodePortEndpoints, ["l4proto", "dport", draw]]
    : [SetName.serviceEndpoints, ["daddr", "l4proto", "dport", draw]];
  return { statements: [{ action: "dnat-map", key, map, data: "address-port" }] };
}

export class DrawChains {
  readonly #table: Table;
  readonly #chains = new Map<number, DrawChain>();
  readonly #idle = new Set<DrawChain>();
  #masqueradeBit: number;

  constructor(table: Table, masqueradeBit: number) {
    this.#table = table;
    this.#masqueradeBit = masqueradeBit;
  }

  set masqueradeBit(bit: number) {
    if (bit === this.#masqueradeBit) return;
    this.#masqueradeBit = bit;
    for (const chain of this.#chains.values()) if (chain.kind === "masq") this.#declare(chain);
  }

  /** One more element goes to this chain: the verdict to give it, as the Table's number. */
  use(kind: DrawKind, count: number, nodePort: boolean): number {
    const chain = this.#ensure(kind, count, nodePort);
    if (chain.uses++ === 0) this.#idle.delete(chain);
    return chain.verdict;
  }

  /** One element fewer goes to this chain. */
  release(kind: DrawKind, count: number, nodePort: boolean): void {
    const chain = this.#chains.get(chainNumber(kind, count, nodePort));
    if (chain !== undefined && --chain.uses === 0) this.#setIdle(chain);
  }

  /** Drops chains that nothing has gone to for `forMs`, by default a while. `now`: ms, monotonic. */
  collectUnused(now: number, forMs = UNUSED_MS): void {
    // Once more: a chain is free when the one is gone that goes on to it.
    for (let before = -1; before !== this.#idle.size;) {
      before = this.#idle.size;
      for (const chain of this.#idle) {
        chain.unusedSince ??= now;
        if (now - chain.unusedSince < forMs || this.#hasMasqTwin(chain)) continue;
        this.#idle.delete(chain);
        this.#chains.delete(chainNumber(chain.kind, chain.count, chain.nodePort));
        this.#table.removeChain(chain.name);
      }
    }
  }

  #ensure(kind: DrawKind, count: number, nodePort: boolean): DrawChain {
    const number = chainNumber(kind, count, nodePort);
    const known = this.#chains.get(number);
    if (known !== undefined) return known;
    const name = drawChainName(kind, count, nodePort);
    const verdict = this.#table.verdictId({ verdict: "goto", chain: name });
    const chain: DrawChain = { kind, count, nodePort, name, verdict, uses: 0, unusedSince: undefined };
    this.#chains.set(number, chain);
    this.#setIdle(chain);
    this.#declare(chain);
    return chain;
  }

  #declare(chain: DrawChain): void {
    const rules: Rule[] = [];
    if (chain.kind === "masq") {
      // It goes on to its cluster chain, which must then be there even when no element goes to that directly.
      const target = this.#ensure("cluster", chain.count, chain.nodePort);
      rules.push({ statements: [markForMasquerade(this.#masqueradeBit)] });
      rules.push({ statements: [{ action: "verdict", verdict: { verdict: "goto", chain: target.name } }] });
    } else rules.push(drawRule(chain));
    this.#table.chain({ chain: chain.name, rules });
  }

  #setIdle(chain: DrawChain): void {
    chain.unusedSince = undefined;
    this.#idle.add(chain);
  }

  #hasMasqTwin(chain: DrawChain): boolean {
    return chain.kind === "cluster" && this.#chains.has(chainNumber("masq", chain.count, chain.nodePort));
  }
}
