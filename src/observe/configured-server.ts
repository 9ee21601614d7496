/** The health port and the metrics port: an HTTP listener on an address that the configuration names. */
import type { EventRecorder } from "../base/events.js";
import { type HttpHandler, ListenError, parseListenAddress } from "./http-listener.js";
import type { Logger } from "../base/logger.js";
import { RetryingListener } from "./retrying-listener.js";

/** Time between two attempts to listen, ms: kube-proxy's. */
const RETRY_MS = 5_000;

export interface ConfiguredServerOptions {
  /** "IP:port", an IPv6 address in brackets; an unspecified address means all, of both families. */
  readonly address: string;
  /** bindAddressHardFail: an address that cannot be had at the first attempt ends the program. */
  readonly hardFail: boolean;
  readonly nodeName: string;
  readonly events: EventRecorder;
  readonly log: Logger;
  /** By default 5 s. */
  readonly retryMs?: number;
}

export interface ServerPurpose {
  /** For the log: "health checks". */
  readonly what: string;
  /** Of the Event with `hardFail`: "FailedToStartMetricServer". */
  readonly reason: string;
  readonly handler: HttpHandler;
}

/** Listens as soon as it can: a port that another program has is retried, unless `hardFail`. */
export class ConfiguredServer {
  readonly #options: ConfiguredServerOptions;
  readonly #reason: string;
  readonly #listener: RetryingListener;

  /** Throws a TypeError when the address is none. */
  constructor(options: ConfiguredServerOptions, { what, reason, handler }: ServerPurpose) {
    const { address, log, retryMs = RETRY_MS } = options;
    this.#options = options;
    this.#reason = reason;
    this.#listener = new RetryingListener({
      address: parseListenAddress(address),
      handler,
      retry: { firstMs: retryMs, longestMs: retryMs },
      onFailed: (error) => log.error({ server: what, err: error, retryMs }, "listening failed; retrying"),
      onListening: () => log.info({ server: what, address, port: this.port }, "listening"),
      onRequestFailed: (error) => log.warn({ server: what, err: error }, "answering a request failed"),
    });
  }

  /** The port that it listens on; undefined while it does not. */
  get port(): number | undefined {
    return this.#listener.port;
  }

  /**
   * Resolves after the first attempt, whatever came of it. With `hardFail` it rejects with a ListenError when it failed,
   * and an Event tells of it.
   */
  async start(): Promise<void> {
    if (!this.#options.hardFail) return this.#listener.open();
    try {
      await this.#listener.openOnce();
    } catch (error) {
      if (error instanceof ListenError) this.#record(error.message);
      throw error;
    }
  }

  /** Open connections end, whatever they wait for. */
  async close(): Promise<void> {
    await this.#listener.close();
  }

  #record(note: string): void {
    const { events, nodeName } = this.#options;
    const event = { type: "Warning", reason: this.#reason, action: "StartKubeProxy", note } as const;
    events.record({ kind: "Node", name: nodeName }, event);
  }
}
