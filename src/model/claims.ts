/**
 * Decides which service may serve a VIP and port or a node port of one family. If several services claim it, the first one
 * with a usable endpoint has it, or else the first one. An older service without endpoints must not shadow a younger one
 * that has some, as in blue/green moves.
 *
 * First means by creation time, then by name. A service without a creation time comes after all services with one, so that
 * it never takes an address from a service known to be older. It also comes after other such services that already had the
 * claim at the last `endRound`, so that a new file takes nothing only because its name sorts first.
 */
import { type AddressKey, addressOf, keyOf, NODE_PORT, type ServiceAddress } from "./service-address.js";
import type { FamilyRecord, ServicePortRecord, ServiceRecord } from "../objects/records.js";
import type { IpFamily } from "../base/ip.js";
import type { Protocol } from "../base/protocols.js";

/** Why a service does not have an address that it claims. */
type LossReason = "first" | "name" | "endpoints";

/** A claim of a service whose address another service has. */
export interface Loss {
  /** The service that has the address. */
  readonly holder: string;
  /** "first": the holder was first. "name": its name sorts first. "endpoints": only the holder has a usable endpoint. */
  readonly reason: LossReason;
  /** The loss is new since the last `endRound`. */
  readonly fresh: boolean;
}

/** How an address with several claimants passed from one of them to another. */
export interface Passed {
  /** The new holder, "namespace/name". */
  readonly to: string;
  /** "withdrawn": the former holder no longer claims the address. "endpoints": it has no usable endpoint. "first": it comes after `to`. */
  readonly reason: "withdrawn" | "endpoints" | "first";
}

interface ClaimsOptions {
  /** Called for every service that may have won or lost an address because of a change. */
  affected(service: string): void;
  /** Whether a service port has a usable endpoint on any node, so that all nodes decide the same. */
  usable(record: ServiceRecord, port: ServicePortRecord): boolean;
  /** The service's record as of the last `endRound`. */
  ofLastRound(service: string): ServiceRecord | undefined;
  /** Whether to keep addresses that no service has any more until `takeUnclaimed`. */
  readonly keepUnclaimed: boolean;
  /** Called for each address that a service had and has lost, whether or not another service has it now. */
  lost?(address: AddressKey): void;
}

interface Claimant {
  record: ServiceRecord;
  port: ServicePortRecord;
  /** Number of `endRound` calls before the claimant came, or ALONE if it was the only claimant at an `endRound`. */
  readonly since: number;
  /** As of its record's or endpoints' last change. It is cached, because thousands may claim one address, and the check is expensive. */
  usable: boolean;
  /** Index in the order of precedence. Valid only while the contest is `ordered`. */
  place: number;
}

/** An address that several services claim. */
interface Contest {
  /** In order of precedence, at least two. */
  readonly claimants: Claimant[];
  readonly byService: Map<string, Claimant>;
  /** Number of usable claimants. */
  usable: number;
  /** Whether the claimants' `place` is valid. */
  ordered: boolean;
  holder: Claimant;
  /** Number of `endRound` calls before the second claimant came. */
  readonly since: number;
}

const ALONE = -1;

/** Visits all claims of `record` in a family. */
function forEachClaim(
  record: ServiceRecord,
  family: IpFamily,
  visit: (key: AddressKey, port: ServicePortRecord) => void,
): void {
  const addresses = record[family];
  if (addresses === undefined) return;
  const { clusterIP, externalIPs, loadBalancerIPs } = addresses;
  for (let i = 0; i < record.ports.length; i++) {
    const item = record.ports[i];
    const { protocol, port, nodePort } = item;
    visit(keyOf({ family, address: clusterIP, protocol, port }), item);
    for (let j = 0; j < externalIPs.length; j++)
      visit(keyOf({ family, address: externalIPs[j], protocol, port }), item);
    for (let j = 0; j < loadBalancerIPs.length; j++)
      visit(keyOf({ family, address: loadBalancerIPs[j], protocol, port }), item);
    if (nodePort !== 0) visit(keyOf({ family, address: NODE_PORT, protocol, port: nodePort }), item);
  }
}

function keysOf(record: ServiceRecord, family: IpFamily): Set<AddressKey> {
  const keys = new Set<AddressKey>();
  forEachClaim(record, family, (key) => keys.add(key));
  return keys;
}

/** Index of a record's ports, by protocol and number and by protocol and node port. Records with few ports are searched instead. */
interface PortIndex {
  readonly ports: ReadonlyMap<string, ServicePortRecord>;
  readonly nodePorts: ReadonlyMap<string, ServicePortRecord>;
}

