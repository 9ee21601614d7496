/** Services with the kernel's counts of their connections, for commands and metrics. */
import type { ServedCounts } from "../../model/service-port-view.js";
import { yieldToEventLoop } from "../../base/time-slice.js";
import type { ServiceModel } from "../../model/service-model.js";
import type { IpFamily } from "../../base/ip.js";
import type { ConnectionSource } from "../../observe/connection-metrics.js";
import { ConnectionReadings, type CountingFamily } from "../../proxier/connection-readings.js";
import type { RefusalReadings } from "../../proxier/refusal-readings.js";
import { refusalsOf } from "./service-refusals.js";
import type { ServiceCounters } from "../../ruleset/service-counters.js";
import type { Clock } from "../../nft/engine-exports.js";
import type { Sources } from "../../tools/explain/packet-report.js";
import { PiecewiseList } from "../control/json-parts.js";
import { NODE_PORT } from "../../model/service-address.js";
import { ownerPath, ownerQuestion } from "./owner-path.js";
import {
  describeService,
  isServed,
  type ListedModel,
  type Listing,
  portsByService,
  reasonsIn,
  servicesInPieces,
  servicesWithEndpoint,
  type ServiceStates,
} from "./listed-services.js";
import { API_VERSION, type ServicePortStatus, type UnservedService } from "../../observe/status-report.js";

const HEAD = { apiVersion: API_VERSION, kind: "ServiceList" } as const;

interface ServiceBoardOptions {
  readonly families: readonly IpFamily[];
  readonly proxier: {
    readonly families: readonly CountingFamily[];
    readonly model: ListedModel & Pick<ServiceModel, "counts" | "whyNotServed">;
  };
  readonly states: ServiceStates;
  readonly clock: Clock;
  readonly counters: ServiceCounters;
  readonly refusals: RefusalReadings;
}

/** The list of services for a viewer that follows it. */
export type ListedChanges = Pick<
  ServiceBoard,
  "isCounting" | "portsOf" | "withEndpoint" | "reasons" | "readCounts" | "onCounts"
>;

export class ServiceBoard implements ConnectionSource {
  readonly #readings: ConnectionReadings;
  readonly #listing: Listing;

  constructor(private readonly options: ServiceBoardOptions) {
    const { families, proxier, states, clock } = options;
    this.#readings = new ConnectionReadings(proxier.families, clock, options.refusals);
    this.#listing = {
      ...{ model: proxier.model, families, states },
      counted: {
        connections: (family, service) => this.#readings.connections(family, service),
        intervalMs: () => this.#readings.intervalMs,
        refusalsOf: (family, view) => refusalsOf(options.refusals.of(family), family, view),
      },
    };
  }

  /** Answers "/v1/services…", "/v1/endpoints" and "/v1/owner/…". Returns undefined for another path, or if no such service is served. */
  route(path: readonly string[]): Promise<unknown> | undefined {
    const [what, ...rest] = path;
    if (what === "owner") return this.#ownerOf(path);
    if (what === "unserved") return this.#whyNotServed(rest.join("/"));
    if (what !== "services" && what !== "endpoints") return undefined;
    if (rest.length === 0) return this.#list(what === "endpoints");
    return what === "services" && rest.length === 2 ? this.#describe(rest.join("/")) : undefined;
  }

  counts(family: IpFamily): ServedCounts {
    return this.options.proxier.model.counts(family);
  }

  async *ports(): AsyncGenerator<readonly ServicePortStatus[]> {
    if (!this.isCounting) return;
    await this.#read();
    yield* servicesInPieces(this.#listing, false);
  }

  /** Whether connections are counted. */
  get isCounting(): boolean {
    return this.options.counters !== "off";
  }

  /** Returns the ports of these services without endpoints; none for a service that is not served. */
  portsOf(services: Iterable<string>): Promise<ReadonlyMap<string, readonly ServicePortStatus[]>> {
    return portsByService(this.#listing, services);
  }

  /** Returns services that have an endpoint with this text in its address or pod's name. */
  withEndpoint(text: string, most: number): Promise<readonly string[]> {
    return servicesWithEndpoint(this.#listing, text, most);
  }

  /** Returns why services do not serve as their objects ask, by service. Changes with other services. */
  async reasons(): Promise<ReadonlyMap<string, string>> {
    const { model } = this.options.proxier;
    const reasonsOf = await reasonsIn(model);
    const names = new Set([...model.lostClaims(), ...model.unbalanced()].map(({ object }) => object));
    return new Map([...names].map((name) => [name, JSON.stringify(reasonsOf(name))]));
  }

  /** Reads the kernel's counts, at most once a second. Resolves to the time between the last two readings, ms. */
  async readCounts(): Promise<number | undefined> {
    await this.#read();
    return this.#readings.intervalMs;
  }

  /** Calls `visit` after each reading with the services that got or refused connections, until the next call of this. */
  onCounts(visit: ((service: string) => void) | undefined): void {
    const { model } = this.options.proxier;
    const visitOwners = (): void =>
      this.#readings.forEachBusy((address) => {
        const owner = model.ownerOf(address) ?? model.ownerOf({ ...address, address: NODE_PORT });
        if (owner !== undefined) visit?.(owner);
      });
    this.#readings.onRead = visit && visitOwners;
  }

  /** The services, for the explanation of a packet. */
  get sources(): Pick<Sources, "ownerOf" | "services"> {
    return {
      ownerOf: async (to) => {
        const list = await this.#ownerOf(ownerPath(to));
        return list === undefined ? [] : all(list.pieces as AsyncIterable<readonly ServicePortStatus[]>);
      },
      services: () => all(servicesInPieces(this.#listing, false)),
    };
  }

  async #list(withEndpoints: boolean): Promise<PiecewiseList> {
    await this.#read();
    return new PiecewiseList(HEAD, servicesInPieces(this.#listing, withEndpoints));
  }

  #describe(service: string): Promise<PiecewiseList> | undefined {
    if (!isServed(this.#listing, service)) return undefined;
    return this.#read().then(() => new PiecewiseList(HEAD, describeService(this.#listing, service)));
  }

  #whyNotServed(service: string): Promise<UnservedService> | undefined {
    const reason = this.options.proxier.model.whyNotServed(service);
    if (reason === undefined) return undefined;
    return Promise.resolve({ apiVersion: API_VERSION, kind: "UnservedService", reason });
  }

  #ownerOf(path: readonly string[]): Promise<PiecewiseList> | undefined {
    const asked = ownerQuestion(path);
    if (asked === undefined) return undefined;
    const { model } = this.options.proxier;
    const owner = model.ownerOf(asked) ?? model.ownerOf({ ...asked, address: NODE_PORT });
    return owner === undefined ? undefined : this.#describe(owner);
  }

  /** If the kernel cannot be read, the former counts stay, so that the scrape still gets its other metrics. */
  async #read(): Promise<void> {
    if (this.isCounting) await this.#readings.read().catch(() => undefined);
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
