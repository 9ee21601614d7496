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
import type { StatusBoard } from "./answers/status-board.js";
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
import { type HttpHandler, textReply } from "../observe/http-server.js";
import { OperatorAnswers, showsPage } from "./operator-answers.js";
import { Closers } from "./closers.js";
import type { Cluster } from "./cluster.js";
import { followConntrack } from "./conntrack-follower.js";
import { KubernetesEvents } from "./kubernetes-events.js";
import { MemoryRelease } from "./memory-release.js";
import { completeReading, isTableActive } from "./complete-reading.js";
import { flowtableProblems, healthCheckProblems, leftoverProblems, nodeProblems, nodeUnread } from "./problems.js";
import { registerFlowtableMetrics } from "../observe/flowtable-metrics.js";
import type { Listener } from "../observe/listeners.js";
import { configuredListeners, Observation, serviceHealth } from "./servers.js";
import { SizeWatch } from "./size-watch.js";
import { ServiceCIDRCheck } from "./service-cidr-check.js";
import type { DaemonOptions } from "./daemon-options.js";

/**
 * Serves until `ended`. Returns the exit code. Rejects if it cannot start because the API server's connection settings
 * are unusable or a directory cannot be read. With `bindAddressHardFail`, an address that is not available is also an
 * error.
 */
export async function runDaemon(options: DaemonOptions): Promise<number> {
  const closers = new Closers();
  try {
    return await new Daemon(options, closers).run();
  } finally {
    await closers.close();
  }
}

class Daemon {
  readonly #options: DaemonOptions;
  readonly #closers: Closers;
  readonly #observation: Observation;
  /** Set when there is something to show. */
  #page: HttpHandler | undefined;
  #listeners: readonly Listener[] = [];

  constructor(options: DaemonOptions, closers: Closers) {
    this.#options = options;
    this.#closers = closers;
    const { config, version, clock, manifests } = options;
    const nodeName = manifests === undefined ? options.nodeName : undefined;
    const { families } = options.families;
    this.#observation = new Observation({ config, families, nodeName, version, clock });
  }

  async run(): Promise<number> {
    const { config, kernel, log, manifests, node } = this.#options;
    const cluster = manifests === undefined ? await this.#openCluster() : undefined;
    const events = cluster?.events ?? NO_EVENTS;
    if (node !== undefined) {
      await applySystemSettings(config, { log, loadConntrack: () => loadConntrack(kernel) });
      await this.#listen(node, events);
    }
    await this.#reportForwarding();
    const proxier = this.#proxier();
    const overlaps = this.#serviceCIDRCheck(proxier);
    const board = await this.#answer(proxier, cluster, overlaps);
    await this.#follow(proxier, events, board);
    await this.#keepFlowtable(board);
    return this.#serve(proxier, board, cluster, overlaps);
  }

