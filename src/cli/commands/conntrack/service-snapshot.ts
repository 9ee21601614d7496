/** Reads services from manifests, the API server or the daemon, to name entries and to find garbage. */
import { once } from "node:events";
import { closest } from "../../../base/closest.js";
import { IP_FAMILIES } from "../../../base/ip-families.js";
import { serviceProtocol } from "../../../base/protocols.js";
import type { ProxyConfig } from "../../../config/proxy-config.js";
import { isTranslated } from "../../../conntrack/reconcile/stale-entries.js";
import { FormerTargets } from "../../../conntrack/reconcile/former-targets.js";
import {
  nodePortAddressesOf,
  ServiceKnowledge,
  type TargetSource,
} from "../../../conntrack/reconcile/service-knowledge.js";
import type { ConntrackEntry } from "../../../nft/conntrack/conntrack-table.js";
import type { IpFamily } from "../../../base/ip.js";
import type { ServiceTarget } from "../../../model/service-port-view.js";
import { type LocalAddress, nodeFacts, nodePortAddresses } from "../../../node/node-facts.js";
import type { Logger } from "../../../base/logger.js";
import { Metrics } from "../../../observe/metrics.js";
import { NODE_PORT, type ServiceAddress } from "../../../model/service-address.js";
import { servedAddresses } from "../../../proxier/served-addresses.js";
import { ModelSink } from "../../../model/model-sink.js";
import { DaemonAnswers } from "../../answers/daemon-answers.js";
import { withoutKind } from "../../answers/selection.js";
import { UserError } from "../../stdio.js";
import { decoderFor, manifestSource, nodeName, readConfig } from "../../setup.js";
import { programVersion } from "../../version.js";
import type { GetOptions } from "./command-line.js";
import { DaemonServices } from "./daemon-services.js";

const OTHER_SOURCES =
  "Instead, give the services with --manifests <dir>, or with --config or --kubeconfig <file> of an API server.";
/** Maximum time for the API server's first lists, ms. */
const LISTS_MS = 15_000;

/** Names of an entry's service and pod. */
export interface EntryNames {
  /** "namespace/name:port" of the service that has the destination. */
  readonly service?: string;
  /** "namespace/name" of the pod that answers. */
  readonly pod?: string;
}

/** Also keeps the names of pods, and the problems of manifests. */
export class SnapshotSink extends ModelSink {
  /** Address → "namespace/name". */
  readonly pods = new Map<string, string>();
  readonly onPod = (address: string, pod: string): void => void this.pods.set(address, pod);
  /** Manifests whose content is unknown. */
  readonly missing: string[] = [];
  /** Problems of other manifests, which are ignored: "web.yaml: Service default/web: spec.externalIps: unknown field". */
  readonly ignored: string[] = [];
}

/** Services, endpoints and node port addresses at one moment. */
export class ServiceSnapshot {
  readonly model: TargetSource;
  readonly former = new FormerTargets();
  readonly #pods: ReadonlyMap<string, string>;
  readonly #missing: readonly string[];
  readonly #toldByDaemon: boolean;
  readonly #known: Readonly<Record<IpFamily, ServiceKnowledge>>;

  private constructor(
    sink: Pick<SnapshotSink, "pods" | "missing"> & { model: TargetSource },
    addresses: Readonly<Record<IpFamily, readonly string[]>>,
  ) {
    this.model = sink.model;
    this.#pods = sink.pods;
    this.#missing = sink.missing;
    this.#toldByDaemon = sink.model instanceof DaemonServices;
    const known = (family: IpFamily) => new ServiceKnowledge(sink.model, this.former, family, addresses[family]);
    this.#known = { ip: known("ip"), ip6: known("ip6") };
  }

  /**
   * Reads the manifests, or else the objects of the API server in the configuration or kubeconfig. If none is given and the services are
   * `needed`, asks the daemon. Otherwise resolves to undefined. Rejects with UserError.
   */
  static async load(
    options: Pick<GetOptions, "manifests" | "config" | "kubeconfig" | "socket">,
    local: readonly LocalAddress[],
    log: Logger,
    needed: boolean,
  ): Promise<ServiceSnapshot | undefined> {
    const { manifests, config: file, kubeconfig, socket } = options;
    if (manifests === undefined && file === undefined && kubeconfig === undefined)
      return needed ? ServiceSnapshot.#ofDaemon(socket, local) : undefined;
    const config = withKubeconfig(await readConfig(file, log), kubeconfig);
    const name = nodeName(config);
    const sink = await readObjects(config, manifests, log);
    const facts = nodeFacts(config, name, sink.node);
    const addresses = (family: IpFamily): readonly string[] => {
      const { addresses: told, localhost } = nodePortAddresses(config, facts, family, local);
      return [...nodePortAddressesOf(family, told, local), ...(localhost?.nets ?? [])];
    };
    return new ServiceSnapshot(sink, { ip: addresses("ip"), ip6: addresses("ip6") });
  }

