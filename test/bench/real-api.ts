/** Requests to a real API server, whose address and token are in a kubeconfig as JSON. */
import { readFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import https from "node:https";
import { makeSlice, podsOf, serviceName } from "./cluster.ts";

/** EndpointSlices of all namespaces. */
export const ALL_SLICES = "/apis/discovery.k8s.io/v1/endpointslices";
/** EndpointSlices of the services of a benchmark. */
const SLICES = "/apis/discovery.k8s.io/v1/namespaces/bench/endpointslices";
const PARALLEL = 32;

interface Kubeconfig {
  readonly clusters: readonly { readonly cluster: { readonly server: string } }[];
  readonly users: readonly { readonly user: { readonly token: string } }[];
}

export interface RequestOptions {
  readonly method?: "POST" | "PUT";
  readonly headers?: Readonly<Record<string, string>>;
  readonly object?: object;
  /** Connections to use instead of those that other requests share. */
  readonly agent?: https.Agent;
}

/** Returns connections for one client. */
export function newAgent(maxSockets: number): https.Agent {
  return new https.Agent({ keepAlive: true, maxSockets, rejectUnauthorized: false });
}

export class RealApi {
  readonly #server: string;
  readonly #token: string;
  readonly #agent = newAgent(PARALLEL);

  constructor(kubeconfig: string) {
    const { clusters, users } = JSON.parse(readFileSync(kubeconfig, "utf8")) as Kubeconfig;
    this.#server = clusters[0].cluster.server;
    this.#token = users[0].user.token;
  }

  /** Resolves with the head of the answer; any status. */
  async send(
    path: string,
    { method, headers, object, agent = this.#agent }: RequestOptions = {},
  ): Promise<IncomingMessage> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const all = { Authorization: `Bearer ${this.#token}`, "Content-Type": "application/json", ...headers };
    const sent = https.request(new URL(path, this.#server), { agent, method: method ?? "GET", headers: all }, resolve);
    sent.once("error", reject);
    sent.end(object === undefined ? undefined : JSON.stringify(object));
    return promise;
  }

  /** Replaces the slice of a service, whose pods then have these numbers. */
  async replaceSlice(service: number, pods: readonly number[]): Promise<void> {
    const object = realisticSlice(service, pods);
    await this.#write(`${SLICES}/${serviceName(service)}-a`, { method: "PUT", object });
  }

  /** Creates an object unless it exists. */
  async create(path: string, object: object): Promise<void> {
    await this.#write(path, { method: "POST", object });
  }

  /** Creates a slice for a service unless it exists. */
  async createSlice(service: number, endpoints: number): Promise<void> {
    await this.create(SLICES, realisticSlice(service, podsOf(service, endpoints)));
  }

  close(): void {
    this.#agent.destroy();
  }

  async #write(path: string, options: RequestOptions): Promise<void> {
    const answer = await this.send(path, options);
    answer.resume();
    await new Promise((resolve) => answer.once("end", resolve));
    const status = answer.statusCode ?? 0;
    const CONFLICT = 409;
    if (status >= 300 && !(options.method === "POST" && status === CONFLICT)) throw new Error(`${path}: ${status}`);
  }
}

/** Calls `work` for each number below `count`, `workers` at a time. */
export async function inParallel(
  count: number,
  work: (index: number) => Promise<void>,
  workers = PARALLEL,
): Promise<void> {
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: workers }, worker));
}

/** A slice with the fields that the controller of EndpointSlices sets: random UIDs take space that compression cannot save. */
function realisticSlice(service: number, pods: readonly number[]): object {
  const { metadata, endpoints, ...slice } = makeSlice(service, pods);
  const owner = { apiVersion: "v1", kind: "Service", name: serviceName(service), controller: true };
  return {
    ...slice,
    metadata: { ...metadata, ownerReferences: [{ ...owner, uid: crypto.randomUUID() }] },
    endpoints: endpoints?.map((one) => ({ ...one, targetRef: { ...one.targetRef, uid: crypto.randomUUID() } })),
  };
}
