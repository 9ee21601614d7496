/** Logs the status: one line when the rules first become active, and one on each request. */
import { release } from "node:os";
import type { ServiceModel } from "../model/service-model.js";
import type { IpFamily } from "../base/ip.js";
import type { ProxyHealth } from "../observe/proxy-health.js";
import type { Logger } from "../base/logger.js";
import type { ProxierObserver, QuarantineReport, SyncReport } from "../proxier/observer.js";

interface StatusLogOptions {
  readonly log: Logger;
  readonly version: string;
  /** The served families. */
  readonly families: readonly IpFamily[];
  readonly model: Pick<ServiceModel, "counts">;
  readonly health: Pick<ProxyHealth, "healthy" | "pendingMs">;
}

interface Written {
  transactions: number;
  operations: number;
}

export class StatusLog implements ProxierObserver {
  readonly #options: StatusLogOptions;
  /** Families with active rules, with the objects written up to then. */
  readonly #active = new Map<IpFamily, Written>();
  readonly #quarantined: Readonly<Record<IpFamily, Set<string>>> = { ip: new Set(), ip6: new Set() };
  #said = false;

  constructor(options: StatusLogOptions) {
    this.#options = options;
  }

  synced({ family, ok, work }: SyncReport): void {
    if (this.#said || !ok || work === undefined) return;
    const written = this.#active.get(family) ?? { transactions: 0, operations: 0 };
    written.transactions += work.transactions;
    written.operations += work.operations;
    this.#active.set(family, written);
    const { families, log, version } = this.#options;
    if (this.#active.size < families.length) return;
    this.#said = true;
    const perFamily = families.map((each) => [each, { ...this.#served(each), ...this.#active.get(each) }] as const);
    log.info({ version, kernel: release(), uptimeMs: uptimeMs(), ...Object.fromEntries(perFamily) }, "rules active");
  }

  quarantined({ family, service }: QuarantineReport): void {
    this.#quarantined[family].add(service);
  }

  released({ family, service }: Pick<QuarantineReport, "family" | "service">): void {
    this.#quarantined[family].delete(service);
  }

  /** Logs the current status. */
  say(): void {
    const { families, health, log, version } = this.#options;
    const perFamily = families.map((family) => {
      const inForce = this.#active.has(family);
      return [family, { inForce, ...this.#served(family), pendingMs: Math.round(health.pendingMs(family)) }] as const;
    });
    log.info(
      { version, kernel: release(), uptimeMs: uptimeMs(), healthy: health.healthy, ...Object.fromEntries(perFamily) },
      "status",
    );
  }

  #served(family: IpFamily): { services: number; endpoints: number; quarantined?: number } {
    const { size } = this.#quarantined[family];
    return { ...this.#options.model.counts(family), ...(size > 0 && { quarantined: size }) };
  }
}

function uptimeMs(): number {
  return Math.round(performance.now());
}
