/**
 * Finds rules of kube-proxy that have returned. A kube-proxy in iptables or IPVS mode rewrites all its rules when it
 * notices that they are gone. It notices with the next change of a service, or by its canary chain within
 * iptables.syncPeriod (30 s by default). If it ends after nft-proxier has started, as when one DaemonSet replaces
 * another, it leaves rules that no program changes any more.
 */
import { BoundedFrequencyRunner } from "../../base/bounded-frequency-runner.js";
import type { Logger } from "../../base/logger.js";
import { reasonOf } from "../../base/unknown.js";
import type { IpFamily } from "../../base/ip.js";
import { CLEANUP_COMMAND, presentTables } from "./find-legacy.js";
import type { LeftoverKernel } from "./leftover-kernel.js";

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
  readonly kernel: LeftoverKernel;
  readonly log: Logger;
  /** Directory that contains /proc. Default "/". */
  readonly root?: string;
  /** Removes the family's leftovers in iptables-nft. Never rejects. */
  readonly remove: (family: IpFamily) => Promise<void>;
}

/** The last result for the older iptables' table nat, with the table's layout at that time. */
interface LegacyCheck {
  readonly layout: string;
  readonly serves: boolean;
}

/**
 * Reads the table, which may have 100,000 entries, only if its layout differs from that in `last`. A replaced table
 * with the same lengths would not be noticed. Rejects with KernelError.
 */
async function checkLegacy(
  { legacy }: LeftoverKernel,
  family: IpFamily,
  last: LegacyCheck | undefined,
): Promise<LegacyCheck> {
  // Read before the chains, so that the next check sees changes made in between.
  const layout = await legacy.layout(family, "nat");
  if (layout === last?.layout) return last;
  return { layout, serves: (await legacy.chains(family, "nat")).includes(SIGN) };
}

/** Whether kube-proxy's iptables or IPVS mode serves in iptables-nft. Rejects with KernelError. */
async function servesInNft(kernel: LeftoverKernel, family: IpFamily): Promise<boolean> {
  const nat = { family, table: "nat" };
  const exists = (await kernel.tables(family)).some(({ table }) => table === nat.table);
  return exists && (await kernel.chains(nat, [SIGN])).length > 0;
}

const OF_LEGACY = " of iptables-legacy";

/** Returns the remedy for rules in these tables of `ReturnedRules`. */
export function remedyFor(tables: readonly string[]): string {
  const isLegacy = tables.some((table) => table.endsWith(OF_LEGACY));
  const then = isLegacy
    ? `run \`${CLEANUP_COMMAND}\` of its own image`
    : "restart nft-proxier, which removes its rules";
  return `end kube-proxy on this node, then ${then}`;
}

/**
 * Checks each family once a minute after its removal. Removes returned rules in iptables-nft at first, and only reports them
 * later. Reports rules in the older iptables.
 */
export class ReturnedRules {
  readonly #families = new Set<IpFamily>();
  readonly #legacyChecks = new Map<IpFamily, LegacyCheck>();
  #found: readonly string[] = [];
  #said = false;
  #checks = 0;
  readonly #runner: BoundedFrequencyRunner;

  constructor(private readonly options: ReturnedOptions) {
    const check = async () => {
      await this.#checkAll();
      return { ok: true, againMs: EVERY_MS };
    };
    this.#runner = new BoundedFrequencyRunner(check, { gapMs: 0, maxRetryMs: EVERY_MS });
  }

  /** Tables that had kube-proxy's rules at the last check and were not cleaned again: "ip nat", "ip nat of iptables-legacy". */
  get tables(): readonly string[] {
    return this.#found;
  }

  /** The family's removable leftovers are gone. */
  start(family: IpFamily): void {
    this.#families.add(family);
    this.#runner.requestIn(EVERY_MS);
  }

  /** Stops. No check runs after it resolves. */
  close(): Promise<void> {
    return this.#runner.stop();
  }

  async #checkAll(): Promise<void> {
    const removes = ++this.#checks <= REMOVING_CHECKS;
    const found: string[] = [];
    for (const family of this.#families) {
      try {
        if (await servesInNft(this.options.kernel, family)) {
          if (removes) await this.options.remove(family);
          else found.push(`${family} nat`);
        }
        if (await this.#servesInLegacy(family)) found.push(`${family} nat${OF_LEGACY}`);
      } catch (error) {
        // Treats unreadable tables as absent.
        const fields = { family, reason: reasonOf(error) };
        this.options.log.debug(fields, "checking for kube-proxy's rules failed; retrying");
      }
    }
    this.#report(found);
  }

  #report(found: readonly string[]): void {
    const { log } = this.options;
    this.#found = found;
    if (found.length > 0 && !this.#said) {
      log.warn({ tables: found, hint: remedyFor(found) }, "rules of kube-proxy's iptables mode found beside ours");
    }
    if (found.length === 0 && this.#said) log.info("rules of kube-proxy's iptables mode are gone");
    this.#said = found.length > 0;
  }

  async #servesInLegacy(family: IpFamily): Promise<boolean> {
    const { kernel, root = "/" } = this.options;
    if (!(await presentTables(family, root)).includes("nat")) return false;
    const check = await checkLegacy(kernel, family, this.#legacyChecks.get(family));
    this.#legacyChecks.set(family, check);
    return check.serves;
  }
}
