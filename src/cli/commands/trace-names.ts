import type { EndpointStatus, ServicePortStatus } from "../../observe/status-report.js";
import { ownerOf } from "../../tools/explain/packet-report.js";
import type { TraceRequest } from "../../tools/trace/trace-request.js";
import type { PacketNames } from "../../tools/trace/connection-text.js";
import type { TracedPacket } from "../../tools/trace/traced-packet.js";
import { DaemonAnswers, isDaemonAway } from "../answers/daemon-answers.js";
import { select } from "../answers/selection.js";

/** How long the daemon's answers are used, ms. */
const KEEP_MS = 5000;

interface Kept {
  readonly until: number;
  readonly ports: Promise<readonly ServicePortStatus[]>;
}

/** Finds the services and endpoints of packets, by asking the daemon. Without a daemon, nothing has a name. */
export class TraceNames {
  readonly #answers: DaemonAnswers;
  #services: readonly ServicePortStatus[];
  #readAt = Date.now();
  readonly #kept = new Map<string, Kept>();

  private constructor(
    answers: DaemonAnswers,
    services: readonly ServicePortStatus[],
    /** False if no daemon answers, so that nothing has a name. */
    readonly known: boolean,
    /** Ports of the service that the user named. */
    readonly requested: readonly ServicePortStatus[],
  ) {
    this.#answers = answers;
    this.#services = services;
  }

  /**
   * Rejects with UserError if the user named a service and no daemon answers, or there is no such service.
   * @param namespace of a service that is named without one.
   */
  static async load(socket: string | undefined, { to }: TraceRequest, namespace?: string): Promise<TraceNames> {
    const answers = new DaemonAnswers(socket);
    try {
      const { items } = await answers.services();
      const requested = "service" in to ? (await select(answers, [to.service], namespace)).items : [];
      return new TraceNames(answers, items, true, requested);
    } catch (error) {
      if (!isDaemonAway(error) || "service" in to) throw error;
      return new TraceNames(answers, [], false, []);
    }
  }

  async of({ family, protocol, packet, translated }: TracedPacket): Promise<PacketNames> {
    const { destination, destinationPort } = packet;
    const addressed = { family, protocol, destination, destinationPort };
    let service = ownerOf(addressed, this.#services);
    if (service === undefined && (await this.#readAgain())) service = ownerOf(addressed, this.#services);
    if (service === undefined || translated === undefined) return service === undefined ? {} : { service };
    const ports = await this.#describe(service);
    const same = ports.find(
      (each) => each.family === family && each.port === service.port && each.protocol === service.protocol,
    );
    const endpoint = same?.endpoints?.find(
      ({ address, port }: EndpointStatus) => address === translated.destination && port === translated.destinationPort,
    );
    return { service, endpoint };
  }

  /** Reads the services again, because new ones may have come. Returns false if it was too early or the daemon is away. */
  async #readAgain(): Promise<boolean> {
    if (!this.known || Date.now() - this.#readAt < KEEP_MS) return false;
    this.#readAt = Date.now();
    // If the daemon is away, the earlier services are used.
    const list = await this.#answers.services().catch(() => undefined);
    this.#services = list?.items ?? this.#services;
    return list !== undefined;
  }

  #describe({ namespace, name }: ServicePortStatus): Promise<readonly ServicePortStatus[]> {
    const id = `${namespace}/${name}`;
    const before = this.#kept.get(id);
    if (before !== undefined && before.until > Date.now()) return before.ports;
    // If the service or the daemon is gone by now, the packet is printed without details of its endpoint.
    const ports = this.#answers.service(namespace, name).then(
      (list) => list?.items ?? [],
      () => [],
    );
    this.#kept.set(id, { until: Date.now() + KEEP_MS, ports });
    return ports;
  }
}
