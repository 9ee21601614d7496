/** The kernel's ruleset, read on demand: every table's base chains, rules and sets. */
import type { IpFamily } from "../../../base/ip.js";
import { TableFlag } from "../../../nft/kernel/constants.js";
import type { Family, Kernel, RuleInfo, SetDump, TableRef } from "../../../nft/kernel/kernel.js";
import type { ListedSet } from "../../../nft/engine-exports.js";
import { Elements } from "../machine/elements.js";
import { type HookedChain, pointOf } from "../machine/hooks.js";
import type { Rules } from "../machine/machine-world.js";
import { Kept } from "./kept.js";

/** The ruleset for packets of one family. Each part is read once and reflects the time of that read. */
export class Ruleset implements Rules {
  readonly #kept = new Kept();
  /** By table. */
  readonly #sets = new Map<string, ReadonlyMap<string, SetDump>>();

  /** @param isMet whether packets meet a rule. By default, they meet all. */
  constructor(
    private readonly kernel: Kernel,
    private readonly family: IpFamily,
    private readonly isMet: (rule: RuleInfo) => boolean = () => true,
  ) {}

  hooked(): Promise<readonly HookedChain[]> {
    return this.#kept.get("hooked", () => this.#readHooked());
  }

  async rules({ family, table }: TableRef, chain: string): Promise<readonly RuleInfo[]> {
    const read = async (): Promise<Partial<Record<string, RuleInfo[]>>> => {
      await this.#setsOf({ family, table });
      return Object.groupBy((await this.kernel.rules({ family, table })).filter(this.isMet), (rule) => rule.chain);
    };
    return (await this.#kept.get(`rules ${family} ${table}`, read))[chain] ?? [];
  }

  async set(ref: TableRef, name: string): Promise<SetDump | undefined> {
    return (await this.#setsOf(ref)).get(name);
  }

  /** A set of a table whose rules were read, for the text of rules. Elements of anonymous sets are not read for it. */
  knownSet({ family, table }: TableRef, name: string): ListedSet | undefined {
    const info = this.#sets.get(`${family} ${table}`)?.get(name);
    return info && { info };
  }

  #setsOf({ family, table }: TableRef): Promise<ReadonlyMap<string, SetDump>> {
    return this.#kept.get(`sets ${family} ${table}`, async () => {
      const sets = new Map((await this.kernel.sets({ family, table })).map((set) => [set.set, set]));
      this.#sets.set(`${family} ${table}`, sets);
      return sets;
    });
  }

  elements(ref: TableRef, set: SetDump): Promise<Elements> {
    return this.#kept.get(`elements ${ref.family} ${ref.table} ${set.set}`, async () => {
      return new Elements(set, await this.kernel.elements(ref, set));
    });
  }

  async #readHooked(): Promise<readonly HookedChain[]> {
    const families: readonly Family[] = [this.family, "inet", "netdev", "bridge"];
    const found: HookedChain[] = [];
    for (const { family, table, flags } of await this.kernel.tables()) {
      // Chains of a dormant table are not registered.
      if (!families.includes(family) || (flags & TableFlag.dormant) !== 0) continue;
      const ref = { family, table };
      for (const { chain, base } of await this.kernel.chains(ref)) {
        if (base !== undefined) found.push({ ref, chain, base, point: pointOf(family, base.hook) });
      }
    }
    return found;
  }
}