const INDEXED_PORTS = 16;
const portIndices = new WeakMap<ServiceRecord, PortIndex>();

function indexOf(record: ServiceRecord): PortIndex {
  let index = portIndices.get(record);
  if (index !== undefined) return index;
  index = {
    ports: new Map(record.ports.map((item) => [`${item.port} ${item.protocol}`, item])),
    nodePorts: new Map(record.ports.map((item) => [`${item.nodePort} ${item.protocol}`, item])),
  };
  portIndices.set(record, index);
  return index;
}

/** Returns the service port with this protocol and number, or undefined if the record has none. */
export function portOf(
  record: ServiceRecord,
  protocol: Protocol,
  port: number,
  by: "port" | "nodePort",
): ServicePortRecord | undefined {
  if (record.ports.length <= INDEXED_PORTS)
    return record.ports.find((item) => item.protocol === protocol && item[by] === port);
  return indexOf(record)[by === "port" ? "ports" : "nodePorts"].get(`${port} ${protocol}`);
}

/** Returns the service port through which `record` claims `key`, or undefined if it does not claim it. */
function claimedPort(
  record: ServiceRecord | undefined,
  family: IpFamily,
  key: AddressKey,
): ServicePortRecord | undefined {
  const addresses = record?.[family];
  if (record === undefined || addresses === undefined) return undefined;
  const { address, protocol, port } = addressOf(key);
  if (address === NODE_PORT) return portOf(record, protocol, port, "nodePort");
  const { clusterIP, externalIPs, loadBalancerIPs } = addresses;
  const isClaimed = address === clusterIP || externalIPs.includes(address) || loadBalancerIPs.includes(address);
  return isClaimed ? portOf(record, protocol, port, "port") : undefined;
}

function isContest(entry: ServiceRecord | Contest | undefined): entry is Contest {
  return entry !== undefined && "claimants" in entry;
}

/** Whether a new claimant has precedence over an existing one. */
function precedes({ record, since }: Claimant, { record: other, since: before }: Claimant): boolean {
  if (record.created !== other.created) return record.created < other.created;
  return !(before < since && other.created === Infinity) && record.name < other.name;
}

/** Returns the index of the first claimant over which the new one has precedence, as it then has over all later ones. */
function placeFor(claimant: Claimant, claimants: readonly Claimant[]): number {
  let [from, to] = [0, claimants.length];
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (precedes(claimant, claimants[middle])) to = middle;
    else from = middle + 1;
  }
  return from;
}

/** Returns the claimant that has exactly this record, or undefined if there is none. */
function claimantOf({ byService }: Contest, record: ServiceRecord): Claimant | undefined {
  const claimant = byService.get(record.name);
  return claimant?.record === record ? claimant : undefined;
}

function comesAfter(contest: Contest, claimant: Claimant, other: Claimant): boolean {
  if (!contest.ordered) for (const [place, one] of contest.claimants.entries()) one.place = place;
  contest.ordered = true;
  return claimant.place > other.place;
}

export class Claims {
  /** A single claimant is its record itself. */
  readonly #claimants = new Map<AddressKey, ServiceRecord | Contest>();
  /** Records by address: the last one that had the address. Only of addresses that no service has any more. Undefined if not tracked. */
  readonly #unclaimed: Map<AddressKey, ServiceRecord> | undefined;
  #contested = 0;
  /** Number of claims that each service shares with others. Services that share none are absent. */
  readonly #rivals = new Map<string, number>();
  /** Services by address: the one that had it at the last `endRound`. Only of addresses that have passed since. */
  #passed = new Map<AddressKey, string>();
  /** Number of `endRound` calls. */
  #rounds = 0;

  constructor(
    private readonly family: IpFamily,
    private readonly options: ClaimsOptions,
  ) {
    this.#unclaimed = options.keepUnclaimed ? new Map() : undefined;
  }

  /** Whether any address has several claimants. */
  get contested(): boolean {
    return this.#contested > 0;
  }

  /** Returns the services that share a claim with another one. */
  rivals(): Iterable<string> {
    return this.#rivals.keys();
  }

  /** Whether the service shares a claim with another one. */
  hasRivals(service: string): boolean {
    return this.#rivals.has(service);
  }

