/**
 * Connection tracking as the proxier sees it: told what changed and when the rules are in, it keeps the kernel's table in
 * line with the services. Nothing here is ever waited for by a sync, and nothing here ends the program.
 */
import type { IpFamily } from "../model/types.js";
import type { Logger } from "../observe/log.js";
import { BEYOND_KUBE_PROXY, type Switches } from "./decide.js";
import { type Claim, FormerTargets } from "./former.js";
import type { TargetSource } from "./knowledge.js";
import { claimKey, type ReconcileReport, Reconciler, type ReconcilerOptions } from "./reconciler.js";
import type { ConntrackTable } from "./types.js";

/** Told what the conntrack room does. Calls are synchronous, cheap and must not throw. */
export interface ConntrackObserver {
  /** One pass of the reconciler over one family is done. */
  reconciled?(report: ReconcileReport): void;
}

export interface ConntrackServiceOptions {
  readonly table: ConntrackTable;
  /** The proxier's own model, made with `trackReleased`. */
  readonly model: TargetSource;
  readonly families: readonly IpFamily[];
  /** Where node ports answer on this node, canonical; asked at each pass. Where they answer everywhere: all local addresses. */
  readonly nodePortAddresses: (family: IpFamily) => Iterable<string>;
  readonly log: Logger;
  /** Default: all on. */
  readonly switches?: Partial<Switches>;
  readonly observers?: readonly ConntrackObserver[];
  /** Other waits than the reconciler's own, ms. */
  readonly timing?: Pick<ReconcilerOptions, "settleMs" | "firstRetryMs">;
}

interface Waiting {
  readonly services: Set<string>;
  readonly claims: Map<string, Claim>;
}

export class ConntrackService {
  readonly #options: ConntrackServiceOptions;
  readonly #former = new FormerTargets();
  readonly #reconciler: Reconciler;
  /** What changed since the last write of each family that the kernel took. */
  readonly #waiting = new Map<IpFamily, Waiting>();
  readonly #begun = new Set<IpFamily>();

  constructor(options: ConntrackServiceOptions) {
    this.#options = options;
    const { table, model, nodePortAddresses, log, observers = [] } = options;
    for (const family of options.families) this.#waiting.set(family, { services: new Set(), claims: new Map() });
    this.#reconciler = new Reconciler({
      table,
      model,
      former: this.#former,
      nodePortAddresses,
      switches: { ...BEYOND_KUBE_PROXY, ...options.switches },
      log,
      ...options.timing,
      onPass: (report) => {
        for (const observer of observers) observer.reconciled?.(report);
      },
    });
  }

  /**
   * VIPs and node ports (address "") that the table taken over held: those that no service has are former ones. Told when
   * the model has its first full list, before the first `afterSync`.
   */
  found(claims: Iterable<Claim>): void {
    for (const claim of claims) {
      const { family, address, protocol, port } = claim;
      if (this.#options.model.ownerOf(family, address, protocol, port) !== undefined) continue;
      this.#former.add(claim, { cause: "found", endpoints: undefined });
    }
  }

  /** These services ("namespace/name") changed: what `ServiceModel.takeDirty` says, told right after it. */
  changed(services: readonly string[]): void {
    const { model } = this.#options;
    for (const waiting of this.#waiting.values()) for (const service of services) waiting.services.add(service);
    for (const { endpoints, service, ...claim } of model.takeReleased()) {
      const cause = model.targets(claim.family, service).length > 0 ? "changed" : "deleted";
      this.#former.add(claim, { cause, endpoints });
      this.#waiting.get(claim.family)?.claims.set(claimKey(claim), claim);
    }
  }

  /** The kernel took the rules of a family, and with them all that `changed` was told before. Returns at once. */
  afterSync(family: IpFamily): void {
    const waiting = this.#waiting.get(family);
    if (waiting === undefined) return;
    if (this.#begun.has(family)) {
      this.#reconciler.request(family, waiting.services, waiting.claims.values());
    } else {
      this.#begun.add(family);
      this.#reconciler.requestAll(family);
    }
    waiting.services.clear();
    waiting.claims.clear();
  }

  /** Resolves when no pass is running or waiting to run. */
  async idle(): Promise<void> {
    await this.#reconciler.idle();
  }

  /** Ends; resolves when nothing of it runs any more. The table stays open: it is its owner's. */
  async stop(): Promise<void> {
    await this.#reconciler.stop();
  }
}
