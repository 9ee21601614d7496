/** The sets of ipset, as rules of iptables read them. Answers are cached. */
import { IpsetTable } from "../../../netlink/ipset-table.js";
import type { Ternary } from "../machine/bits.js";
import { Kept } from "./kept.js";
import type { RoutedKernel } from "./routing.js";

export class IpSets {
  readonly #table: IpsetTable | undefined;
  readonly #kept = new Kept();

  constructor({ connection }: Pick<RoutedKernel, "connection">) {
    this.#table = connection && new IpsetTable(connection);
  }

  /** Whether a set has the address. Undefined if that cannot be known. Never rejects. */
  has(set: number, address: Uint8Array): Promise<Ternary> {
    return this.#kept.get(`${set} ${Buffer.from(address).toString("hex")}`, async () => {
      return this.#table?.hasAddress(set, address).catch(() => undefined);
    });
  }
}
