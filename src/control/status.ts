/** The daemon's status: what observers were told, for the commands that ask. */
import { release } from "node:os";
import type { IpFamily } from "../model/types.js";
import type { ServiceModel } from "../model/index.js";
import type { ProxyHealth } from "../observe/health.js";
import type {
  ContentionReport,
  ProxierObserver,
  RepairReport,
  QuarantineReport,
  SyncReport,
} from "../proxier/observer.js";
import { describeService, listServices, type ServiceStates } from "./services.js";
import {
  API_VERSION,
  type EventList,
  type LastRepair,
  type ServiceList,
  type StatusEvent,
  type StatusProblem,
  type StatusReport,
} from "./types.js";

/** Repairs, refusals, takeovers: a few a day where all is well. */
const KEPT_EVENTS = 300;
/** Of one kind of problem, this many are named; how many more there are is said. */
const NAMED = 10;

export interface StatusBoardOptions {
  readonly version: string;
  readonly nodeName: string;
  /** The families that are served. */
  readonly families: readonly IpFamily[];
  readonly model: Pick<ServiceModel, "counts" | "services" | "views" | "targets" | "lostClaims" | "problems">;
  readonly health: Pick<ProxyHealth, "healthy" | "pendingMs" | "nodeIneligibleReason">;
  /** Unix ms. */
  readonly now?: () => number;
}

const FAMILY = { ip: "IPv4", ip6: "IPv6" } as const;

export class StatusBoard implements ProxierObserver, ServiceStates {
  readonly #options: StatusBoardOptions;
  readonly #now: () => number;
  readonly #inForce = new Set<IpFamily>();
  readonly #failing = new Set<IpFamily>();
  readonly #quarantined: Readonly<Record<IpFamily, Map<string, string>>> = { ip: new Map(), ip6: new Map() };
  readonly #events: StatusEvent[] = [];
  #contended: ContentionReport | undefined;
  #lastRepair: LastRepair | undefined;

  constructor(options: StatusBoardOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
  }

