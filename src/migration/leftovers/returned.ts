/**
 * Rules of kube-proxy's that are there again. A kube-proxy in iptables or IPVS mode writes all of them once more when it notices that they are gone:
 * with the next change of a service, or by its canary chain within iptables.syncPeriod (30 s by default). One that ends after nft-proxier has started,
 * as at a change-over of two DaemonSets, so leaves rules that no program changes any more.
 */
import type { Logger } from "../../base/logger.js";
import { reasonOf } from "../../base/unknown.js";
import type { Kernel } from "../../netlink/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { presentTables, type ReadLegacyChains, type ReadLegacyLayout } from "./legacy.js";

/** In nat of every kube-proxy that serves in these modes, and no one else's. */
const SIGN = "KUBE-SERVICES";
/** Between looks, ms: longer than kube-proxy takes to notice. */
const EVERY_MS = 60_000;
/** In so many looks, 5 min, a kube-proxy is taken for one that is about to end; from then on it was started, or kept, on purpose. */
const REMOVING_LOOKS = 5;

export interface ReturnedOptions {
  readonly kernel: Pick<Kernel, "tables" | "chains">;
  readonly log: Logger;
  /** Where /proc is; default "/". */
  readonly root?: string;
  readonly legacyChains?: ReadLegacyChains;
  /** Without it, each look reads such a table whole. */
  readonly legacyLayout?: ReadLegacyLayout;
  /** Removes what there is of the family. Never rejects. */
  readonly remove: (family: IpFamily) => Promise<void>;
  /** Calls back once in so many ms; returns what cancels it. Default setTimeout. */
  readonly later?: (work: () => void, ms: number) => () => void;
}

/** What was found in the older iptables' table nat, and how that looked then. */
interface LegacyLook {
  readonly layout: string | undefined;
  readonly serves: boolean;
}

/**
 * Reads the table, which may have 100,000 entries, only if it looks otherwise than at `last`. One that was replaced by another of the same
 * lengths would pass for the same. Rejects with KernelError.
 */
async function lookAtLegacy(
  { legacyChains, legacyLayout }: Pick<ReturnedOptions, "legacyChains" | "legacyLayout">,
  family: IpFamily,
  last: LegacyLook | undefined,
): Promise<LegacyLook> {
  // Before the chains: what changes in between is seen at the next look.
  const layout = await legacyLayout?.(family, "nat");
  if (last !== undefined && layout !== undefined && layout === last.layout) return last;
  const chains = await legacyChains?.(family, "nat");
  return { layout, serves: chains?.includes(SIGN) === true };
}

/** Where kube-proxy's iptables or IPVS mode serves: "ip nat", "ip nat of the older iptables". Rejects with KernelError. */
async function servingTables(
  options: Omit<ReturnedOptions, "remove">,
  family: IpFamily,
  looks: Map<IpFamily, LegacyLook>,
): Promise<string[]> {
  const { kernel, root = "/", legacyChains } = options;
  const found: string[] = [];
  const nat = { family, table: "nat" };
  if ((await kernel.tables(family)).some(({ table }) => table === nat.table)) {
    if ((await kernel.chains(nat, [SIGN])).length > 0) found.push(`${family} nat`);
  }
  if (legacyChains !== undefined && (await presentTables(family, root)).includes("nat")) {
    const look = await lookAtLegacy(options, family, looks.get(family));
    looks.set(family, look);
    if (look.serves) found.push(`${family} nat of the older iptables`);
  }
  return found;
}

/** Looks once a minute, each family from its removal on: removes what came back at first, and says what is there later. */
export class ReturnedRules {
  readonly #options: ReturnedOptions;
  readonly #later: NonNullable<ReturnedOptions["later"]>;
  readonly #families = new Set<IpFamily>();
  readonly #legacyLooks = new Map<IpFamily, LegacyLook>();
  #found: readonly string[] = [];
  #said = false;
  #looks = 0;
  #work: Promise<void> = Promise.resolve();
  #cancel: (() => void) | undefined;
  #closed = false;

  constructor(options: ReturnedOptions) {
    this.#options = options;
    this.#later = options.later ?? callLater;
  }

  /** The tables that had kube-proxy's rules when they were last looked at, and were not cleaned once more. */
  get tables(): readonly string[] {
    return this.#found;
  }

  /** The family's leftovers were removed, as far as they can be. */
  start(family: IpFamily): void {
    this.#families.add(family);
    if (this.#cancel === undefined) this.#plan();
  }

  /** No look behind this. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel?.();
    await this.#work;
  }

  #plan(): void {
    if (this.#closed) return;
    this.#cancel = this.#later(() => {
      this.#work = this.#lookAtAll().finally(() => this.#plan());
    }, EVERY_MS);
  }

  async #lookAtAll(): Promise<void> {
    const removes = ++this.#looks <= REMOVING_LOOKS;
    const found: string[] = [];
    for (const family of this.#families) {
      const present = await this.#look(family);
      if (present.length > 0 && removes) await this.#options.remove(family);
      else found.push(...present);
    }
    this.#report(found);
  }

  #report(found: readonly string[]): void {
    const { log } = this.#options;
    this.#found = found;
    if (found.length > 0 && !this.#said) {
      const hint = "end kube-proxy on this node; what it leaves is removed with the next start";
      log.warn({ tables: found, hint }, "rules of kube-proxy's iptables mode found beside ours");
    }
    if (found.length === 0 && this.#said) log.info("rules of kube-proxy's iptables mode are gone");
    this.#said = found.length > 0;
  }

  /** What cannot be read is not there. */
  async #look(family: IpFamily): Promise<readonly string[]> {
    try {
      return await servingTables(this.#options, family, this.#legacyLooks);
    } catch (error) {
      this.#options.log.debug({ family, reason: reasonOf(error) }, "looking for kube-proxy's rules failed; retrying");
      return [];
    }
  }
}

function callLater(work: () => void, ms: number): () => void {
  const timer = setTimeout(work, ms);
  timer.unref();
  return () => clearTimeout(timer);
}
