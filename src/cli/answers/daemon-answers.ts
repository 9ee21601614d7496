import { ask, askForItems, NotFound, ofThisVersion } from "../../daemon/control/client.js";
import { ownerPath } from "../../daemon/answers/owner-path.js";
import { defaultSocketPath } from "../../daemon/control/socket-path.js";
import type {
  Diagnosis,
  EventList,
  ServiceList,
  ServicePortStatus,
  StatusReport,
  UnservedService,
} from "../../observe/status-report.js";
import type { Addressed } from "../../tools/explain/machine/packet-spec.js";

/** Answers of the daemon. Its methods reject with UserError (DaemonAway) if no daemon of this version answers. */
export class DaemonAnswers {
  /** @param socket path of the daemon's control socket. Default: the one of this network namespace. */
  constructor(private readonly socket = defaultSocketPath()) {}

  status(): Promise<StatusReport> {
    return this.#ask("status");
  }

  events(): Promise<EventList> {
    return this.#ask("events");
  }

  diagnosis(): Promise<Diagnosis> {
    return this.#ask("diagnosis");
  }

  /** All service ports. */
  services(): Promise<ServiceList> {
    return this.#list("services");
  }

  /** All service ports with their endpoints. */
  endpoints(): Promise<ServiceList> {
    return this.#list("endpoints");
  }

  /** All service ports, a few at a time, so that they need not be in memory together. @param what "endpoints": with each port's endpoints. */
  async eachService(
    onItems: (items: readonly ServicePortStatus[]) => void,
    what: "services" | "endpoints" = "services",
  ): Promise<void> {
    await this.#items([what], onItems);
  }

  /** The ports of one service with their endpoints. Resolves to undefined if it is not served. */
  service(namespace: string, name: string): Promise<ServiceList | undefined> {
    return this.#list("services", namespace, name).catch(ifFound);
  }

  /** Returns why a service that exists is not served. Resolves to undefined if there is no such service. */
  async whyNotServed(namespace: string, name: string): Promise<string | undefined> {
    const answer = this.#ask<UnservedService>("unserved", namespace, name);
    return (await answer.catch(ifFound))?.reason;
  }

  /** The service that has the address and port, or else that node port. Resolves to undefined if there is none. */
  ownerOf(to: Addressed): Promise<ServiceList | undefined> {
    return this.#list(...ownerPath(to)).catch(ifFound);
  }

  async #list(...path: readonly string[]): Promise<ServiceList> {
    const items: ServicePortStatus[] = [];
    const head = await this.#items(path, (some) => items.push(...some));
    return { ...(head as Omit<ServiceList, "items">), items };
  }

  async #items(path: readonly string[], onItems: (items: readonly ServicePortStatus[]) => void): Promise<object> {
    const answer = askForItems(this.socket, path, (some) => onItems(some as readonly ServicePortStatus[]));
    return answer.then((list) => ofThisVersion(list, this.socket));
  }

  async #ask<T>(...path: readonly string[]): Promise<T> {
    const answer = ask(this.socket, ...path).then((one) => ofThisVersion(one, this.socket));
    return (await answer) as T;
  }
}

function ifFound(error: unknown): undefined {
  if (error instanceof NotFound) return undefined;
  throw error;
}
