/**
 * Finds rules of kube-proxy that have returned. A kube-proxy in iptables or IPVS mode rewrites all its rules when it
 * notices that they are gone. It notices with the next change of a service, or by its canary chain within
 * iptables.syncPeriod (30 s by default). If it ends after nft-proxier has started, as when one DaemonSet replaces
 * another, it leaves rules that no program changes any more.
 */
import { callLater, type Later } from "./call-later.js";
import type { Logger } from "../../base/logger.js";
import { reasonOf } from "../../base/unknown.js";
import type { Kernel } from "../../netlink/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import type { LegacyTables } from "../../netlink/legacy-tables.js";
import { presentTables } from "./find-legacy.js";

/** Present in nat of every kube-proxy that serves in these modes, and of no other program. */
const SIGN = "KUBE-SERVICES";
/** Interval between checks, ms: longer than kube-proxy takes to notice. */
const EVERY_MS = 60_000;
/**
 * During this many checks, 5 min, a kube-proxy is assumed to be about to end. After that, it was started or kept on
 * purpose.
 */
const REMOVING_CHECKS = 5;

interface ReturnedOptions {
  readonly kernel: Pick<Kernel, "tables" | "chains">;
  readonly log: Logger;
  /** Directory that contains /proc. Default "/". */
  readonly root?: string;
  /** Without `layout`, each check reads such a table completely. */
  readonly legacy?: Partial<Pick<LegacyTables, "chains" | "layout">>;
  /** Removes the family's leftovers. Never rejects. */
  readonly remove: (family: IpFamily) => Promise<void>;
  /** Default: callLater. */
  readonly later?: Later;
}

/** The last result for the older iptables' table nat, with the table's layout at that time. */
interface LegacyCheck {
  readonly layout: string | undefined;
  readonly serves: boolean;
}

/**
 * Reads the table, which may have 100,000 entries, only if its layout differs from that in `last`. A replaced table
 * with the same lengths would not be noticed. Rejects with KernelError.
 */
async function checkLegacy(
  { legacy }: Pick<ReturnedOptions, "legacy">,
  family: IpFamily,
  last: LegacyCheck | undefined,
): Promise<LegacyCheck> {
  // Read before the chains, so that the next check sees changes made in between.
  const layout = await legacy?.layout?.(family, "nat");
  if (last !== undefined && layout !== undefined && layout === last.layout) return last;
  const chains = await legacy?.chains?.(family, "nat");
  return { layout, serves: chains?.includes(SIGN) === true };
}

/**
 * Returns the tables in which kube-proxy's iptables or IPVS mode serves: "ip nat", "ip nat of iptables-legacy".
 * Rejects with KernelError.
 */
async function servingTables(
  options: Omit<ReturnedOptions, "remove">,
  family: IpFamily,
  checks: Map<IpFamily, LegacyCheck>,
): Promise<string[]> {
  const { kernel, root = "/", legacy } = options;
  const found: string[] = [];
  const nat = { family, table: "nat" };
  if ((await kernel.tables(family)).some(({ table }) => table === nat.table)) {
    if ((await kernel.chains(nat, [SIGN])).length > 0) found.push(`${family} nat`);
  }
  if (legacy?.chains !== undefined && (await presentTables(family, root)).includes("nat")) {
    const check = await checkLegacy(options, family, checks.get(family));
    checks.set(family, check);
    if (check.serves) found.push(`${family} nat of iptables-legacy`);
  }
  return found;
}

/**
 * Checks each family once a minute after its removal. Removes returned rules at first, and only reports them
 * later.
 */
export class ReturnedRules {
  readonly #options: ReturnedOptions;
  readonly #later: Later;
  readonly #families = new Set<IpFamily>();
  readonly #legacyChecks = new Map<IpFamily, LegacyCheck>();
  #found: readonly string[] = [];
  #said = false;
  #checks = 0;
  #work: Promise<void> = Promise.resolve();
  #cancel: (() => void) | undefined;
  #closed = false;

  constructor(options: ReturnedOptions) {
    this.#options = options;
    this.#later = options.later ?? callLater;
  }

  /** Tables that had kube-proxy's rules at the last check and were not cleaned again. */
  get tables(): readonly string[] {
    return this.#found;
  }

  /** The family's removable leftovers are gone. */
  start(family: IpFamily): void {
    this.#families.add(family);
    if (this.#cancel === undefined) this.#plan();
  }

  /** Stops. No check runs after it resolves. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel?.();
    await this.#work;
  }

  #plan(): void {
    if (this.#closed) return;
    this.#cancel = this.#later(() => {
      this.#work = this.#checkAll().finally(() => this.#plan());
    }, EVERY_MS);
  }

  async #checkAll(): Promise<void> {
    const removes = ++this.#checks <= REMOVING_CHECKS;
    const found: string[] = [];
    for (const family of this.#families) {
      const present = await this.#check(family);
      if (present.length > 0 && removes) await this.#options.remove(family);
      else found.push(...present);
    }
    this.#report(found);
  }

  #report(found: readonly string[]): void {
    const { log } = this.#options;
    this.#found = found;
    if (found.length > 0 && !this.#said) {
      const hint = "end kube-proxy on this node, then restart nft-proxier, which removes its rules";
      log.warn({ tables: found, hint }, "rules of kube-proxy's iptables mode found beside ours");
    }
    if (found.length === 0 && this.#said) log.info("rules of kube-proxy's iptables mode are gone");
    this.#said = found.length > 0;
  }

  /** Treats unreadable tables as absent. */
  async #check(family: IpFamily): Promise<readonly string[]> {
    try {
      return await servingTables(this.#options, family, this.#legacyChecks);
    } catch (error) {
      this.#options.log.debug({ family, reason: reasonOf(error) }, "checking for kube-proxy's rules failed; retrying");
      return [];
    }
  }
}
