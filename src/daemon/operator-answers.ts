/** Answers to operators: in the log on a signal, on the control socket, and on the status page. */
import { servesLocalhost } from "../config/node-port-addresses.js";
import { type IpFamily, withPort } from "../base/ip.js";
import { countServedAddresses } from "../proxier/served-addresses.js";
import { NodeWatch } from "../tools/node-inspection.js";
import { handoverProblems } from "../migration/handover/handover-problems.js";
import { ControlServer } from "./control/control-server.js";
import { NotReady, type Route } from "./control/json-answers.js";
import { ServiceBoard } from "./answers/service-board.js";
import { StatusBoard } from "./answers/status-board.js";
import { API_VERSION, type Diagnosis } from "../observe/status-report.js";
import { packetOf, reportOn, type Sources } from "../tools/explain/packet-report.js";
import { reportText } from "../tools/explain/text/report-text.js";
import { NetlinkConntrack } from "../nft/conntrack/netlink-conntrack.js";
import { isLoopback } from "../node/node-facts.js";
import { readSysctl } from "../node/packet-settings.js";
import { RefusalReadings } from "../proxier/refusal-readings.js";
import { FailingServices } from "./answers/failing-services.js";
import { oldKernelWarning } from "../node/kernel-release.js";
import { registerConnectionMetrics } from "../observe/connection-metrics.js";
import { registerLocalhostMetrics } from "../observe/localhost-metrics.js";
import { type HttpHandler, type HttpServer, parseListenAddress } from "../observe/http-server.js";
import { PageFeed } from "./page/page-feed.js";
import { statusPage } from "./page/status-page.js";
import { WriteHistory } from "./page/write-history.js";
import type { Proxier } from "../proxier/proxier.js";
import type { Cluster } from "./cluster.js";
import type { DaemonOptions } from "./daemon-options.js";
import { apiProblems, apiStatus, listenerProblems, manifestProblems, refusalProblems } from "./problems.js";
import type { Observation } from "./servers.js";
import type { ServiceCIDRCheck } from "./service-cidr-check.js";

/** The parts that answers are about. */
interface AnsweredParts {
  readonly proxier: Proxier;
  /** Undefined if objects come from manifests. */
  readonly cluster: Cluster | undefined;
  readonly observation: Observation;
  readonly listeners: readonly HttpServer[];
  readonly overlaps: Pick<ServiceCIDRCheck, "problems">;
}

/** Paths that have no answer before the first write. */
const ABOUT_SERVICES: readonly string[] = ["services", "endpoints", "owner", "unserved"];
const NOTHING_WRITTEN = "it has written no rules since startup (`nft-proxier status` shows why)";

/** By default, names and addresses of all services are only for this node's users. */
export function showsPage({ config, node, statusPage: asked }: DaemonOptions): boolean {
  if (node === undefined || config.metricsBindAddress === "") return false;
  return asked ?? isLoopback(parseListenAddress(config.metricsBindAddress).host);
}

/** Requests of the status page share what is read from the kernel for this time, ms. */
const SHARED_MS = 1_000;

function urlOfPage(options: DaemonOptions): string | undefined {
  if (!showsPage(options)) return undefined;
  const { host, port } = parseListenAddress(options.config.metricsBindAddress);
  return `http://${withPort(host === "::" ? "127.0.0.1" : host, port)}/status`;
}

export class OperatorAnswers {
  readonly board: StatusBoard;
  /** Handler of the status page. Undefined if there is none. */
  readonly page: HttpHandler | undefined;
  readonly #refusals: RefusalReadings;
  readonly #route: Route;
  #server: ControlServer | undefined;

  constructor(
    private readonly options: DaemonOptions,
    private readonly parts: AnsweredParts,
  ) {
    const { proxier } = parts;
    const { families } = options.families;
    this.#refusals = new RefusalReadings({ kernel: options.kernel, families, model: proxier.model });
    this.board = this.#statusBoard();
    if (options.serviceCounters !== "off") proxier.observe(this.#refusals);
    proxier.observe(this.board);
    const services = this.#countServices();
    this.#route = (path) => {
      // Before the first write, the model may be empty while the kernel still serves the rules of an earlier run.
      const isEarly = this.board.writtenNothing && ABOUT_SERVICES.includes(path[0] ?? "");
      if (isEarly) return Promise.resolve(new NotReady(NOTHING_WRITTEN));
      return services.route(path) ?? this.board.route(path);
    };
    this.page = showsPage(options) ? this.#statusPage(services) : undefined;
    options.onStatusRequest(() => this.board.say());
  }

