/** Services with what the kernel has counted of them: for the commands that ask, and for metrics. */
import { TimeSlice, yieldToEventLoop } from "../../base/time-slice.js";
import type { ServiceModel } from "../../model/service-model.js";
import type { IpFamily } from "../../base/ip.js";
import type { ConnectionSource, CountedPort } from "../../observe/connection-metrics.js";
import { ConnectionReadings, type CountingProxier } from "../../proxier/connection-readings.js";
import type { ServiceCounters } from "../../ruleset/service-counters.js";
import type { Clock } from "../../table/table-exports.js";
import type { Sources } from "../../tools/explain/packet-report.js";
import { PiecewiseList } from "./json-parts.js";
import { ownerPath, ownerQuestion } from "./owner-path.js";
import {
  describeService,
  isServed,
  type ListedModel,
  type Listing,
  servicesInPieces,
  type ServiceStates,
} from "./services.js";
import { rowOf, titleOf } from "./service-row.js";
import { API_VERSION, type ServicePortStatus } from "../../observe/status-report.js";

const HEAD = { apiVersion: API_VERSION, kind: "ServiceList" } as const;

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

  /** "/v1/services…", "/v1/table", "/v1/endpoints" and "/v1/owner/…"; undefined: it is another path, or nothing that is served. */
  route(path: readonly string[], states: ServiceStates): Promise<unknown> | undefined {
    const [what, ...rest] = path;
    if (what === "owner") return this.#ownerOf(path, states);
    if (what === "table" && rest.length === 0) return this.#table(states);
    if (what !== "services" && what !== "endpoints") return undefined;
    if (rest.length === 0) return this.#list(states, what === "endpoints");
    return what === "services" && rest.length === 2 ? this.#describe(rest.join("/"), states) : undefined;
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
        for (const view of proxier.model.eachView(family, service)) {
          const found = counted(view);
          if (found === undefined) continue;
          const { portName, port, protocol, connections } = found;
          const named = portName === "" ? String(port) : portName;
          ports.push({ family, namespace, service: name, port: named, protocol, connections });
          if (slice.spent) await slice.yield();
        }
      }
      if (slice.spent) await slice.yield();
    }
    return ports;
  }

  /** What an explanation asks for. */
  sources(states: ServiceStates): Pick<Sources, "ownerOf" | "services"> {
    return {
      ownerOf: async (to) => {
        const list = await this.#ownerOf(ownerPath(to), states);
        return list === undefined ? [] : all(list.pieces as AsyncIterable<readonly ServicePortStatus[]>);
      },
      services: () => all(servicesInPieces(this.#listing(states), false)),
    };
  }

  async #list(states: ServiceStates, details: boolean): Promise<PiecewiseList> {
    await this.#read();
    return new PiecewiseList(HEAD, servicesInPieces(this.#listing(states), details));
  }

  async #table(states: ServiceStates): Promise<PiecewiseList> {
    await this.#read();
    const head = { apiVersion: API_VERSION, kind: "ServiceTable", columns: titleOf(false) } as const;
    return new PiecewiseList(head, rowsOf(servicesInPieces(this.#listing(states), false)));
  }

  #describe(service: string, states: ServiceStates): Promise<PiecewiseList> | undefined {
    const listing = this.#listing(states);
    if (!isServed(listing, service)) return undefined;
    return this.#read().then(() => new PiecewiseList(HEAD, describeService(listing, service)));
  }

  #ownerOf(path: readonly string[], states: ServiceStates): Promise<PiecewiseList> | undefined {
    const asked = ownerQuestion(path);
    if (asked === undefined) return undefined;
    const { family, protocol, port, address } = asked;
    const { model } = this.#options.proxier;
    const owner = model.ownerOf(family, address, protocol, port) ?? model.ownerOf(family, "", protocol, port);
    return owner === undefined ? undefined : this.#describe(owner, states);
  }

  #listing(states: ServiceStates): Listing {
    const { families, proxier } = this.#options;
    return { model: proxier.model, families, states, counted: this.#readings };
  }

  /** What cannot be read is told as it was last: other metrics of the same scrape must not go with it. */
  async #read(): Promise<void> {
    if (this.#options.counters !== "off") await this.#readings.read().catch(() => undefined);
  }
}

async function all(pieces: AsyncIterable<readonly ServicePortStatus[]>): Promise<ServicePortStatus[]> {
  const items: ServicePortStatus[] = [];
  for await (const piece of pieces) {
    items.push(...piece);
    await yieldToEventLoop();
  }
  return items;
}

async function* rowsOf(pieces: AsyncIterable<readonly ServicePortStatus[]>): AsyncGenerator<string[][]> {
  for await (const piece of pieces) yield piece.map((item) => rowOf(item, false));
}