  /** `before` must be the same object as in the last call for the service. Each is undefined if the service claims nothing. */
  put(before: ServiceRecord | undefined, after: ServiceRecord | undefined): void {
    const family = this.family;
    if (before !== undefined && after !== undefined && before.created === after.created) {
      return this.#change(before, after);
    }
    if (before !== undefined) forEachClaim(before, family, (key) => this.#remove(key, before));
    if (after !== undefined) forEachClaim(after, family, (key, port) => this.#add(key, after, port));
  }

  /** Call this if usable endpoints of the service may have come or gone. */
  endpointsChanged(record: ServiceRecord): void {
    if (!this.hasRivals(record.name)) return;
    forEachClaim(record, this.family, (key) => {
      const entry = this.#claimants.get(key);
      const claimant = isContest(entry) ? claimantOf(entry, record) : undefined;
      if (!isContest(entry) || claimant === undefined) return;
      this.#updateUsable(entry, claimant);
      this.#decide(key, entry);
    });
  }

  /** Returns the service that has the address, or undefined if none has it. */
  owner(address: ServiceAddress): string | undefined {
    return this.#owner(keyOf(address))?.name;
  }

  /** Returns why `record` does not have an address that it claims, or undefined if it has it. */
  loss(record: ServiceRecord, address: ServiceAddress): Loss | undefined {
    const contest = this.#contest(record, address);
    const mine = contest && claimantOf(contest, record);
    if (contest === undefined || mine === undefined || contest.holder === mine) return undefined;
    const { holder } = contest;
    const fresh = Math.max(contest.since, mine.since) === this.#rounds - 1;
    const reason = comesAfter(contest, holder, mine) ? "endpoints" : isTie(holder, mine) ? "name" : "first";
    return { holder: holder.record.name, reason, fresh };
  }

  /** Returns the other claimants' records in this family, or none if the address is not contested. */
  others(record: ServiceRecord, address: ServiceAddress): readonly FamilyRecord[] {
    const { claimants } = this.#contest(record, address) ?? { claimants: [] };
    return claimants.flatMap((other) => (other.record === record ? [] : (other.record[this.family] ?? [])));
  }

  /**
   * Ends a group of changes: current claimants come before later ones. Returns the addresses that may have passed since the last call, and their
   * holders at that time, for `passed`. Takes no longer for tens of thousands of addresses.
   */
  endRound(): ReadonlyMap<AddressKey, string> {
    const passed = this.#passed;
    this.#passed = new Map();
    this.#rounds++;
    return passed;
  }

  /** Returns how `from` lost an address that it had, as of the last `endRound`, or undefined if `from` has it again or no service has it. */
  passed(claim: AddressKey, from: string): Passed | undefined {
    const entry = this.#claimants.get(claim);
    const holder = isContest(entry) ? entry.holder.record : entry;
    // If the address has passed again since, use its holder in between.
    const to = this.#passed.get(claim) ?? holder?.name;
    return to === undefined || to === from ? undefined : { to, reason: whyPassed(entry, from) };
  }

  /** Returns the addresses that lost their last claim since the last call. */
  takeUnclaimed(): [address: ServiceAddress, by: ServiceRecord][] {
    if (this.#unclaimed === undefined) return [];
    const taken = Array.from(this.#unclaimed, ([key, record]): [ServiceAddress, ServiceRecord] => [
      addressOf(key),
      record,
    ]);
    this.#unclaimed.clear();
    return taken;
  }

  #owner(key: AddressKey): ServiceRecord | undefined {
    const entry = this.#claimants.get(key);
    return isContest(entry) ? entry.holder.record : entry;
  }

  #contest(record: ServiceRecord, address: ServiceAddress): Contest | undefined {
    if (this.#contested === 0 || !this.hasRivals(record.name)) return undefined;
    const entry = this.#claimants.get(keyOf(address));
    return isContest(entry) ? entry : undefined;
  }

  #add(key: AddressKey, record: ServiceRecord, port: ServicePortRecord): void {
    const present = this.#claimants.get(key);
    if (present === undefined) {
      this.#claimants.set(key, record);
      this.#unclaimed?.delete(key);
      return;
    }
    if (isContest(present) ? present.byService.has(record.name) : present === record) return;
    const contest = isContest(present) ? present : this.#open(key, present);
    const { claimants } = contest;
    const claimant: Claimant = { record, port, since: this.#rounds, usable: false, place: 0 };
    this.#updateUsable(contest, claimant);
    claimants.splice(placeFor(claimant, claimants), 0, claimant);
    contest.byService.set(record.name, claimant);
    contest.ordered = false;
    this.#countRival(record.name, 1);
    this.#decide(key, contest);
    this.#guardsChanged(contest, record);
  }

  /** Claims in both records keep their place. */
  #change(before: ServiceRecord, after: ServiceRecord): void {
    const had = keysOf(before, this.family);
    const has = keysOf(after, this.family);
    for (const key of had) if (!has.has(key)) this.#remove(key, before);
    forEachClaim(after, this.family, (key, port) => {
      if (had.has(key)) this.#replace(key, before, after, port);
      else this.#add(key, after, port);
    });
  }

