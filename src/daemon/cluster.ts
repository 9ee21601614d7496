/**
 * The daemon's connection to the API server: the source of objects and the target of Events. Loaded with import(),
 * because manifests do not need it.
 */
import type { ProxyConfig } from "../config/proxy-config.js";
import type { EventRecorder, EventText } from "../base/events.js";
import type { Logger } from "../base/logger.js";
import type { Metrics } from "../observe/metrics.js";
import { ObjectDecoder } from "../objects/decode/object-decoder.js";
import { connectToApiServer, serverVersion } from "../objects/kubernetes/connect-to-api-server.js";
import { KubernetesEventRecorder } from "../objects/kubernetes/event-recorder.js";
import type { ShrunkList } from "../objects/kubernetes/reflector.js";
import { KubernetesSource } from "../objects/kubernetes/kubernetes-source.js";

/** How long to wait for pending Events when the program ends, ms. Less than the limit of the whole shutdown. */
const EVENTS_GRACE_MS = 200;

export interface Cluster {
  readonly source: KubernetesSource;
  /** URL of the API server. */
  readonly server: string;
  readonly events: EventRecorder;
  /** The server's version ("v1.36.0"). Undefined if it does not report one. */
  version(): Promise<string | undefined>;
  /** Closes the connections. Call it after the source has stopped. */
  close(): Promise<void>;
}

interface ClusterOptions {
  readonly config: ProxyConfig;
  readonly nodeName: string;
  readonly metrics: Metrics;
  readonly log: Logger;
  /** Passed to the decoder. */
  readonly onPod?: (address: string, pod: string) => void;
  /** Passed to the source. */
  readonly deniedIsFinal?: boolean;
}

/**
 * Sends nothing before the source is started. Rejects with a ConnectionSettingsError if the settings cannot be used.
 */
export async function openCluster(options: ClusterOptions): Promise<Cluster> {
  const { config, nodeName, metrics, log, onPod, deniedIsFinal = false } = options;
  const { allowExternalIPs } = config;
  const decoder = new ObjectDecoder({ nodeName, allowExternalIPs, onPod });
  const connection = await connectToApiServer({
    config,
    onRequest: (report) => metrics.restRequest(report),
  });
  const ending = new AbortController();
  const events = new KubernetesEventRecorder({ connection, nodeName, log });
  const onShrunk = (list: ShrunkList): void => events.record({ kind: "Node", name: nodeName }, shrunkEvent(list));
  return {
    source: new KubernetesSource({ connection, decoder, nodeName, log, deniedIsFinal, onShrunk }),
    server: connection.server,
    events,
    version: () => serverVersion(connection, ending.signal),
    close: async () => {
      ending.abort();
      await events.stop(EVENTS_GRACE_MS);
      connection.close();
    },
  };
}

function shrunkEvent({ kind, before, removed }: ShrunkList): EventText {
  const note = `the API server's new list of ${kind} objects lacks ${removed} of ${before}; the node no longer serves them`;
  return { type: "Warning", reason: "ObjectsRemoved", action: "List", note };
}