  synced({ family, ok, work }: SyncReport): void {
    if (!ok) {
      if (!this.#failing.has(family)) this.#note("warning", `writing the ${FAMILY[family]} table failed; retrying`);
      this.#failing.add(family);
      return;
    }
    if (this.#failing.delete(family)) this.#note("normal", `the ${FAMILY[family]} table was written again`);
    if (work === undefined || this.#inForce.has(family)) return;
    this.#inForce.add(family);
    const { services, endpoints } = this.#options.model.counts(family);
    this.#note("normal", `${FAMILY[family]} rules in force: ${services} services, ${endpoints} endpoints`);
  }

  repaired({ family, by, changes, found, ms }: RepairReport): void {
    const told = changes.length > 0 ? changes : found;
    this.#lastRepair = { at: this.#now(), family, by, changes: told, ms };
    const who = by.length > 0 ? by.join(", ") : "another process";
    this.#note(
      "warning",
      `${who} changed the ${FAMILY[family]} table: ${named(told)}; repaired in ${Math.round(ms)} ms`,
    );
  }

  contended(report: ContentionReport): void {
    this.#contended = report;
    this.#note("warning", `${report.by.join(", ") || "another process"} keeps changing the tables: ${report.hint}`);
  }

  uncontended(): void {
    this.#contended = undefined;
    this.#note("normal", "no other process changes the tables any more");
  }

  quarantined({ family, service, reason }: QuarantineReport): void {
    this.#quarantined[family].set(service, reason);
    this.#note("warning", `${FAMILY[family]} of ${service} quarantined: ${reason}`);
  }

  released({ family, service }: Pick<QuarantineReport, "family" | "service">): void {
    this.#quarantined[family].delete(service);
    this.#note("normal", `${FAMILY[family]} of ${service} in force again`);
  }

  inForce(family: IpFamily): boolean {
    return this.#inForce.has(family);
  }

  quarantineReason(family: IpFamily, service: string): string | undefined {
    return this.#quarantined[family].get(service);
  }

  /** What is asked for at "/v1/…" (types.ts); undefined: there is none such. */
  readonly route = (path: readonly string[]): Promise<unknown> | undefined => {
    const [what, namespace, name] = path;
    if (what === "status" && path.length === 1) return Promise.resolve(this.status());
    if (what === "events" && path.length === 1) return Promise.resolve(this.events());
    if (what !== "services") return undefined;
    if (path.length === 1) return this.services();
    return path.length === 3 ? this.#service(`${namespace}/${name}`) : undefined;
  };

  status(): StatusReport {
    const { version, nodeName, families, model, health } = this.#options;
    return {
      apiVersion: API_VERSION,
      kind: "Status",
      version,
      kernel: release(),
      nodeName,
      uptimeMs: Math.round(performance.now()),
      healthy: health.healthy,
      families: families.map((family) => ({
        family,
        inForce: this.#inForce.has(family),
        ...model.counts(family),
        pendingMs: Math.round(health.pendingMs(family)),
      })),
      ignored: [...model.problems()].length,
      ...(this.#lastRepair !== undefined && { lastRepair: this.#lastRepair }),
      problems: this.#problems(),
    };
  }

  events(): EventList {
    return { apiVersion: API_VERSION, kind: "EventList", items: this.#events };
  }

  async services(): Promise<ServiceList> {
    const { model, families } = this.#options;
    return { apiVersion: API_VERSION, kind: "ServiceList", items: await listServices(model, families, this) };
  }

  #service(service: string): Promise<ServiceList> | undefined {
    const { model, families } = this.#options;
    const items = describeService(model, families, this, service);
    return items.length === 0 ? undefined : Promise.resolve({ apiVersion: API_VERSION, kind: "ServiceList", items });
  }

  #note(type: StatusEvent["type"], message: string): void {
    this.#events.push({ at: this.#now(), type, message });
    if (this.#events.length > KEPT_EVENTS) this.#events.shift();
  }

  /** Worst first. */
  #problems(): StatusProblem[] {
    return [...this.#writing(), ...this.#node(), ...this.#refused(), ...this.#ignored()];
  }

  *#writing(): Iterable<StatusProblem> {
    for (const family of this.#options.families) {
      if (this.#failing.has(family)) {
        const remedy = "the log names the operation and the kernel's error; what was in force stays";
        yield { what: `the kernel refuses the ${FAMILY[family]} table`, remedy };
      } else if (!this.#inForce.has(family)) {
        const remedy = "the log says what is waited for: the API server, the Node object, complete manifests";
        yield { what: `no ${FAMILY[family]} rules have been written since the start`, remedy };
      }
    }
    if (!this.#options.health.healthy) {
      yield { what: "changes have waited too long to be written", remedy: "see the log for why; /livez answers 503" };
    }
    if (this.#contended !== undefined) {
      const { by, hint } = this.#contended;
      yield { what: `${by.join(", ") || "another process"} keeps changing the tables`, remedy: hint };
    }
  }

  *#node(): Iterable<StatusProblem> {
    const reason = this.#options.health.nodeIneligibleReason;
    if (reason !== undefined) yield { what: reason, remedy: "load balancers send this node nothing (/healthz is 503)" };
  }

  *#refused(): Iterable<StatusProblem> {
    const all = this.#options.families.flatMap((family) =>
      Array.from(this.#quarantined[family], (of) => [family, of] as const),
    );
    for (const [family, [service, reason]] of all.slice(0, NAMED)) {
      const remedy = "retried with backoff, and when the Service changes; its last good rules stay";
      yield { what: `${FAMILY[family]} of ${service} is quarantined: ${reason}`, remedy };
    }
    if (all.length > NAMED)
      yield { what: `${all.length - NAMED} more services are quarantined`, remedy: "nft-proxier services" };
  }

  *#ignored(): Iterable<StatusProblem> {
    const all = [...this.#options.model.lostClaims(), ...this.#options.model.problems()];
    for (const { kind, object, field, reason } of all.slice(0, NAMED)) {
      yield { what: `${kind} ${object} ${field}: ${reason}`, remedy: `change the ${kind}; the rest of it is served` };
    }
    if (all.length > NAMED)
      yield { what: `${all.length - NAMED} more fields are ignored`, remedy: "the log names each" };
  }
}

function named(words: readonly string[]): string {
  return words.length <= 3 ? words.join(", ") : `${words.slice(0, 3).join(", ")} and ${words.length - 3} more`;
}
