import type { ServicePortStatus } from "../../observe/status-report.js";
import { ownerOf } from "../../tools/explain/packet-report.js";
import type { Addressed } from "../../tools/explain/machine/packet-spec.js";
import type { TraceRequest } from "../../tools/trace/trace-request.js";
import type { PacketNames } from "../../tools/trace/outcome-line.js";
import type { TracedPacket } from "../../tools/trace/traced-packet.js";
import { DaemonAway } from "../../daemon/control/client.js";
import { DaemonAnswers } from "../answers/daemon-answers.js";
import { select } from "../answers/selection.js";

/** How long the daemon's answers are used, ms. */
const KEEP_MS = 5000;
const MOST_KEPT = 1000;

interface Kept {
  readonly until: number;
  readonly ports: Promise<readonly ServicePortStatus[]>;
}

/** Finds the services and endpoints of packets, by asking the daemon. Without a daemon, nothing has a name. */
export class TraceNames {
  readonly #answers: DaemonAnswers;
  readonly #kept = new Map<string, Kept>();

  private constructor(
    answers: DaemonAnswers,
    /** False if no daemon answers, so that nothing has a name. */
    readonly known: boolean,
    /** Ports of the service that the user named. */
    readonly requested: readonly ServicePortStatus[],
  ) {
    this.#answers = answers;
  }

  /**
   * Rejects with UserError if the user named a service and no daemon answers, or there is no such service.
   * @param namespace of a service that is named without one.
   */
  static async load(socket: string | undefined, { to }: TraceRequest, namespace?: string): Promise<TraceNames> {
    const answers = new DaemonAnswers(socket);
    if ("service" in to) return new TraceNames(answers, true, (await select(answers, [to.service], namespace)).items);
    try {
      await answers.eachService(() => undefined);
      return new TraceNames(answers, true, []);
    } catch (error) {
      if (!(error instanceof DaemonAway)) throw error;
      return new TraceNames(answers, false, []);
    }
  }

  async of({ family, protocol, packet, translated }: TracedPacket): Promise<PacketNames> {
    const { destination, destinationPort } = packet;
    const addressed = { family, protocol, destination, destinationPort };
    const service = this.known ? ownerOf(addressed, await this.#ownersOf(addressed)) : undefined;
    const endpoint = service?.endpoints?.find(
      ({ address, port }) => address === translated?.destination && port === translated.destinationPort,
    );
    return { service, endpoint };
  }

  #ownersOf(addressed: Addressed): Promise<readonly ServicePortStatus[]> {
    const id = JSON.stringify(addressed);
    const before = this.#kept.get(id);
    if (before !== undefined && before.until > Date.now()) return before.ports;
    // If the service or the daemon is gone by now, the connection is printed without names.
    const ports = this.#answers.ownerOf(addressed).then(
      (list) => list?.items ?? [],
      () => [],
    );
    if (this.#kept.size >= MOST_KEPT) this.#kept.clear();
    this.#kept.set(id, { until: Date.now() + KEEP_MS, ports });
    return ports;
  }
}