  static async #ofDaemon(socket: string | undefined, local: readonly LocalAddress[]): Promise<ServiceSnapshot> {
    const answers = new DaemonAnswers(socket);
    const [{ items }, { families }] = await Promise.all([answers.endpoints(), answers.status()]).catch(
      (error: unknown) => {
        if (!(error instanceof UserError)) throw error;
        throw new UserError(`${error.message} ${OTHER_SOURCES}`, { cause: error });
      },
    );
    const addresses = (family: IpFamily): readonly string[] => {
      const { nodePortAddresses: told = [], localhostNodePorts = [] } =
        families.find((one) => one.family === family) ?? {};
      return [...nodePortAddressesOf(family, told, local), ...localhostNodePorts];
    };
    const model = new DaemonServices(items);
    return new ServiceSnapshot(
      { model, pods: model.pods, missing: [] },
      { ip: addresses("ip"), ip6: addresses("ip6") },
    );
  }

  nodePortAddresses(family: IpFamily): Iterable<string> {
    return this.#known[family].nodePortAddresses;
  }

  /** Finds VIPs and node ports in the kernel's tables that no service has any more. Rejects with KernelError. */
  async findFormer(kernel: Parameters<typeof servedAddresses>[0]): Promise<void> {
    for (const family of IP_FAMILIES) {
      for (const address of await servedAddresses(kernel, family)) {
        if (this.model.ownerOf(address) !== undefined) continue;
        this.former.add(address, { cause: "found", endpoints: undefined });
      }
    }
  }

  /** Returns the service port that has an entry's destination. */
  targetOf({ family, original }: ConntrackEntry): ServiceTarget | undefined {
    const protocol = serviceProtocol(original.protocol);
    if (protocol === undefined) return undefined;
    const known = this.#known[family];
    const { destination, destinationPort: port } = original;
    const vip: ServiceAddress = { family, address: destination, protocol, port };
    const ofVip = known.target(vip);
    if (ofVip !== undefined || !known.isNodePortAddress(destination)) return ofVip;
    return known.target({ ...vip, address: NODE_PORT });
  }

  namesOf(entry: ConntrackEntry): EntryNames {
    const target = this.targetOf(entry);
    const pod = isTranslated(entry) ? this.#pods.get(entry.reply.source) : undefined;
    return { service: target?.id.slice(0, target.id.lastIndexOf("/")), pod };
  }

  /** Throws UserError if a manifest cannot be read, because its services or endpoints would seem to be gone. */
  requireWhole(): void {
    if (this.#missing.length === 0) return;
    const files = this.#missing.join(", ");
    throw new UserError(
      `nothing is deleted, because some services are unknown; correct or remove ${files} (see above)`,
    );
  }

  /**
   * Throws UserError if there may be unknown endpoints. The daemon reports the endpoints of services, but not those of a slice whose Service is
   * gone or has no such port.
   */
  requireAllEndpoints(): void {
    if (!this.#toldByDaemon) return;
    throw new UserError(
      `established connections are not deleted, because the daemon does not report endpoints of slices without a Service. ${OTHER_SOURCES}`,
    );
  }

  /** Finds "[namespace/]name[:port]". Throws UserError if there is no such service, or several. */
  find(text: string): WantedService {
    const [, name, port] = /^([^:]*)(?::(.*))?$/s.exec(withoutKind(text)) ?? [];
    const services = [...this.model.services()];
    const found = services.filter((service) => service === name || service.endsWith(`/${name}`));
    const [service, ...others] = found;
    if (others.length > 0) throw new UserError(`${name} is in ${found.length} namespaces: ${found.join(", ")}`);
    if (service === undefined) {
      const guess = closest(name ?? text, services);
      throw new UserError(`there is no service ${text}${guess === undefined ? "" : ` (did you mean ${guess}?)`}`);
    }
    const isPort = (target: ServiceTarget): boolean =>
      port === undefined || port === String(target.port) || target.id.startsWith(`${service}:${port}/`);
    const targets = IP_FAMILIES.flatMap((family) => [...this.model.targets(family, service)]);
    if (!targets.some(isPort)) throw new UserError(`${text}: ${service} has no such port`);
    return { service, has: (target) => target?.service === service && isPort(target) };
  }
}

/** A service, or one of its ports. */
export interface WantedService {
  /** "namespace/name". */
  readonly service: string;
  has(target: ServiceTarget | undefined): boolean;
}

function withKubeconfig(config: ProxyConfig, kubeconfig: string | undefined): ProxyConfig {
  if (kubeconfig === undefined) return config;
  return { ...config, clientConnection: { ...config.clientConnection, kubeconfig } };
}

/** Reads the current objects of the manifests, or of the configuration's API server. Rejects with UserError. */
export async function readObjects(
  config: ProxyConfig,
  manifests: string | undefined,
  log: Logger,
): Promise<SnapshotSink> {
  const name = nodeName(config);
  const sink = new SnapshotSink({
    families: IP_FAMILIES,
    node: { nodeName: name },
    onProblem: (problem) => log.debug({ ...problem }, "ignored"),
  });
  if (manifests !== undefined) await fromManifests(manifests, config, sink, log);
  else await fromCluster(config, name, sink, log);
  return sink;
}

async function fromManifests(directory: string, config: ProxyConfig, sink: SnapshotSink, log: Logger): Promise<void> {
  const source = manifestSource(directory, decoderFor(config, sink.onPod), undefined, log, (problem) => {
    const { file, served, reason, unknown } = problem;
    if (served === "nothing") return void sink.missing.push(file);
    const field = unknown === undefined ? "" : `${unknown.object}: ${unknown.field}: `;
    sink.ignored.push(`${file}: ${field}${reason}`);
  });
  try {
    await source.start(sink);
  } finally {
    await source.stop();
  }
}

async function fromCluster(config: ProxyConfig, name: string, sink: SnapshotSink, log: Logger): Promise<void> {
  const metrics = new Metrics({ families: [], version: programVersion() });
  const { openCluster } = await import("../../../daemon/cluster.js");
  const cluster = await openCluster({
    ...{ config, nodeName: name, metrics, log, onPod: sink.onPod, deniedIsFinal: true },
  });
  const late = once(AbortSignal.timeout(LISTS_MS), "abort").then(() => {
    throw new UserError(`the API server did not list services and endpoints within ${LISTS_MS / 1000}s`);
  });
  try {
    await Promise.race([cluster.source.start(sink), late]);
  } finally {
    await cluster.source.stop();
    await cluster.close();
  }
}
