/**
 * The daemon as a whole:
 *
 *     source ─→ reading gate ─→ node gate ─→ proxier ─→ kernel
 *              (of manifests)     │ Node                    │ events
 *                                 ▼                         ▼
 *               health, metrics, health checks of services, connection tracking, leftovers of kube-proxy
 *
 * It ends after a signal (exit code 0), or after a change of the node or configuration that requires a restart (1).
 */
import type { NodeRecord } from "../objects/records.js";
import type { NoteSource, ProblemSource, StatusBoard } from "./answers/status-board.js";
import type { ProxierObserver } from "../proxier/observer.js";
import { Flowtable, removeFlowtable } from "../flowtable/flowtable.js";
import { reportForwarding } from "../node/forwarding.js";
import { applySystemSettings, loadConntrack } from "../node/system-settings.js";
import { HandoverRemoval } from "../migration/handover/handover-removal.js";
import { LeftoverRemoval } from "../migration/leftovers/leftover-removal.js";
import type { NodeError } from "../node/kernel-families.js";
import { NodeGate } from "../node/node-gate.js";
import { type EventRecorder, NO_EVENTS } from "../base/events.js";
import { Proxier } from "../proxier/proxier.js";
import type { ManifestSource } from "../objects/manifests/manifest-source.js";
import type { ObjectSink } from "../objects/object-sink.js";
import { type HttpHandler, type HttpServer, textReply } from "../observe/http-server.js";
import { OperatorAnswers, showsPage } from "./operator-answers.js";
import type { Cluster } from "./cluster.js";
import { followConntrack } from "./conntrack-follower.js";
import { KubernetesEvents } from "./kubernetes-events.js";
import { MemoryRelease } from "./memory-release.js";
import { completeReading, isTableActive } from "./complete-reading.js";
import { flowtableProblems, healthCheckProblems, leftoverProblems, nodeProblems, nodeUnread } from "./problems.js";
import { registerFlowtableMetrics } from "../observe/flowtable-metrics.js";
import { ServiceHealth } from "../observe/service-health.js";
import { configuredListeners, Observation } from "./servers.js";
import { SizeWatch } from "./size-watch.js";
import { ServiceCIDRCheck } from "./service-cidr-check.js";
import type { DaemonOptions } from "./daemon-options.js";

/**
 * Serves until `ended`. Returns the exit code. Rejects if it cannot start because the API server's connection settings
 * are unusable or a directory cannot be read. With `bindAddressHardFail`, an address that is not available is also an
 * error.
 */
export async function runDaemon(options: DaemonOptions): Promise<number> {
  await using closers = new AsyncDisposableStack();
  return await new Daemon(options, closers).run();
}

/** A part of the daemon that works beside the proxier. */
interface Part {
  readonly observer?: ProxierObserver;
  /** Its problems, for `status`. */
  readonly problems?: ProblemSource;
  /** Its work under way, for `status`. */
  readonly notes?: NoteSource;
  readonly start?: () => unknown;
  readonly stop?: () => void | Promise<void>;
}

class Daemon {
  readonly #observation: Observation;
  /** Set when there is something to show. */
  #page: HttpHandler | undefined;
  #listeners: readonly HttpServer[] = [];

  constructor(
    private readonly options: DaemonOptions,
    private readonly closers: AsyncDisposableStack,
  ) {
    const { config, version, clock, manifests } = options;
    const nodeName = manifests === undefined ? options.nodeName : undefined;
    const { families } = options.families;
    this.#observation = new Observation({ config, families, nodeName, version, clock });
  }