  /** Starts a contest before a second claimant is added to `present`. */
  #open(key: AddressKey, present: ServiceRecord): Contest {
    const port = claimedPort(present, this.family, key) as ServicePortRecord;
    const had = claimedPort(this.options.ofLastRound(present.name), this.family, key) !== undefined;
    const since = this.#rounds;
    const holder: Claimant = { record: present, port, since: had ? ALONE : since, usable: false, place: 0 };
    const byService = new Map([[present.name, holder]]);
    const contest: Contest = { claimants: [holder], byService, usable: 0, ordered: true, holder, since };
    this.#updateUsable(contest, holder);
    this.#claimants.set(key, contest);
    this.#contested++;
    this.#countRival(present.name, 1);
    return contest;
  }

  /** Replaces the record of a service's claim by its new one. */
  #replace(key: AddressKey, before: ServiceRecord, after: ServiceRecord, port: ServicePortRecord): void {
    const entry = this.#claimants.get(key);
    if (!isContest(entry)) {
      if (entry === before) this.#claimants.set(key, after);
      return;
    }
    const claimant = claimantOf(entry, before);
    if (claimant === undefined) return;
    claimant.record = after;
    claimant.port = port;
    this.#updateUsable(entry, claimant);
    this.#decide(key, entry);
    this.#guardsChanged(entry, before);
    this.#guardsChanged(entry, after);
  }

  #remove(key: AddressKey, record: ServiceRecord): void {
    const entry = this.#claimants.get(key);
    if (!isContest(entry)) {
      if (entry !== record) return;
      this.#claimants.delete(key);
      this.#unclaimed?.set(key, record);
      this.options.lost?.(key);
      return;
    }
    const { claimants } = entry;
    const claimant = claimantOf(entry, record);
    if (claimant === undefined) return;
    claimants.splice(claimants.indexOf(claimant), 1);
    entry.byService.delete(record.name);
    entry.usable -= Number(claimant.usable);
    entry.ordered = false;
    this.#countRival(record.name, -1);
    this.#decide(key, entry);
    this.#guardsChanged(entry, record);
    const [only] = claimants;
    if (claimants.length > 1) return;
    this.#contested--;
    this.#countRival(only.record.name, -1);
    this.#claimants.set(key, only.record);
  }

  /** Updates whether the claimant is usable. */
  #updateUsable(contest: Contest, claimant: Claimant): void {
    const usable = this.options.usable(claimant.record, claimant.port);
    contest.usable += Number(usable) - Number(claimant.usable);
    claimant.usable = usable;
  }

  /** Determines the current holder. */
  #decide(key: AddressKey, contest: Contest): void {
    const { claimants, holder: before } = contest;
    const [first] = claimants;
    const holder = contest.usable === 0 ? first : (claimants.find(({ usable }) => usable) ?? first);
    contest.holder = holder;
    if (holder === before) return;
    this.options.lost?.(key);
    this.options.affected(before.record.name);
    this.options.affected(holder.record.name);
    // This is the first change since the last `endRound`, so `before` was the holder then.
    if (contest.since < this.#rounds && !this.#passed.has(key)) this.#passed.set(key, before.record.name);
  }

  /** Source ranges of all claimants guard the address, and are written with the holder's rules. */
  #guardsChanged({ holder }: Contest, record: ServiceRecord): void {
    if (record[this.family]?.sourceRanges !== undefined) this.options.affected(holder.record.name);
  }

  #countRival(service: string, by: 1 | -1): void {
    const count = (this.#rivals.get(service) ?? 0) + by;
    if (count === 0) this.#rivals.delete(service);
    else this.#rivals.set(service, count);
  }
}

/** @param entry the current claimants. */
function whyPassed(entry: ServiceRecord | Contest | undefined, from: string): Passed["reason"] {
  const former = isContest(entry) ? entry.byService.get(from) : undefined;
  if (former === undefined) return "withdrawn";
  return former.usable ? "first" : "endpoints";
}

/** Whether only the names decide which of two claimants comes first. */
function isTie(a: Claimant, b: Claimant): boolean {
  return a.record.created === b.record.created && (a.record.created < Infinity || a.since === b.since);
}
