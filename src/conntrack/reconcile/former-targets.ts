/**
 * What services had once: VIPs and node ports whose entries may outlive them. Remembered while entries may remain, and
 * within a bound.
 */
import type { IpFamily, Protocol } from "../../model/types.js";
import type { FormerTarget } from "./decide.js";

/** A VIP and port, or (address "") a node port. */
export interface Claim {
  readonly family: IpFamily;
  readonly address: string;
  readonly protocol: Protocol;
  readonly port: number;
}

/** Complete passes that must meet none of its entries before one is forgotten: a packet under way may bring one more. */
const QUIET_PASSES = 2;
/** As many as are remembered; the oldest go first. */
const MAX_FORMER = 1 << 14;

interface Remembered {
  readonly claim: Claim;
  readonly target: FormerTarget;
  /** "namespace/name" of who had it; "" when not known. */
  readonly service: string;
  quiet: number;
  seen: boolean;
}

export function claimKey({ family, address, protocol, port }: Claim): string {
  return `${family} ${address} ${protocol} ${port}`;
}

export class FormerTargets {
  readonly #all = new Map<string, Remembered>();
  /** "family namespace/name" → keys. */
  readonly #byService = new Map<string, Set<string>>();
  readonly #max: number;

  constructor(max = MAX_FORMER) {
    this.#max = max;
  }

  get size(): number {
    return this.#all.size;
  }

  add(claim: Claim, target: FormerTarget, service = ""): void {
    const key = claimKey(claim);
    const before = this.#all.get(key)?.target;
    // Given up twice within one memory: its entries may be of either time.
    const endpoints = before === undefined ? target.endpoints : union(before.endpoints, target.endpoints);
    this.#delete(key);
    this.#all.set(key, { claim, target: { cause: target.cause, endpoints }, service, quiet: 0, seen: false });
    const own = this.#byService.get(`${claim.family} ${service}`);
    if (own === undefined) this.#byService.set(`${claim.family} ${service}`, new Set([key]));
    else own.add(key);
    if (this.#all.size <= this.#max) return;
    const oldest = this.#all.keys().next();
    if (oldest.done !== true) this.#delete(oldest.value);
  }

  get(claim: Claim): FormerTarget | undefined {
    return this.#all.get(claimKey(claim))?.target;
  }

  claims(family: IpFamily): Claim[] {
    const found: Claim[] = [];
    for (const { claim } of this.#all.values()) if (claim.family === family) found.push(claim);
    return found;
  }

  /** What of these services' is remembered. */
  claimsOf(family: IpFamily, services: Iterable<string>): Claim[] {
    const found: Claim[] = [];
    if (this.#all.size === 0) return found;
    for (const service of services) {
      for (const key of this.#byService.get(`${family} ${service}`) ?? []) {
        const claim = this.#all.get(key)?.claim;
        if (claim !== undefined) found.push(claim);
      }
    }
    return found;
  }

  /** A pass meets an entry of this one. */
  meet(claim: Claim): void {
    const one = this.#all.get(claimKey(claim));
    if (one !== undefined) one.seen = true;
  }

  /** A pass that looked at every entry of `claims` is over: what it met none of, and the one before neither, is forgotten. */
  passed(claims: readonly Claim[]): void {
    for (const claim of claims) {
      const key = claimKey(claim);
      const one = this.#all.get(key);
      if (one === undefined) continue;
      one.quiet = one.seen ? 0 : one.quiet + 1;
      one.seen = false;
      if (one.quiet >= QUIET_PASSES) this.#delete(key);
    }
  }

  #delete(key: string): void {
    const one = this.#all.get(key);
    if (one === undefined) return;
    this.#all.delete(key);
    const of = `${one.claim.family} ${one.service}`;
    const own = this.#byService.get(of);
    own?.delete(key);
    if (own?.size === 0) this.#byService.delete(of);
  }
}

function union(
  a: ReadonlySet<string> | undefined,
  b: ReadonlySet<string> | undefined,
): ReadonlySet<string> | undefined {
  return a === undefined || b === undefined ? undefined : new Set([...a, ...b]);
}