  async run(): Promise<number> {
    const { config, nodeName, families, kernel, log, manifests, node } = this.options;
    const cluster = manifests === undefined ? await this.#openCluster() : undefined;
    const events = cluster?.events ?? NO_EVENTS;
    if (node !== undefined) {
      await applySystemSettings(config, { log, loadConntrack: () => loadConntrack(kernel) });
      await this.#listen(node, events);
    }
    await reportForwarding({ config, kernel, log, families: families.families, legacy: kernel.legacy });
    const proxier = this.#proxier();
    const overlaps = new ServiceCIDRCheck({ config, nodeName, families: families.families, proxier, log });
    proxier.observe(overlaps);
    const board = await this.#answer(proxier, cluster, overlaps);
    for (const part of await this.#parts(proxier, events)) await this.#start(part, proxier, board);
    return this.#serve(proxier, board, cluster, overlaps);
  }

  async #openCluster(): Promise<Cluster> {
    const { config, nodeName, log } = this.options;
    const { openCluster } = await import("./cluster.js");
    const cluster = await openCluster({ config, nodeName, log, metrics: this.#observation.metrics });
    this.closers.defer(() => cluster.close());
    this.#observation.health.nodeUnread = () => nodeUnread(cluster);
    return cluster;
  }

  async #listen(pages: { configz: unknown; flagz: string }, events: EventRecorder): Promise<void> {
    const { config, nodeName, log, version } = this.options;
    const page: HttpHandler = (request) =>
      this.#page?.(request) ?? textReply(503, "the program is starting; see the log\n");
    const shared = { config, nodeName, events, log, version, pages };
    const options = { ...shared, statusPage: showsPage(this.options) ? page : undefined };
    this.#listeners = configuredListeners(options, this.#observation);
    for (const server of this.#listeners) {
      this.closers.defer(() => server.close());
      await server.open();
    }
  }

  #proxier(): Proxier {
    const { config, nodeName, kernel, log, clock, ownTable, serviceCounters } = this.options;
    const { families } = this.options.families;
    const { observers } = this.#observation;
    const proxier = new Proxier({
      ...{ config, nodeName, families, kernel, interfaces: kernel.interfaces, log, clock, observers },
      ...{ watch: true, trackRemovals: true, ownTable, serviceCounters },
    });
    proxier.observe(new SizeWatch(proxier.model));
    this.#observation.health.serves = (family) => proxier.model.counts(family).services > 0;
    // On a busy machine, the process may end before the proxier has stopped.
    const logWrites = (): void => proxier.logRecentWrites();
    process.once("exit", logWrites);
    this.closers.defer(() => void process.off("exit", logWrites));
    this.closers.defer(() => proxier.stop());
    return proxier;
  }

  /** Everything that follows the proxier's work or keeps a table of its own, in the order of its start. */
  async #parts(proxier: Proxier, events: EventRecorder): Promise<readonly Part[]> {
    const { config, nodeName, kernel, log, node, gcInterval, flowtable } = this.options;
    const { families } = this.options.families;
    const { metrics } = this.#observation;
    const recorder = new KubernetesEvents(events, nodeName, (service) => proxier.model.uidOf(service));
    const memory = new MemoryRelease(() => kernel.connection.releaseMemory());
    const handover = new HandoverRemoval({ kernel, log });
    const parts: Part[] = [
      { observer: recorder, start: () => recorder.started() },
      { observer: memory, stop: () => memory.close() },
      { stop: await followConntrack({ proxier, families, metrics, log, gcInterval }) },
      { observer: handover, stop: () => handover.done() },
    ];
    if (node !== undefined) {
      const health = new ServiceHealth({
        ...{ nodeName, events, log, registry: metrics.registry },
        check: (family, service) => proxier.model.healthCheck(family, service),
        healthy: () => this.#observation.health.healthy,
      });
      parts.push({ observer: health, problems: () => healthCheckProblems(health), stop: () => health.close() });
      const { excludeCIDRs } = config.ipvs;
      const leftovers = new LeftoverRemoval({ kernel, log, families, excludeCIDRs });
      parts.push({
        observer: leftovers,
        problems: () => leftoverProblems(leftovers),
        notes: () => leftovers.notes,
        stop: () => leftovers.close(),
      });
    }
    parts.push(flowtable === undefined ? { start: () => removeFlowtable(kernel, log) } : this.#flowtable(flowtable));
    return parts;
  }

