/** Checks whether the kernel's settings allow the resets that services ask for with the annotation RESET_ANNOTATION. */
import { type Logger, serviceFields } from "../../base/logger.js";

/**
 * net.netfilter.nf_conntrack_tcp_loose. With 1, the default, a segment from the middle of an untracked connection
 * creates an entry. It is answered with a reset if the service asks for that. With 0, such a segment is invalid to
 * connection tracking. A segment outside the window of a healthy connection is also invalid, and the two cannot be told
 * apart, so neither is answered.
 */
export interface ResetSettings {
  /** nf_conntrack_tcp_loose; undefined if it cannot be read. Never rejects. */
  readonly tcpLoose: () => Promise<number | undefined>;
}

const MESSAGE =
  "services request resets of connections to removed endpoints, but net.netfilter.nf_conntrack_tcp_loose is 0, so such " +
  "connections hang until they time out. Run `sysctl -w net.netfilter.nf_conntrack_tcp_loose=1`";

/** Logs once if a service asks for resets that the kernel's settings do not allow. */
export class ResetCheck {
  readonly #settings: ResetSettings;
  readonly #log: Logger;
  #checked = false;

  constructor(settings: ResetSettings, log: Logger) {
    this.#settings = settings;
    this.#log = log;
  }

  /** This service ("namespace/name") asks for resets. Returns at once. */
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
