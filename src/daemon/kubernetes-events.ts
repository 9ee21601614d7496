/** Events that `kubectl describe` shows: on the Node, and on Services that its kernel rejects. */
import type { EventRecorder, EventSubject } from "../base/events.js";
import { FAMILY_NAMES } from "../base/ip-families.js";
import { serviceFields } from "../base/logger.js";
import type { ContentionReport, ProxierObserver, QuarantineReport, RebuildReport } from "../proxier/observer.js";

export class KubernetesEvents implements ProxierObserver {
  readonly #node: EventSubject;

  /** @param uidOf metadata.uid of "namespace/name", which `kubectl describe` needs to find Events; "" if unknown. */
  constructor(
    private readonly events: EventRecorder,
    nodeName: string,
    private readonly uidOf: (service: string) => string,
  ) {
    this.#node = { kind: "Node", name: nodeName };
  }

  /** Records the same Event as kube-proxy, so that the Node's Events show when its proxier started. */
  started(): void {
    this.events.record(this.#node, { type: "Normal", reason: "Starting", action: "StartKubeProxy", note: "" });
  }

  quarantined({ family, service, reason }: QuarantineReport): void {
    const { namespace, service: name } = serviceFields(service);
    const uid = this.uidOf(service);
    const note = `node ${this.#node.name} does not serve the current ${FAMILY_NAMES[family]} configuration of this Service: ${reason}`;
    this.events.record(
      { kind: "Service", namespace, name, uid: uid || undefined },
      { type: "Warning", reason: "ServiceNotProgrammed", action: "Program", note },
    );
  }

  rebuilt({ family, ok, refused }: RebuildReport): void {
    const outcome = ok ? "was deleted and written from scratch" : "cannot be written, not even from scratch";
    const note = `the ${FAMILY_NAMES[family]} kube-proxy table of nf_tables ${outcome}; the kernel refused to change it: ${refused.join("; ")}`;
    this.events.record(this.#node, { type: "Warning", reason: "TableRebuilt", action: "Repair", note });
  }

  contended({ by, hint }: ContentionReport): void {
    const note = `${by.join(", ")} keeps changing the kube-proxy tables of nf_tables: ${hint}`;
    this.events.record(this.#node, { type: "Warning", reason: "TablesContended", action: "Repair", note });
  }
}
