import type { EventRecorder } from "../observe/events.js";
import type { ProxierObserver, SetAside } from "../proxier/observer.js";

const FAMILY = { ip: "IPv4", ip6: "IPv6" } as const;

/** Tells whoever looks at a Service that this node's kernel refuses it. */
export class ServiceEvents implements ProxierObserver {
  readonly #events: EventRecorder;
  readonly #nodeName: string;

  constructor(events: EventRecorder, nodeName: string) {
    this.#events = events;
    this.#nodeName = nodeName;
  }

  setAside({ family, service, reason }: SetAside): void {
    const [namespace = "", name = ""] = service.split("/");
    this.#events.record(
      { kind: "Service", namespace, name },
      {
        type: "Warning",
        reason: "ServiceNotProgrammed",
        action: "Program",
        note: `node ${this.#nodeName} does not serve its ${FAMILY[family]} addresses as the Service now says: ${reason}`,
      },
    );
  }
}