  /** Never rejects. Logs a failure to listen. */
  async start(): Promise<void> {
    const { controlSocket, log } = this.options;
    if (controlSocket === undefined) return;
    // The status page lacks this route, because its answer is only for users who may open the socket.
    const route: Route = (path) => {
      return path.join("/") === "diagnosis" ? this.#diagnosis() : this.#route(path);
    };
    this.#server = new ControlServer(controlSocket, route, log);
    await this.#server.start();
  }

  async close(): Promise<void> {
    await this.#server?.close();
  }

  #statusBoard(): StatusBoard {
    const { kernel, version, nodeName, manifests, config, log } = this.options;
    const { proxier, cluster, observation, listeners, overlaps } = this.parts;
    const { masqueradeBit } = config.nftables;
    const node = new NodeWatch({ kernel, legacy: kernel.legacy, masqueradeBit, config });
    const failing = new FailingServices({
      families: this.options.families.families,
      model: proxier.model,
      refusals: this.#refusals,
      openConntrack: () => NetlinkConntrack.open(),
      synSentSeconds: () => readSysctl("net.netfilter.nf_conntrack_tcp_timeout_syn_sent"),
    });
    const board = new StatusBoard({
      log,
      version,
      nodeName,
      families: this.options.families.families,
      model: proxier.model,
      health: observation.health,
      servesHealthz: this.options.node !== undefined && config.healthzBindAddress !== "",
      inspectNode: async (served) => {
        const [inspection, ...others] = await Promise.all([
          node.inspect(served),
          handoverProblems(kernel),
          overlaps.problems(),
        ]);
        return { ...inspection, problems: [...inspection.problems, ...others.flat()] };
      },
      kernelEntries: (family) => countServedAddresses(kernel, family),
      failingServices: () => failing.problems(),
      missingFeatures: () => this.#missingFeatures(),
      page: urlOfPage(this.options),
      api: cluster && (() => apiStatus(cluster)),
      ignoredInManifests: manifests && (() => manifests.problems().length),
    });
    if (cluster !== undefined) board.ask(() => apiProblems(cluster));
    if (manifests !== undefined) board.ask(() => manifestProblems(manifests));
    board.ask(() => listenerProblems(listeners));
    board.ask(() => refusalProblems(this.#refusals, this.options.families.families));
    return board;
  }

  #statusPage(services: ServiceBoard): HttpHandler {
    const { kernel } = this.options;
    const history = new WriteHistory();
    this.parts.proxier.observe(history);
    const feed = new PageFeed({
      ...{ answers: this.#route, services, history },
      status: (maxAgeMs) => this.board.status(maxAgeMs),
    });
    this.parts.proxier.observe(feed);
    const { ownerOf, services: all } = services.sources;
    const sources: Sources = {
      ownerOf: (to) => (this.board.writtenNothing ? Promise.resolve(undefined) : ownerOf(to)),
      services: all,
      nodePorts: (family: IpFamily) => Promise.resolve(this.board.nodePortsOf(family)),
    };
    const explain = async (words: readonly string[]): Promise<string> =>
      reportText(await reportOn(packetOf(words, ""), kernel, sources));
    // A status is also read from the kernel, and anyone on this node may ask for it here.
    const answers: Route = (path) => (path.join("/") === "status" ? this.board.status(SHARED_MS) : this.#route(path));
    return statusPage({ answers, services, feed, explain });
  }

  /** Counts services' connections, for metrics and answers. */
  #countServices(): ServiceBoard {
    const { clock, serviceCounters, connectionSeries: series } = this.options;
    const { families } = this.options.families;
    const { proxier, observation } = this.parts;
    const services = new ServiceBoard({
      families,
      proxier,
      states: this.board,
      clock,
      counters: serviceCounters,
      refusals: this.#refusals,
    });
    const { registry } = observation.metrics;
    if (servesLocalhost(this.options.config)) registerLocalhostMetrics(registry, proxier.families);
    registerConnectionMetrics(registry, services, { families, series });
    return services;
  }

  async #diagnosis(): Promise<Diagnosis> {
    const { config, node, logTail } = this.options;
    return {
      apiVersion: API_VERSION,
      kind: "Diagnosis",
      configuration: node?.configz ?? config,
      flags: node?.flagz ?? "",
      metrics: await this.parts.observation.metrics.render(),
      log: logTail?.text ?? "",
    };
  }

  async #missingFeatures(): Promise<readonly string[]> {
    const { noIPv6 } = this.options.families;
    const old = oldKernelWarning();
    return [
      ...(noIPv6 === undefined ? [] : [`IPv6: ${noIPv6}`]),
      ...(await this.parts.proxier.nodeRules.missingFeatures()),
      ...(old === undefined ? [] : [old]),
    ];
  }
}
