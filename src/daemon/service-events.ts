import type { EventRecorder } from "../base/events.js";
import type { ProxierObserver, QuarantineReport } from "../proxier/observer.js";

const FAMILY = { ip: "IPv4", ip6: "IPv6" } as const;

/** Tells whoever looks at a Service that this node's kernel refuses it. */
export class ServiceEvents implements ProxierObserver {
  readonly #events: EventRecorder;
  readonly #nodeName: string;
  readonly #uidOf: (service: string) => string;

  /** @param uidOf metadata.uid of "namespace/name", by which `kubectl describe` finds Events; "": not known. */
  constructor(events: EventRecorder, nodeName: string, uidOf: (service: string) => string) {
    this.#events = events;
    this.#nodeName = nodeName;
    this.#uidOf = uidOf;
  }

  quarantined({ family, service, reason }: QuarantineReport): void {
    const [namespace = "", name = ""] = service.split("/");
    const uid = this.#uidOf(service);
    this.#events.record(
      { kind: "Service", namespace, name, ...(uid !== "" && { uid }) },
      {
        type: "Warning",
        reason: "ServiceNotProgrammed",
        action: "Program",
        note: `node ${this.#nodeName} does not serve its ${FAMILY[family]} addresses as the Service now says: ${reason}`,
      },
    );
  }
}
