/** A source connected to the double, and the calls to its sink. */
import { ApiConnection } from "../../../../src/objects/kubernetes/api-connection.js";
import { FileCredentials } from "../../../../src/objects/kubernetes/credentials.js";
import { ANONYMOUS, type ClusterSettings, type UserSettings } from "../../../../src/objects/kubernetes/kubeconfig.js";
import { ObjectDecoder } from "../../../../src/objects/decode/object-decoder.js";
import type { ShrunkList } from "../../../../src/objects/kubernetes/reflector.js";
import { KubernetesSource } from "../../../../src/objects/kubernetes/kubernetes-source.js";
import type { Timing } from "../../../../src/objects/kubernetes/timing.js";
import type { KubeKind, KubeObject, ObjectSink } from "../../../../src/objects/object-sink.js";
import type { ApiServer, KubeJson } from "../../../lab/api-server/api-server.ts";
import { EVENTUALLY_MS } from "../../../lab/eventually.ts";
import { keptIn, type LogLine } from "../../../support/log.ts";

export const NODE = "node-1";

/** Short waits, but long enough that a living watch does not look dead on a busy machine. */
const QUICK: Partial<Timing> = { minBackoffMs: 20, maxBackoffMs: 100, resetAfterMs: 50 };

/** Records its calls, a line for each, and the current objects. */
export class Recorder implements ObjectSink {
  readonly calls: string[] = [];
  readonly objects = new Map<string, KubeObject>();
  readonly #waiting = new Set<() => void>();

  upsert(object: KubeObject): void {
    const key = `${object.kind} ${object.name}`;
    this.#note(`+ ${key}`);
    this.objects.set(key, object);
  }

  remove(kind: KubeKind, name: string): void {
    this.#note(`- ${kind} ${name}`);
    this.objects.delete(`${kind} ${name}`);
  }

  synced(pending: readonly KubeKind[] = []): void {
    for (const kind of pending) this.#note(`pending ${kind}`);
    this.#note("synced");
  }

  listed(kind: KubeKind): void {
    this.#note(`listed ${kind}`);
  }

  flush(): void {
    this.#note("flush");
  }

  /** Names of the current objects of a kind, sorted. */
  names(kind: KubeKind): string[] {
    return [...this.objects.keys()].filter((key) => key.startsWith(`${kind} `)).sort();
  }

  /** Resolves when `condition` holds; it is checked after every call. */
  async until(condition: () => boolean, what = "what was waited for"): Promise<void> {
    if (condition()) return;
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(check);
        reject(new Error(`${what} did not happen; the last calls: ${this.calls.slice(-20).join(", ")}`));
      }, EVENTUALLY_MS);
      const check = () => {
        if (!condition()) return;
        clearTimeout(timer);
        this.#waiting.delete(check);
        resolve();
      };
      this.#waiting.add(check);
    });
  }

  /** Resolves when this call has been made, counted from the beginning or from the last `clear`. */
  async seen(call: string): Promise<void> {
    await this.until(() => this.calls.includes(call), call);
  }

  clear(): void {
    this.calls.length = 0;
  }

  #note(call: string): void {
    this.calls.push(call);
    // The caller may not have finished its work.
    queueMicrotask(() => {
      for (const check of this.#waiting) check();
    });
  }
}

export interface Listening {
  readonly source: KubernetesSource;
  readonly connection: ApiConnection;
  readonly sink: Recorder;
  readonly lines: LogLine[];
  /** The promise that `start` returned. */
  readonly started: Promise<void>;
  stop(): Promise<void>;
}

export interface ListenOptions {
  readonly timing?: Partial<Timing>;
  readonly deniedIsFinal?: boolean;
  readonly user?: Partial<UserSettings>;
  readonly cluster?: Partial<ClusterSettings>;
  readonly onShrunk?: (list: ShrunkList) => void;
}

export function connectTo(api: ApiServer, options: ListenOptions = {}): ApiConnection {
  const server = new URL(api.url);
  const cluster: ClusterSettings = {
    server,
    authority: api.ca === "" ? undefined : { text: api.ca },
    tlsServerName: "",
    insecure: false,
    proxyUrl: "",
    ...options.cluster,
  };
  const credentials = new FileCredentials(cluster, { ...ANONYMOUS, ...options.user }, cluster.proxyUrl);
  return new ApiConnection({ server: cluster.server, credentials, qps: -1, burst: 0 });
}

/** Starts a source without waiting for its lists. */
export function listen(api: ApiServer, options: ListenOptions = {}): Listening {
  const lines: LogLine[] = [];
  const log = keptIn(lines);
  const connection = connectTo(api, options);
  const { deniedIsFinal = false, onShrunk } = options;
  const decoder = new ObjectDecoder({ nodeName: NODE });
  const timing = { ...QUICK, ...options.timing };
  const shared = { connection, decoder, nodeName: NODE, log, deniedIsFinal, timing };
  const source = new KubernetesSource({ ...shared, onShrunk });
  const sink = new Recorder();
  const started = source.start(sink);
  const stop = async () => {
    await source.stop();
    connection.close();
  };
  return { source, connection, sink, lines, started, stop };
}

export function service(name: string, fields: Readonly<Record<string, unknown>> = {}): KubeJson {
  const [namespace, own] = split(name);
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: { namespace, name: own, labels: { app: own }, annotations: { "example.com/long": "x".repeat(100) } },
    spec: {
      type: "ClusterIP",
      clusterIP: "10.96.0.1",
      clusterIPs: ["10.96.0.1"],
      ipFamilies: ["IPv4"],
      ipFamilyPolicy: "SingleStack",
      ports: [{ name: "http", port: 80, protocol: "TCP", targetPort: 8080 }],
      selector: { app: own },
      sessionAffinity: "None",
      internalTrafficPolicy: "Cluster",
      ...fields,
    },
    status: { loadBalancer: {} },
  };
}

export function slice(name: string, serviceName: string, addresses: readonly string[]): KubeJson {
  const [namespace, own] = split(name);
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      namespace,
      name: own,
      labels: { "kubernetes.io/service-name": serviceName, "endpointslice.kubernetes.io/managed-by": "x" },
      annotations: { "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z" },
    },
    addressType: "IPv4",
    endpoints: addresses.map((address) => ({
      addresses: [address],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: NODE,
      targetRef: { kind: "Pod", name: `pod-${address}`, namespace, uid: "0" },
    })),
    ports: [{ name: "http", port: 8080, protocol: "TCP" }],
  };
}

export function node(name: string): KubeJson {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name, labels: { "topology.kubernetes.io/zone": "a" }, annotations: { "x/y": "z" } },
    spec: { podCIDR: "10.244.0.0/24", podCIDRs: ["10.244.0.0/24"], providerID: "p" },
    status: { addresses: [{ type: "InternalIP", address: "192.0.2.1" }], images: [{ names: ["a"], sizeBytes: 1 }] },
  };
}

export function serviceCIDR(name: string, ...cidrs: readonly string[]): KubeJson {
  return { apiVersion: "networking.k8s.io/v1", kind: "ServiceCIDR", metadata: { name }, spec: { cidrs } };
}

function split(name: string): [string, string] {
  const [namespace = "", own = ""] = name.split("/");
  return [namespace, own];
}
