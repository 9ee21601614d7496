import type { Logger } from "../../base/logger.js";
import type { ObjectDecoder } from "../decode/object-decoder.js";
import type { KubeKind, ObjectSink, ObjectSource } from "../object-sink.js";
import type { ApiConnection } from "./api-connection.js";
import { Reflector, type ShrunkList } from "./reflector.js";
import { resources } from "./resources.js";
import { type Timing, TIMING } from "./timing.js";
import { FailureLog, type OngoingFailure } from "./failure-log.js";

interface KubernetesSourceOptions {
  /** Not closed by the source. */
  readonly connection: ApiConnection;
  readonly decoder: ObjectDecoder;
  /** The only Node to follow. */
  readonly nodeName: string;
  readonly log: Logger;
  /** For a command that ends: if the server denies access, do not retry, and reject `start`. Default: retry with backoff. */
  readonly deniedIsFinal?: boolean;
  readonly timing?: Partial<Timing>;
  /** Same as the reflector's option. */
  readonly onShrunk?: (list: ShrunkList) => void;
}

/**
 * Objects from the API server: Services, EndpointSlices, this node's Node and the ServiceCIDRs. Failures of the server or the
 * network are logged and retried, and never remove an object: only a deletion or a complete list without the object does.
 */
export class KubernetesSource implements ObjectSource {
  readonly #abort = new AbortController();
  #running: Promise<unknown> | undefined;
  #failureLog: FailureLog | undefined;
  #reflectors: readonly Reflector[] = [];
  /** Time of the server's last message, ms of performance.now(). */
  #heard: number | undefined;

  constructor(private readonly options: KubernetesSourceOptions) {}

  /**
   * Resolves after the first full lists of Services and EndpointSlices (with `deniedIsFinal` also of the Node), however long
   * they take, or when stopped before. Rejects only with `deniedIsFinal`, with an `AccessDeniedError`.
   */
  async start(sink: ObjectSink): Promise<void> {
    const { signal } = this.#abort;
    const { connection, decoder, nodeName, log, deniedIsFinal = false, onShrunk } = this.options;
    const timing = { ...TIMING, ...this.options.timing };
    const failureLog = new FailureLog(log, timing.repeatLogMs);
    this.#failureLog = failureLog;
    const ended = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => ended.resolve(), { once: true });
    const heard = (): void => {
      this.#heard = performance.now();
    };
    const shared = {
      connection,
      decoder,
      sink,
      timing,
      failureLog,
      log,
      onAnswer: () => {
        heard();
        for (const reflector of reflectors) reflector.reconnected();
      },
      onHeard: heard,
      complete: () => this.complete,
      onShrunk,
      onDenied: deniedIsFinal ? ended.reject : undefined,
    };
    const reflectors = resources(nodeName).map((resource) => new Reflector({ resource, ...shared }));
    this.#reflectors = reflectors;
    log.info({ server: connection.server }, "listing and watching the objects of the API server");
    this.#running = Promise.all(reflectors.map((reflector) => reflector.run(signal)));
    const awaited = reflectors.filter(({ resource }) => resource.required || (deniedIsFinal && !resource.optional));
    await Promise.race([Promise.all(awaited.map(({ listed }) => listed)), ended.promise]);
    if (signal.aborted) return;
    const pending = reflectors.filter((reflector) => !reflector.isListed);
    const kinds = pending.map(({ resource }) => resource.kind);
    if (kinds.length > 0)
      log.info({ pending: kinds }, "continuing without the lists of these kinds; they are applied when they arrive");
    sink.synced(kinds);
    sink.flush();
    for (const reflector of pending) void this.#reportListed(reflector, sink);
  }

  /** Whether the first list of this kind is complete. */
  isListed(kind: KubeKind): boolean {
    return this.#reflectors.some(({ resource, isListed }) => resource.kind === kind && isListed);
  }

  /** Whether the first lists are complete without which nothing can be served. */
  get complete(): boolean {
    return (
      this.#reflectors.length > 0 && this.#reflectors.every(({ resource, isListed }) => isListed || !resource.required)
    );
  }

  /**
   * State of the connection: current failures, and the time since the server's last message, ms (it sends a bookmark a minute
   * if all is well).
   */
  get health(): { readonly failures: readonly OngoingFailure[]; readonly silentMs?: number } {
    const failures = this.#failureLog?.ongoing() ?? [];
    return { failures, ...(this.#heard !== undefined && { silentMs: performance.now() - this.#heard }) };
  }

  async #reportListed({ listed, resource }: Reflector, sink: ObjectSink): Promise<void> {
    await listed;
    if (this.#abort.signal.aborted) return;
    sink.listed?.(resource.kind);
    sink.flush();
  }

  /** Resolves when the sink will not be called again. */
  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#running;
  }
}