  async #reportForwarding(): Promise<void> {
    const { config, kernel, log, families } = this.#options;
    await reportForwarding({ config, kernel, log, families: families.families, legacy: kernel.legacy });
  }

  async #openCluster(): Promise<Cluster> {
    const { config, nodeName, log } = this.#options;
    const { openCluster } = await import("./cluster.js");
    const cluster = await openCluster({ config, nodeName, log, metrics: this.#observation.metrics });
    this.#closers.add(() => cluster.close());
    this.#observation.health.nodeUnread = () => nodeUnread(cluster);
    return cluster;
  }

  async #listen(pages: { configz: unknown; flagz: string }, events: EventRecorder): Promise<void> {
    const { config, nodeName, log, version } = this.#options;
    const page: HttpHandler = (request) =>
      this.#page?.(request) ?? textReply(503, "the program is starting; see the log\n");
    const shared = { config, nodeName, events, log, version, pages };
    const options = { ...shared, statusPage: showsPage(this.#options) ? page : undefined };
    this.#listeners = configuredListeners(options, this.#observation);
    for (const server of this.#listeners) {
      this.#closers.add(() => server.close());
      await server.start();
    }
  }

  #proxier(): Proxier {
    const { config, nodeName, kernel, log, clock, ownTable, serviceCounters } = this.#options;
    const { families } = this.#options.families;
    const { observers } = this.#observation;
    const options = {
      config,
      nodeName,
      families,
      kernel,
      interfaces: kernel.interfaces,
      log,
      clock,
      observers,
      watch: true,
      trackRemovals: true,
      ownTable,
      serviceCounters,
    };
    const proxier = new Proxier(options);
    proxier.observe(new SizeWatch(proxier.model));
    // On a busy machine, the process may end before the proxier has stopped.
    const logWrites = (): void => proxier.logRecentWrites();
    process.once("exit", logWrites);
    this.#closers.add(() => void process.off("exit", logWrites));
    this.#closers.add(() => proxier.stop());
    return proxier;
  }

  /** Starts everything that follows the proxier's work. */
  async #follow(proxier: Proxier, events: EventRecorder, board: StatusBoard): Promise<void> {
    const { nodeName, kernel, log, node, gcInterval } = this.#options;
    const { families } = this.#options.families;
    const { metrics } = this.#observation;
    const recorder = new KubernetesEvents(events, nodeName, (service) => proxier.model.uidOf(service));
    proxier.observe(recorder);
    const memory = new MemoryRelease(() => kernel.connection.releaseMemory());
    this.#closers.add(() => memory.close());
    proxier.observe(memory);
    this.#closers.add(await followConntrack({ proxier, families, metrics, log, gcInterval }));
    const handover = new HandoverRemoval({ kernel, log });
    this.#closers.add(() => handover.done());
    proxier.observe(handover);
    if (node !== undefined) this.#followNode(proxier, events, board);
    recorder.started();
  }

  async #keepFlowtable(board: StatusBoard): Promise<void> {
    const { kernel, log, flowtable: interfaces } = this.#options;
    if (interfaces === undefined) {
      await removeFlowtable(kernel, log);
      return;
    }
    const { registry } = this.#observation.metrics;
    const onFailure = registerFlowtableMetrics(registry, () => flowtable.devices.length);
    const flowtable = new Flowtable({ kernel, links: kernel.interfaces, log, interfaces, onFailure });
    this.#closers.add(() => flowtable.close());
    board.ask(() => flowtableProblems(flowtable));
    // The services' first write does not wait for this.
    void flowtable.start();
  }

  #serviceCIDRCheck(proxier: Proxier): ServiceCIDRCheck {
    const { config, nodeName, log } = this.#options;
    const { families } = this.#options.families;
    const overlaps = new ServiceCIDRCheck({ config, nodeName, families, proxier, log });
    proxier.observe(overlaps);
    return overlaps;
  }

  async #answer(proxier: Proxier, cluster: Cluster | undefined, overlaps: ServiceCIDRCheck): Promise<StatusBoard> {
    const parts = { proxier, cluster, observation: this.#observation, listeners: this.#listeners, overlaps };
    const answers = new OperatorAnswers(this.#options, parts);
    this.#page = answers.page;
    this.#closers.add(() => answers.close());
    await answers.start();
    return answers.board;
  }

  #followNode(proxier: Proxier, events: EventRecorder, board: StatusBoard): void {
    const { config, nodeName, kernel, log } = this.#options;
    const { families } = this.#options.families;
    const health = serviceHealth({ nodeName, events, log }, this.#observation, (family, service) =>
      proxier.model.healthCheck(family, service),
    );
    this.#closers.add(() => health.close());
    proxier.observe(health);
    board.ask(() => healthCheckProblems(health));
    const { legacy, connection } = kernel;
    const { excludeCIDRs } = config.ipvs;
    const leftovers = new LeftoverRemoval({ kernel, log, families, legacy, netlink: connection, excludeCIDRs });
    this.#closers.add(() => leftovers.close());
    board.remark(() => leftovers.notes);
    board.ask(() => leftoverProblems(leftovers));
    proxier.observe(leftovers);
  }

  /** If a table is active, the first write waits for a complete reading of the manifests. */
  async #gated(sink: ObjectSink, proxier: Proxier, source: ManifestSource): Promise<ObjectSink> {
    const { kernel, families, log, allowIncomplete } = this.#options;
    const tableActive = (): Promise<boolean> => isTableActive(kernel, families.families);
    const mustBeComplete = !allowIncomplete && (await tableActive());
    const stop = new AbortController();
    this.#closers.add(() => stop.abort());
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
    const { config, nodeName, log, families, ended, manifests } = this.#options;
    const source = manifests ?? cluster!.source;
    const fatal = Promise.withResolvers<NodeError>();
    const node = { config, nodeName, log, kernel: families, cluster: cluster !== undefined };
    const onNode = (object: NodeRecord): void => {
      this.#observation.health.node(object);
      overlaps.node = object;
    };
    const gate = new NodeGate(proxier, { ...node, onNode, onFatal: fatal.resolve });
    this.#closers.add(() => gate.stop());
    board.ask(() => nodeProblems(gate, nodeName));
    const sink = manifests === undefined ? gate : await this.#gated(gate, proxier, manifests);
    this.#closers.add(() => source.stop());
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