  #flowtable(interfaces: readonly string[]): Part {
    const { kernel, log } = this.options;
    const { registry } = this.#observation.metrics;
    const onFailure = registerFlowtableMetrics(registry, () => flowtable.devices.length);
    const flowtable = new Flowtable({ kernel, links: kernel.interfaces, log, interfaces, onFailure });
    return {
      problems: () => flowtableProblems(flowtable),
      // The services' first write does not wait for this.
      start: () => void flowtable.start(),
      stop: () => flowtable.close(),
    };
  }

  async #start({ observer, problems, notes, start, stop }: Part, proxier: Proxier, board: StatusBoard): Promise<void> {
    if (stop !== undefined) this.closers.defer(stop);
    if (observer !== undefined) proxier.observe(observer);
    if (problems !== undefined) board.ask(problems);
    if (notes !== undefined) board.remark(notes);
    await start?.();
  }

  async #answer(proxier: Proxier, cluster: Cluster | undefined, overlaps: ServiceCIDRCheck): Promise<StatusBoard> {
    const parts = { proxier, cluster, observation: this.#observation, listeners: this.#listeners, overlaps };
    const answers = new OperatorAnswers(this.options, parts);
    this.#page = answers.page;
    this.closers.defer(() => answers.close());
    await answers.start();
    return answers.board;
  }

  /** If a table is active, the first write waits for a complete reading of the manifests. */
  async #gated(sink: ObjectSink, proxier: Proxier, source: ManifestSource): Promise<ObjectSink> {
    const { kernel, families, log, allowIncomplete } = this.options;
    const tableActive = (): Promise<boolean> => isTableActive(kernel, families.families);
    const mustBeComplete = !allowIncomplete && (await tableActive());
    const stop = new AbortController();
    this.closers.defer(() => stop.abort());
    const reading = { source, model: proxier.model };
    const options = { reading, mustBeComplete, tableActive, log, signal: stop.signal };
    const begin = async (): Promise<void> => {
      await completeReading(options);
      sink.synced();
      sink.flush();
    };
    return {
      upsert: (object) => sink.upsert(object),
      remove: (kind, name) => sink.remove(kind, name),
      // Stopped before.
      synced: () => void begin().catch(() => undefined),
      flush: () => sink.flush(),
    };
  }

  async #serve(
    proxier: Proxier,
    board: StatusBoard,
    cluster: Cluster | undefined,
    overlaps: ServiceCIDRCheck,
  ): Promise<number> {
    const { config, nodeName, log, families, ended, manifests } = this.options;
    const source = manifests ?? cluster!.source;
    const fatal = Promise.withResolvers<NodeError>();
    const node = { config, nodeName, log, kernel: families, cluster: cluster !== undefined };
    const onNode = (object: NodeRecord): void => {
      this.#observation.health.node(object);
      overlaps.node = object;
    };
    const gate = new NodeGate(proxier, { ...node, onNode, onFatal: fatal.resolve });
    await this.#start({ problems: () => nodeProblems(gate, nodeName), stop: () => gate.stop() }, proxier, board);
    const sink = manifests === undefined ? gate : await this.#gated(gate, proxier, manifests);
    this.closers.defer(() => source.stop());
    proxier.readAhead();
    // The first lists of an API server may take forever, but an unreadable directory ends the program.
    const unusable = source.start(sink).then(async () => {
      const version = await cluster?.version();
      if (version !== undefined) this.#observation.metrics.setKubernetesVersion(version);
      return new Promise<never>(() => undefined);
    });
    const failure = await Promise.race([ended, fatal.promise, unusable]);
    if (failure === undefined) return 0;
    log.error({ code: failure.code }, failure.message);
    return 1;
  }
}
