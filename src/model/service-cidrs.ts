/** The networks of the ClusterIPs, from the ServiceCIDR objects. */
import { isDeepStrictEqual } from "node:util";
import { type IpFamily, mergePrefixes, type Prefix } from "../base/ip.js";

const NONE: readonly string[] = Object.freeze([]);

export class ServiceCIDRs {
  readonly #byName = new Map<string, readonly Prefix[]>();
  #merged: Readonly<Record<IpFamily, readonly string[]>> = { ip: NONE, ip6: NONE };

  /** Networks by family: canonical, sorted, without overlap. */
  get merged(): Readonly<Record<IpFamily, readonly string[]>> {
    return this.#merged;
  }

  /** Returns whether `merged` changed. */
  put(name: string, prefixes: readonly Prefix[]): boolean {
    this.#byName.set(name, prefixes);
    return this.#merge();
  }

  /** Returns whether `merged` changed. */
  delete(name: string): boolean {
    return this.#byName.delete(name) && this.#merge();
  }

  #merge(): boolean {
    const all = [...this.#byName.values()].flat();
    const merge = (family: IpFamily) => mergePrefixes(all.filter((prefix) => prefix.family === family));
    const merged = { ip: merge("ip"), ip6: merge("ip6") };
    if (isDeepStrictEqual(merged, this.#merged)) return false;
    this.#merged = merged;
    return true;
  }
}
