import { ServiceModel, type ServiceModelOptions } from "./service-model.js";
import type { KubeKind, KubeObject, ObjectSink } from "../objects/object-sink.js";
import type { NodeRecord } from "../objects/records.js";

/** Reads objects into a model, for commands that write no table. */
export class ModelSink implements ObjectSink {
  readonly model: ServiceModel;
  /** This node's Node object. Undefined if there is none. */
  node: NodeRecord | undefined;
  readonly #nodeName: string;

  constructor(options: ServiceModelOptions) {
    this.model = new ServiceModel(options);
    this.#nodeName = options.node.nodeName;
  }

  upsert(object: KubeObject): void {
    this.model.upsert(object);
    if (object.kind === "Node" && object.name === this.#nodeName) this.node = object.record;
  }

  remove(kind: KubeKind, name: string): void {
    this.model.remove(kind, name);
    if (kind === "Node" && name === this.#nodeName) this.node = undefined;
  }

  synced(): void {}

  flush(): void {}
}
