import type { V1Node } from "@kubernetes/client-node";
import type { KubeKind, KubeObject, ObjectSink } from "../source/types.js";

/**
 * Passes everything on, and tells what this node's own Node object says. Its deletion says nothing, as with kube-proxy: the
 * node still has its traffic, and the taint or the deletion timestamp before it said that it is to get no more.
 */
export class NodeTap implements ObjectSink {
  readonly #sink: ObjectSink;
  readonly #nodeName: string;
  readonly #onNode: (node: V1Node) => void;

  constructor(sink: ObjectSink, nodeName: string, onNode: (node: V1Node) => void) {
    this.#sink = sink;
    this.#nodeName = nodeName;
    this.#onNode = onNode;
  }

  upsert(object: KubeObject): void {
    if (object.kind === "Node" && object.name === this.#nodeName) this.#onNode(object.object);
    this.#sink.upsert(object);
  }

  remove(kind: KubeKind, name: string): void {
    this.#sink.remove(kind, name);
  }

  synced(pending?: readonly KubeKind[]): void {
    this.#sink.synced(pending);
  }

  listed(kind: KubeKind): void {
    this.#sink.listed?.(kind);
  }

  flush(): void {
    this.#sink.flush();
  }
}
