/** Services with what the kernel has counted of them: for the commands that ask, and for metrics. */
import { TimeSlice } from "../base/time-slice.js";
import type { ServiceModel } from "../model/index.js";
import type { IpFamily } from "../model/types.js";
import type { ConnectionSource, CountedPort } from "../observe/connection-metrics.js";
import { ConnectionReadings, type CountingProxier } from "../proxier/connection-readings.js";
import type { ServiceCounters } from "../ruleset/service-counters.js";
import type { Clock } from "../table/index.js";
import { describeService, listServices, type ListedModel, type ServiceStates } from "./services.js";
import { API_VERSION, type ServiceList } from "./types.js";

export interface ServiceBoardOptions {
  readonly families: readonly IpFamily[];
  readonly proxier: CountingProxier & { readonly model: ListedModel & Pick<ServiceModel, "counts"> };
  readonly clock: Clock;
  readonly counters: ServiceCounters;
}

export class ServiceBoard implements ConnectionSource {
  readonly #options: ServiceBoardOptions;
  readonly #readings: ConnectionReadings;

  constructor(options: ServiceBoardOptions) {
    this.#options = options;
    this.#readings = new ConnectionReadings(options.proxier, options.clock);
  }

  /** "/v1/services…"; undefined: it is another path, or a service that is not served. */
  route(path: readonly string[], states: ServiceStates): Promise<unknown> | undefined {
    const [what, namespace, name] = path;
    if (what !== "services") return undefined;
    if (path.length === 1) return this.#list(states);
    return path.length === 3 ? this.#describe(`${namespace}/${name}`, states) : undefined;
  }

  counts(family: IpFamily): { readonly services: number; readonly endpoints: number } {
    return this.#options.proxier.model.counts(family);
  }

  async ports(): Promise<CountedPort[]> {
    if (this.#options.counters === "off") return [];
    await this.#read();
    const { families, proxier } = this.#options;
    const slice = new TimeSlice();
    const ports: CountedPort[] = [];
    for (const service of [...proxier.model.services()].sort()) {
      const [namespace = "", name = ""] = service.split("/");
      for (const family of families) {
        const counted = proxier.connections(family, service);
        for (const { portName, port, protocol, connections } of counted) {
          const named = portName === "" ? String(port) : portName;
          ports.push({ family, namespace, service: name, port: named, protocol, connections });
        }
      }
      if (slice.spent) await slice.yield();
    }
    return ports;
  }

  async #list(states: ServiceStates): Promise<ServiceList> {
    const { families, proxier } = this.#options;
    await this.#read();
    const items = await listServices(proxier.model, families, states, this.#readings);
    return { apiVersion: API_VERSION, kind: "ServiceList", items };
  }

  #describe(service: string, states: ServiceStates): Promise<ServiceList> | undefined {
    const { families, proxier } = this.#options;
    if (describeService(proxier.model, families, states, service).length === 0) return undefined;
    return this.#read().then(() => {
      const items = describeService(proxier.model, families, states, service, this.#readings);
      return { apiVersion: API_VERSION, kind: "ServiceList", items };
    });
  }

  /** What cannot be read is told as it was last: other metrics of the same scrape must not go with it. */
  async #read(): Promise<void> {
    if (this.#options.counters !== "off") await this.#readings.read().catch(() => undefined);
  }
}
