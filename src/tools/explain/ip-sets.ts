/** The sets of ipset, as rules of iptables read them. Answers are cached. */
import { IpsetTable } from "../../netlink/ipset-table.js";
import type { Ternary } from "./bits.js";
import type { RoutedKernel } from "./routing.js";

/** The sets, among the names of sets that a packet changes. */
export const IP_SETS = "ipset";

export class IpSets {
  readonly #table: IpsetTable | undefined;
  readonly #known = new Map<string, Promise<Ternary>>();

  constructor({ connection }: Pick<RoutedKernel, "connection">) {
    this.#table = connection && new IpsetTable(connection);
  }

  /** Whether a set has the address. Undefined if that cannot be known. Never rejects. */
  has(set: number, address: Uint8Array): Promise<Ternary> {
    const key = `${set} ${Buffer.from(address).toString("hex")}`;
    let known = this.#known.get(key);
    if (known === undefined) {
      known = (this.#table?.hasAddress(set, address) ?? Promise.resolve(undefined)).catch(() => undefined);
      this.#known.set(key, known);
    }
    return known;
  }
}
