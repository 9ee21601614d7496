/**
 * Remembers VIPs and node ports that services had once, because their entries may outlive them. They are remembered
 * while entries may remain, up to a limit.
 */
import type { IpFamily } from "../../base/ip.js";
import { serviceProtocol } from "../../base/protocols.js";
import { type AddressKey, keyOf, NODE_PORT, type ServiceAddress } from "../../model/service-address.js";
import type { ConntrackEntry } from "../../nft/conntrack/conntrack-table.js";
import type { FormerTarget } from "./stale-entries.js";

/**
 * Number of complete passes without any of its entries after which a claim is forgotten. A packet in flight may still
 * create an entry.
 */
const QUIET_PASSES = 2;
/** Maximum numbers of claims and of endpoints to remember. The oldest are evicted first. */
const MAX_FORMER = 1 << 14;
const MAX_ENDPOINTS = 1 << 17;
/** Maximum number of times to remember for a claim that is given up repeatedly. The latest ones are kept. */
const MAX_TIMES = 8;

/** One time that a claim was given up. */
interface Time {
  /** "address port" of the endpoints that its entries may have. Undefined if they may have any. */
  readonly endpoints: ReadonlySet<string> | undefined;
  quiet: number;
  seen: boolean;
}

interface Remembered {
  readonly claim: ServiceAddress;
  readonly cause: FormerTarget["cause"];
  /** "namespace/name" of the service that had it; "" if unknown. */
  readonly service: string;
  /** Oldest first, never empty. An entry may belong to any of them. */
  readonly times: readonly Time[];
}

export class FormerTargets {
  readonly #all = new Map<AddressKey, Remembered>();
  /** "family namespace/name" → keys. */
  readonly #byService = new Map<string, Set<AddressKey>>();
  #endpoints = 0;

  constructor(
    private readonly max = MAX_FORMER,
    private readonly maxEndpoints = MAX_ENDPOINTS,
  ) {}

  get size(): number {
    return this.#all.size;
  }

  /** Number of endpoints that all claims remember. */
  get endpoints(): number {
    return this.#endpoints;
  }

  add(
    claim: ServiceAddress,
    { cause, endpoints }: { cause: FormerTarget["cause"]; endpoints: Time["endpoints"] },
    service = "",
  ): void {
    const key = keyOf(claim);
    const others = this.#all.get(key)?.times.filter((time) => !equal(time.endpoints, endpoints)) ?? [];
    const times = [...others, { endpoints, quiet: 0, seen: false }].slice(-MAX_TIMES);
    // Insert it again, so that it is the youngest.
    this.#delete(key);
    this.#set(key, { claim, cause, service, times });
    while (this.#all.size > this.max || (this.#endpoints > this.maxEndpoints && this.#all.size > 1)) {
      const oldest = this.#all.keys().next();
      if (oldest.done !== true) this.#delete(oldest.value);
    }
  }

  get(claim: ServiceAddress): FormerTarget | undefined {
    const one = this.#all.get(keyOf(claim));
    if (one === undefined) return undefined;
    const { cause, times } = one;
    if (times.some(({ endpoints }) => endpoints === undefined)) return { cause, endpoints: undefined };
    return { cause, endpoints: { has: (endpoint) => times.some((time) => mayHave(time, endpoint)) } };
  }

  claims(family: IpFamily): ServiceAddress[] {
    const found: ServiceAddress[] = [];
    for (const { claim } of this.#all.values()) if (claim.family === family) found.push(claim);
    return found;
  }

  /** Returns the remembered claims of these services. */
  claimsOf(family: IpFamily, services: Iterable<string>): ServiceAddress[] {
    const found: ServiceAddress[] = [];
    if (this.#all.size === 0) return found;
    for (const service of services) {
      for (const key of this.#byService.get(`${family} ${service}`) ?? []) {
        const claim = this.#all.get(key)?.claim;
        if (claim !== undefined) found.push(claim);
      }
    }
    return found;
  }

  /** A pass met this entry, which may be of a remembered VIP or node port. */
  meet({ family, original, reply }: Pick<ConntrackEntry, "family" | "original" | "reply">): void {
    const protocol = serviceProtocol(original.protocol);
    if (protocol === undefined) return;
    const endpoint = `${reply.source} ${reply.sourcePort}`;
    for (const address of [original.destination, NODE_PORT]) {
      const key = keyOf({ family, address, protocol, port: original.destinationPort });
      for (const time of this.#all.get(key)?.times ?? []) time.seen ||= mayHave(time, endpoint);
    }
  }

  /**
   * A pass that examined every entry of `claims` is complete. Claims without entries in this pass and the previous one
   * are forgotten.
   */
  passed(claims: readonly ServiceAddress[]): void {
    for (const claim of claims) {
      const key = keyOf(claim);
      const one = this.#all.get(key);
      if (one === undefined) continue;
      for (const time of one.times) {
        time.quiet = time.seen ? 0 : time.quiet + 1;
        time.seen = false;
      }
      const times = one.times.filter(({ quiet }) => quiet < QUIET_PASSES);
      if (times.length === 0) this.#delete(key);
      // Keep its place in the order, because it has not been given up again.
      else this.#set(key, { ...one, times });
    }
  }

  #set(key: AddressKey, one: Remembered): void {
    const before = this.#all.get(key);
    this.#endpoints += endpointsOf(one) - (before === undefined ? 0 : endpointsOf(before));
    this.#all.set(key, one);
    const of = `${one.claim.family} ${one.service}`;
    const own = this.#byService.get(of);
    if (own === undefined) this.#byService.set(of, new Set([key]));
    else own.add(key);
  }

  #delete(key: AddressKey): void {
    const one = this.#all.get(key);
    if (one === undefined) return;
    this.#all.delete(key);
    this.#endpoints -= endpointsOf(one);
    const of = `${one.claim.family} ${one.service}`;
    const own = this.#byService.get(of);
    own?.delete(key);
    if (own?.size === 0) this.#byService.delete(of);
  }
}

function endpointsOf({ times }: Remembered): number {
  return times.reduce((sum, { endpoints }) => sum + (endpoints?.size ?? 0), 0);
}

function mayHave({ endpoints }: Time, endpoint: string): boolean {
  return endpoints === undefined || endpoints.has(endpoint);
}

function equal(a: Time["endpoints"], b: Time["endpoints"]): boolean {
  return a === b || (a !== undefined && b !== undefined && a.size === b.size && [...a].every((one) => b.has(one)));
}
