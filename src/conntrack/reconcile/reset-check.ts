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

/**
 * Returns a function to call with each service ("namespace/name") that asks for resets. It returns at once. Logs once if the kernel's settings do
 * not allow them.
 */
export function resetCheck(settings: ResetSettings, log: Logger): (service: string) => void {
  let checked: Promise<void> | undefined;
  const check = async (service: string): Promise<void> => {
    if ((await settings.tcpLoose()) === 0) log.warn(serviceFields(service), MESSAGE);
  };
  return (service) => void (checked ??= check(service));
}
