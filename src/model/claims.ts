/**
 * Who may serve what: (address, protocol, port) and (node port, protocol) of one family. Of several services that claim
 * the same, the first with a usable endpoint has it, else the first: an older service without endpoints must not shadow
 * a younger one that has some, as in blue/green moves.
 *
 * First is by creation time, then by name. A service that does not say when it was created comes after all that do, so
 * that adding one never takes an address from a service that is known to be older; and after those like it that had
 * the claim when the last group of changes was over (`settle`): a file whose name sorts first takes nothing.
 */
import { type AddressKey, addressOf, keyOf, NODE_PORT, type ServiceAddress } from "./service-address.js";
import type { FamilyRecord, ServicePortRecord, ServiceRecord } from "../objects/records.js";
import type { IpFamily } from "../base/ip.js";
import type { Protocol } from "../base/protocols.js";

/** Why a service does not have what it claims. */
export type LossReason = "first" | "name" | "endpoints";

/** What a service claims and another one has. */
export interface Loss {
  /** The service that has it. */
  readonly holder: string;
  /** The holder was there first; its name sorts first; it has a usable endpoint, and this service has none. */
  readonly reason: LossReason;
  /** New with the last `settle`. */
  readonly fresh: boolean;
}

/** How a claim with several claimants passed from `from` to another one. */
export interface Passed {
  /** "namespace/name". */
  readonly to: string;
  /** `from` claims it no longer; has no usable endpoint; comes after `to`. */
  readonly reason: "released" | "endpoints" | "first";
}

export interface ClaimsOptions {
  /** Called for every service that a change may have won something for or cost something. */
  affected(service: string): void;
  /** Whether a service port has a usable endpoint on any node, so that all nodes decide the same. */
  usable(record: ServiceRecord, port: ServicePortRecord): boolean;
  /** The service's record as of the last `settle`. */
  settled(service: string): ServiceRecord | undefined;
  /** What is given up is remembered until `takeGivenUp`. */
  readonly keepGivenUp: boolean;
}

interface Claimant {
  record: ServiceRecord;
  port: ServicePortRecord;
  /** How often `settle` had been called when it came; ALONE: it had the claim alone at a `settle`. */
  readonly since: number;
  /** As of the last change of its record or its endpoints: thousands may claim one address, and to look costs more than all else. */
  usable: boolean;
  /** Its place in the order of precedence, while the contest is `ordered`. */
  place: number;
}

/** A claim of several. */
interface Contest {
  /** In order of precedence, at least two. */
  readonly claimants: Claimant[];
  readonly byService: Map<string, Claimant>;
  /** How many of them are usable. */
  usable: number;
  /** Claimants know their places. */
  ordered: boolean;
  holder: Claimant;
  /** How often `settle` had been called when the second claimant came. */
  readonly since: number;
}

const ALONE = -1;

/** What `record` claims in a family, each once. */
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

/** Ports by protocol and number, and by protocol and node port: of records with so many that a search for each would be slow. */
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

/** The service port with this protocol and number; undefined when the record has none. */
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

/** The port by which `record` claims `key`; undefined when it does not. */
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

/** Whether a new claimant has precedence over one that is there. */
function precedes({ record, since }: Claimant, { record: other, since: before }: Claimant): boolean {
  if (record.created !== other.created) return record.created < other.created;
  return !(before < since && other.created === Infinity) && record.name < other.name;
}

/** Of those that are there, the first that the new claimant has precedence over: all behind it are so, too. */
function placeFor(claimant: Claimant, claimants: readonly Claimant[]): number {
  let [from, to] = [0, claimants.length];
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (precedes(claimant, claimants[middle])) to = middle;
    else from = middle + 1;
  }
  return from;
}

/** By the very record; undefined: it is no claimant, or was one with another record. */
function claimantOf({ byService }: Contest, record: ServiceRecord): Claimant | undefined {
  const claimant = byService.get(record.name);
  return claimant?.record === record ? claimant : undefined;
}

function isBehind(contest: Contest, claimant: Claimant, other: Claimant): boolean {
  if (!contest.ordered) for (const [place, one] of contest.claimants.entries()) one.place = place;
  contest.ordered = true;
  return claimant.place > other.place;
}

