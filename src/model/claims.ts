/**
 * Who may serve what: (address, protocol, port) and (node port, protocol) of one family. Of several services that claim
 * the same, the first has it: by creation time, then by name. A service that does not say when it was created comes
 * after all that do, so that adding one never takes an address from a service that is known to be older.
 */
import type { ServiceRecord } from "./service-record.js";
import type { IpFamily, Protocol } from "./types.js";

/** Address part of a node port's claim. */
export const NODE_PORT = "";

/** A claim that its last claimant gave up. */
export interface GivenUp {
  readonly address: string;
  readonly protocol: Protocol;
  readonly port: number;
  /** The record that had it. */
  readonly record: ServiceRecord;
}

function keyOf(address: string, protocol: Protocol, port: number): string {
  return `${address} ${protocol} ${port}`;
}

/** Negative when `a` has precedence over `b`. */
function compare(a: ServiceRecord, b: ServiceRecord): number {
  if (a.created !== b.created) return a.created < b.created ? -1 : 1;
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}

export class Claims {
  readonly #family: IpFamily;
  readonly #affected: (service: string) => void;
  /** One claimant as it is; several as an array in order of precedence. */
  readonly #claimants = new Map<string, ServiceRecord | ServiceRecord[]>();
  /** By key: the record that gave it up last, and nobody has it since. Undefined: not wanted. */
  readonly #givenUp: Map<string, ServiceRecord> | undefined;
  #contested = 0;
  /** How many claims each service shares with others; those that share none are not here. */
  readonly #rivals = new Map<string, number>();

  /**
   * `affected` is told of every service that a change may have won something for or cost something. `keepGivenUp`: what
   * is given up is remembered until `takeGivenUp`.
   */
  constructor(family: IpFamily, affected: (service: string) => void, keepGivenUp = false) {
    this.#family = family;
    this.#affected = affected;
    this.#givenUp = keepGivenUp ? new Map() : undefined;
  }

  /** Whether anything at all has two claimants. */
  get contested(): boolean {
    return this.#contested > 0;
  }

  /** Whether the service has a claim that another one has too. */
  hasRivals(service: string): boolean {
    return this.#rivals.has(service);
  }

  add(record: ServiceRecord): void {
    this.#forEach(record, (key) => {
      const present = this.#claimants.get(key);
      if (present === undefined) {
        this.#claimants.set(key, record);
        this.#givenUp?.delete(key);
        return;
      }
      const list = Array.isArray(present) ? present : [present];
      if (list.length === 1) {
        this.#contested++;
        this.#countRival(list[0]?.name, 1);
      }
      this.#countRival(record.name, 1);
      list.push(record);
      list.sort(compare);
      this.#claimants.set(key, list);
      this.#tellThoseBehind(list, record);
    });
  }

  /** `record` is the very object that was added. */
  remove(record: ServiceRecord): void {
    this.#forEach(record, (key) => {
      const present = this.#claimants.get(key);
      if (!Array.isArray(present)) {
        if (present !== record) return;
        this.#claimants.delete(key);
        this.#givenUp?.set(key, record);
        return;
      }
      this.#tellThoseBehind(present, record);
      const rest = present.filter((other) => other !== record);
      this.#countRival(record.name, -1);
      const [only] = rest;
      if (rest.length === 1 && only !== undefined) {
        this.#contested--;
        this.#countRival(only.name, -1);
        this.#claimants.set(key, only);
      } else {
        this.#claimants.set(key, rest);
      }
    });
  }

  /** The service that has the claim; undefined when nobody has. */
  owner(address: string, protocol: Protocol, port: number): string | undefined {
    const present = this.#claimants.get(keyOf(address, protocol, port));
    return Array.isArray(present) ? present[0]?.name : present?.name;
  }

  /** What was given up since the last call, and nobody has taken since. */
  takeGivenUp(): GivenUp[] {
    if (this.#givenUp === undefined) return [];
    const taken = Array.from(this.#givenUp, ([key, record]): GivenUp => {
      const [address = "", protocol, port] = key.split(" ");
      return { address, protocol: protocol as Protocol, port: Number(port), record };
    });
    this.#givenUp.clear();
    return taken;
  }

  /** The name of the service that has the claim before `record`; undefined when `record` has it. */
  holder(record: ServiceRecord, address: string, protocol: Protocol, port: number): string | undefined {
    if (this.#contested === 0) return undefined;
    const present = this.#claimants.get(keyOf(address, protocol, port));
    if (!Array.isArray(present)) return undefined;
    const [first] = present;
    return first === undefined || first === record ? undefined : first.name;
  }

  #countRival(service: string | undefined, by: 1 | -1): void {
    if (service === undefined) return;
    const count = (this.#rivals.get(service) ?? 0) + by;
    if (count === 0) this.#rivals.delete(service);
    else this.#rivals.set(service, count);
  }

  #tellThoseBehind(list: readonly ServiceRecord[], record: ServiceRecord): void {
    for (const other of list.slice(list.indexOf(record) + 1)) this.#affected(other.name);
  }

  #forEach(record: ServiceRecord, visit: (key: string) => void): void {
    const addresses = record[this.#family];
    if (addresses === undefined) return;
    const { clusterIP, externalIPs, loadBalancerIPs } = addresses;
    for (let i = 0; i < record.ports.length; i++) {
      const { protocol, port, nodePort } = record.ports[i];
      visit(keyOf(clusterIP, protocol, port));
      for (let j = 0; j < externalIPs.length; j++) visit(keyOf(externalIPs[j], protocol, port));
      for (let j = 0; j < loadBalancerIPs.length; j++) visit(keyOf(loadBalancerIPs[j], protocol, port));
      if (nodePort !== 0) visit(keyOf(NODE_PORT, protocol, nodePort));
    }
  }
}
