/** Whether the kernel's settings let the resets happen that services ask for, by the annotation RESET_ANNOTATION. */
import { type Logger, serviceFields } from "../../base/logger.js";

/**
 * net.netfilter.nf_conntrack_tcp_loose: with 1, the default, a segment from the middle of a connection that is not tracked (any
 * more) begins an entry, and is answered with a reset as its service asks for. With 0 it is invalid to connection tracking, as is
 * one outside the window of a connection that is well: these cannot be told apart, so neither is answered.
 */
export interface ResetSettings {
  /** nf_conntrack_tcp_loose; undefined where it cannot be read. Never rejects. */
  readonly tcpLoose: () => Promise<number | undefined>;
}

const MESSAGE =
  "services ask for resets of connections to endpoints that are gone, but net.netfilter.nf_conntrack_tcp_loose is 0: such " +
  "connections hang until they time out. For resets: sysctl -w net.netfilter.nf_conntrack_tcp_loose=1";

/** Says so once when a service asks for resets that cannot be. */
export class ResetCheck {
  readonly #settings: ResetSettings;
  readonly #log: Logger;
  #checked = false;

  constructor(settings: ResetSettings, log: Logger) {
    this.#settings = settings;
    this.#log = log;
  }

  /** This service ("namespace/name") asks for them. Returns at once. */
  asked(service: string): void {
    if (this.#checked) return;
    this.#checked = true;
    void this.#check(service);
  }

  async #check(service: string): Promise<void> {
    const loose = await this.#settings.tcpLoose();
    if (loose === 0) this.#log.warn(serviceFields(service), MESSAGE);
  }
}
