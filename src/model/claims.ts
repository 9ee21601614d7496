/**
 * Who may serve what: (address, protocol, port) and (node port, protocol) of one family. Of several services that claim
 * the same, the first has it: by creation time, then by name. A service that does not say when it was created comes
 * after all that do, so that adding one never takes an address from a service that is known to be older.
 */
import type { ServiceRecord } from "./service-record.js";
import type { IpFamily, Protocol } from "./types.js";

/** Address part of a node port's claim. */
export const NODE_PORT = "";

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
  #contested = 0;

  /** `affected` is told of every service that a change may have won something for or cost something. */
  constructor(family: IpFamily, affected: (service: string) => void) {
    this.#family = family;
    this.#affected = affected;
  }

  /** Whether anything at all has two claimants. */
  get contested(): boolean {
    return this.#contested > 0;
  }

  add(record: ServiceRecord): void {
    this.#forEach(record, (key) => {
      const present = this.#claimants.get(key);
      if (present === undefined) {
        this.#claimants.set(key, record);
        return;
      }
      const list = Array.isArray(present) ? present : [present];
      if (list.length === 1) this.#contested++;
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
        if (present === record) this.#claimants.delete(key);
        return;
      }
      this.#tellThoseBehind(present, record);
      const rest = present.filter((other) => other !== record);
      const [only] = rest;
      if (rest.length === 1 && only !== undefined) {
        this.#contested--;
        this.#claimants.set(key, only);
      } else {
        this.#claimants.set(key, rest);
      }
    });
  }

  /** The name of the service that has the claim before `record`; undefined when `record` has it. */
  holder(record: ServiceRecord, address: string, protocol: Protocol, port: number): string | undefined {
    if (this.#contested === 0) return undefined;
    const present = this.#claimants.get(keyOf(address, protocol, port));
    if (!Array.isArray(present)) return undefined;
    const [first] = present;
    return first === undefined || first === record ? undefined : first.name;
  }

  #tellThoseBehind(list: readonly ServiceRecord[], record: ServiceRecord): void {
    for (const other of list.slice(list.indexOf(record) + 1)) this.#affected(other.name);
  }

  #forEach(record: ServiceRecord, visit: (key: string) => void): void {
    const addresses = record[this.#family];
    if (addresses === undefined) return;
    for (const { protocol, port, nodePort } of record.ports) {
      visit(keyOf(addresses.clusterIP, protocol, port));
      for (const list of [addresses.externalIPs, addresses.loadBalancerIPs]) {
        for (const address of list) visit(keyOf(address, protocol, port));
      }
      if (nodePort !== 0) visit(keyOf(NODE_PORT, protocol, nodePort));
    }
  }
}
