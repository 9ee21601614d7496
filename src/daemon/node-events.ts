import type { EventRecorder } from "../base/events.js";
import type { ContentionReport, ProxierObserver } from "../proxier/observer.js";

/** Reports on the Node, as an Event, that another process contends for its tables. */
export class NodeEvents implements ProxierObserver {
  readonly #events: EventRecorder;
  readonly #nodeName: string;

  constructor(events: EventRecorder, nodeName: string) {
    this.#events = events;
    this.#nodeName = nodeName;
  }

  contended({ by, hint }: ContentionReport): void {
    this.#events.record(
      { kind: "Node", name: this.#nodeName },
      {
        type: "Warning",
        reason: "TablesContended",
        action: "Repair",
        note: `${by.join(", ")} keeps changing the kube-proxy tables of nf_tables: ${hint}`,
      },
    );
  }
}
