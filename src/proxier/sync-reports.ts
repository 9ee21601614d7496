/**
 * Tracks the content and result of writes, for logs and observers: the services and trigger times that become active
 * with each.
 */
import { NoLocalEndpointsCounter } from "../model/no-local-endpoints.js";
import type { IpFamily } from "../base/ip.js";
import { reasonOf } from "../base/unknown.js";
import { type ApplyResult, describeRefusal, TableError } from "../nft/engine-exports.js";
import type { FamilyOutcome } from "./family-proxier.js";
import type { SyncReport, SyncWork } from "./observer.js";
import type { ProxierContext } from "./proxier-context.js";
import { SyncLog } from "./sync-log.js";

/** Changes in the desired table that may not be in the kernel yet. */
interface UnderWay {
  readonly triggers: number[];
  /** The model's list, or a set after a failed write, because the same services may change repeatedly. */
  services: readonly string[] | Set<string>;
}

/** Maximum number of trigger times to keep while the kernel rejects writes. The oldest are kept. */
const MOST_TRIGGERS = 65_536;

function newUnderWay(): UnderWay {
  return { triggers: [], services: [] };
}

export class SyncReports {
  readonly noLocal = { ip: new NoLocalEndpointsCounter(), ip6: new NoLocalEndpointsCounter() };
  /** Changes that become active with the next successful write. */
  readonly #underWay: Record<IpFamily, UnderWay> = { ip: newUnderWay(), ip6: newUnderWay() };
  readonly #written = new Set<IpFamily>();
  readonly #writes: SyncLog;

  constructor(private readonly context: ProxierContext) {
    this.#writes = new SyncLog(context.log);
  }

  /** Logs the counted writes. */
  flush(): void {
    this.#writes.flush();
  }

  /** Adds changes to a family's next write. Changes that an earlier write failed to write are still included. */
  underWay(family: IpFamily, triggers: readonly number[], services: readonly string[]): void {
    const underWay = this.#underWay[family];
    underWay.triggers.push(...triggers.slice(0, MOST_TRIGGERS - underWay.triggers.length));
    if (services.length === 0) return;
    const before = underWay.services;
    if (before instanceof Set) for (const service of services) before.add(service);
    else underWay.services = before.length === 0 ? services : new Set([...before, ...services]);
  }

  /**
   * Logs a write and reports it to the observers.
   * @param started when it began, by performance.now().
   * @param since when the first change that it covers came, by the clock.
   * @param oldest when the oldest change that is not completely written came, by the clock. Undefined if there is none.
   */
  report(family: IpFamily, started: number, since: number, outcome: FamilyOutcome, oldest?: number): void {
    const { ok } = outcome;
    if (ok) this.#log(family, outcome.result, started, since);
    const result = ok ? outcome.result : undefined;
    const underWay = this.#underWay[family];
    const { active, waiting } = ok ? divided(underWay.services, outcome.quarantined) : NOTHING_ACTIVE;
    const report: SyncReport = {
      family,
      ok,
      ...(!ok && { error: refusalOf(outcome.error) }),
      full: result?.resynced !== undefined || !this.#written.has(family),
      ms: performance.now() - started,
      settled: ok && oldest === undefined,
      oldestMs: oldest === undefined ? undefined : this.context.clock.now() - oldest,
      triggers: ok ? underWay.triggers : [],
      services: active,
      work: result && workOf(result),
      repairPending: outcome.ok && outcome.repairPending,
    };
    if (ok) {
      this.#underWay[family] = { triggers: [], services: waiting };
      this.#written.add(family);
    }
    const attempted = outcome.ok || outcome.owned !== "waiting";
    for (const observer of this.context.observers) {
      if (attempted) observer.synced?.(report);
      observer.noLocalEndpoints?.(family, this.noLocal[family].counts);
    }
  }

  #log(family: IpFamily, result: ApplyResult, started: number, since: number): void {
    const { transactions, total: operations, bytes } = result;
    const ms = performance.now() - started;
    const [kernelMs, latencyMs] = [result.kernelNs / 1e6, this.context.clock.now() - since];
    this.#writes.wrote(family, { transactions, operations, bytes, ms, kernelMs, latencyMs });
  }
}

/** Describes the first refused object, because there may be as many as services. */
function refusalOf(error: unknown): string {
  const [first] = error instanceof TableError ? error.faulty : [];
  return first === undefined ? reasonOf(error) : describeRefusal(first);
}

function workOf({ transactions, total, bytes, kernelNs }: ApplyResult): SyncWork {
  return { transactions, operations: total, bytes, kernelMs: kernelNs / 1e6 };
}

const NOTHING_ACTIVE = { active: [], waiting: [] };

/** Divides the services of a write. `waiting`: services that the kernel rejects, until it accepts them. */
function divided(
  services: UnderWay["services"],
  quarantined: readonly string[],
): { readonly active: readonly string[]; readonly waiting: readonly string[] } {
  if (quarantined.length === 0) return { active: services instanceof Set ? [...services] : services, waiting: [] };
  const refused = new Set(quarantined);
  const all = [...services];
  return {
    active: all.filter((service) => !refused.has(service)),
    waiting: all.filter((service) => refused.has(service)),
  };
}