export class Claims {
  readonly #family: IpFamily;
  readonly #options: ClaimsOptions;
  /** One claimant as it is. */
  readonly #claimants = new Map<AddressKey, ServiceRecord | Contest>();
  /** By key: the record that gave it up last, and no service has it since. Undefined: not tracked. */
  readonly #givenUp: Map<AddressKey, ServiceRecord> | undefined;
  #contested = 0;
  /** How many claims each service shares with others; those that share none are not here. */
  readonly #rivals = new Map<string, number>();
  /** By key of what has passed since the last `settle`: who had it then. */
  #passed = new Map<AddressKey, string>();
  /** How often `settle` was called. */
  #settles = 0;

  constructor(family: IpFamily, options: ClaimsOptions) {
    this.#family = family;
    this.#options = options;
    this.#givenUp = options.keepGivenUp ? new Map() : undefined;
  }

  /** Whether anything at all has two claimants. */
  get contested(): boolean {
    return this.#contested > 0;
  }

  /** Services that have a claim which another one has too. */
  rivals(): Iterable<string> {
    return this.#rivals.keys();
  }

  /** Whether the service has a claim that another one has too. */
  hasRivals(service: string): boolean {
    return this.#rivals.has(service);
  }

  /** `before` is the very object that was put last for the service; each undefined: it claims nothing. */
  put(before: ServiceRecord | undefined, after: ServiceRecord | undefined): void {
    const family = this.#family;
    if (before !== undefined && after !== undefined && before.created === after.created) {
      return this.#change(before, after);
    }
    if (before !== undefined) forEachClaim(before, family, (key) => this.#remove(key, before));
    if (after !== undefined) forEachClaim(after, family, (key, port) => this.#add(key, after, port));
  }

  /** Usable endpoints of the service may have come or gone. */
  endpointsChanged(record: ServiceRecord): void {
    if (!this.hasRivals(record.name)) return;
    forEachClaim(record, this.#family, (key) => {
      const entry = this.#claimants.get(key);
      const claimant = isContest(entry) ? claimantOf(entry, record) : undefined;
      if (!isContest(entry) || claimant === undefined) return;
      this.#look(entry, claimant);
      this.#decide(key, entry);
    });
  }

  /** The service that has the claim; undefined when none has. */
  owner(address: ServiceAddress): string | undefined {
    return this.#owner(keyOf(address))?.name;
  }

  /** Why `record` does not have what it claims; undefined when it has it. */
  loss(record: ServiceRecord, address: ServiceAddress): Loss | undefined {
    const contest = this.#contest(record, address);
    const mine = contest && claimantOf(contest, record);
    if (contest === undefined || mine === undefined || contest.holder === mine) return undefined;
    const { holder } = contest;
    const fresh = Math.max(contest.since, mine.since) === this.#settles - 1;
    const reason = isBehind(contest, holder, mine) ? "endpoints" : isTie(holder, mine) ? "name" : "first";
    return { holder: holder.record.name, reason, fresh };
  }

  /** What the other claimants are in this family; none when it is not contested. */
  others(record: ServiceRecord, address: ServiceAddress): readonly FamilyRecord[] {
    const { claimants } = this.#contest(record, address) ?? { claimants: [] };
    return claimants.flatMap((other) => (other.record === record ? [] : (other.record[this.#family] ?? [])));
  }

  /**
   * A group of changes is over: those who have their claims now had them first. Returns what may have passed since the last call, and who had
   * it then: for `passed`. Of tens of thousands it takes no longer.
   */
  settle(): ReadonlyMap<AddressKey, string> {
    const passed = this.#passed;
    this.#passed = new Map();
    this.#settles++;
    return passed;
  }

  /** What became of a claim that `from` had, as of the last `settle`; undefined: `from` has it again, or no service has. */
  passed(claim: AddressKey, from: string): Passed | undefined {
    const entry = this.#claimants.get(claim);
    const holder = isContest(entry) ? entry.holder.record : entry;
    // Where it has passed again since: who had it in between.
    const to = this.#passed.get(claim) ?? holder?.name;
    return to === undefined || to === from ? undefined : { to, reason: whyPassed(entry, from) };
  }

  /** What was given up since the last call, and no service has taken since. */
  takeGivenUp(): [address: ServiceAddress, by: ServiceRecord][] {
    if (this.#givenUp === undefined) return [];
    const taken = Array.from(this.#givenUp, ([key, record]): [ServiceAddress, ServiceRecord] => [
      addressOf(key),
      record,
    ]);
    this.#givenUp.clear();
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
      this.#givenUp?.delete(key);
      return;
    }
    if (isContest(present) ? present.byService.has(record.name) : present === record) return;
    const contest = isContest(present) ? present : this.#open(key, present);
    const { claimants } = contest;
    const claimant: Claimant = { record, port, since: this.#settles, usable: false, place: 0 };
    this.#look(contest, claimant);
    claimants.splice(placeFor(claimant, claimants), 0, claimant);
    contest.byService.set(record.name, claimant);
    contest.ordered = false;
    this.#countRival(record.name, 1);
    this.#decide(key, contest);
    this.#guardsChanged(contest, record);
  }

  /** What the service goes on claiming keeps its place. */
  #change(before: ServiceRecord, after: ServiceRecord): void {
    const had = keysOf(before, this.#family);
    const has = keysOf(after, this.#family);
    for (const key of had) if (!has.has(key)) this.#remove(key, before);
    forEachClaim(after, this.#family, (key, port) => {
      if (had.has(key)) this.#replace(key, before, after, port);
      else this.#add(key, after, port);
    });
  }

  /** `present` gets company. */
  #open(key: AddressKey, present: ServiceRecord): Contest {
    const port = claimedPort(present, this.#family, key) as ServicePortRecord;
    const had = claimedPort(this.#options.settled(present.name), this.#family, key) !== undefined;
    const since = this.#settles;
    const holder: Claimant = { record: present, port, since: had ? ALONE : since, usable: false, place: 0 };
    const byService = new Map([[present.name, holder]]);
    const contest: Contest = { claimants: [holder], byService, usable: 0, ordered: true, holder, since };
    this.#look(contest, holder);
    this.#claimants.set(key, contest);
    this.#contested++;
    this.#countRival(present.name, 1);
    return contest;
  }

  /** The same service's claim, as its new record has it. */
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
    this.#look(entry, claimant);
    this.#decide(key, entry);
    this.#guardsChanged(entry, before);
    this.#guardsChanged(entry, after);
  }

  #remove(key: AddressKey, record: ServiceRecord): void {
    const entry = this.#claimants.get(key);
    if (!isContest(entry)) {
      if (entry !== record) return;
      this.#claimants.delete(key);
      this.#givenUp?.set(key, record);
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

  /** Asks whether it is usable as it is. */
  #look(contest: Contest, claimant: Claimant): void {
    const usable = this.#options.usable(claimant.record, claimant.port);
    contest.usable += Number(usable) - Number(claimant.usable);
    claimant.usable = usable;
  }

  /** Finds out who has it now. */
  #decide(key: AddressKey, contest: Contest): void {
    const { claimants, holder: before } = contest;
    const [first] = claimants;
    const holder = contest.usable === 0 ? first : (claimants.find(({ usable }) => usable) ?? first);
    contest.holder = holder;
    if (holder === before) return;
    this.#options.affected(before.record.name);
    this.#options.affected(holder.record.name);
    // The first time since the last `settle`: it was the holder then.
    if (contest.since < this.#settles && !this.#passed.has(key)) this.#passed.set(key, before.record.name);
  }

  /** Source ranges of any claimant guard the address: they are the holder's to write. */
  #guardsChanged({ holder }: Contest, record: ServiceRecord): void {
    if (record[this.#family]?.sourceRanges !== undefined) this.#options.affected(holder.record.name);
  }

  #countRival(service: string, by: 1 | -1): void {
    const count = (this.#rivals.get(service) ?? 0) + by;
    if (count === 0) this.#rivals.delete(service);
    else this.#rivals.set(service, count);
  }
}

/** @param entry who has the claim by now, or claims it. */
function whyPassed(entry: ServiceRecord | Contest | undefined, from: string): Passed["reason"] {
  const former = isContest(entry) ? entry.byService.get(from) : undefined;
  if (former === undefined) return "released";
  return former.usable ? "first" : "endpoints";
}

/** Nothing but their names decided which of two comes first. */
function isTie(a: Claimant, b: Claimant): boolean {
  return a.record.created === b.record.created && (a.record.created < Infinity || a.since === b.since);
}
