import type { V1Node } from "@kubernetes/client-node";
import { ServiceModel, type ServiceModelOptions } from "./service-model.js";
import type { KubeKind, KubeObject, ObjectSink } from "../objects/object-sink.js";

/** Reads objects into a model, for commands that write no table. */
export class ModelSink implements ObjectSink {
  readonly model: ServiceModel;
  /** This node's Node object. Undefined if there is none. */
  node: V1Node | undefined;
  readonly #nodeName: string;

  constructor(options: ServiceModelOptions) {
    this.model = new ServiceModel(options);
    this.#nodeName = options.node.nodeName;
  }

  upsert(object: KubeObject): void {
    if (object.kind !== "Node") this.model.upsert(object);
    else if (object.name === this.#nodeName) this.node = object.object;
  }

  remove(kind: KubeKind, name: string): void {
    if (kind !== "Node") this.model.remove(kind, name);
    else if (name === this.#nodeName) this.node = undefined;
  }

  synced(): void {}

  flush(): void {}
}
