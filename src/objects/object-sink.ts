import type { V1Node } from "@kubernetes/client-node";
import type { ModelObject } from "./records.js";

/** One object, and read by few: what is needed of it is read where it is needed, with care. */
export interface NodeObject {
  readonly kind: "Node";
  readonly name: string;
  readonly object: V1Node;
}

/** An object, decoded. */
export type KubeObject = ModelObject | NodeObject;

export type KubeKind = KubeObject["kind"];

/** Who receives objects. Calls are synchronous and cheap: nothing here touches the kernel. */
export interface ObjectSink {
  upsert(object: KubeObject): void;
  /** `name` is "namespace/name", or the name alone for cluster-wide kinds. */
  remove(kind: KubeKind, name: string): void;
  /**
   * The first full list is in; called once. `pending`: kinds whose own first list is still to come, `listed` tells when it
   * has. Never Service or EndpointSlice. Default: none.
   */
  synced(pending?: readonly KubeKind[]): void;
  /** The first full list of a kind that was pending at `synced` is in, or the server does not have the kind. A flush follows. */
  listed?(kind: KubeKind): void;
  /** A group of upserts and removes that belong together is over: now is a good time to write. */
  flush(): void;
}

/** Where objects come from: the API server, or a directory. */
export interface ObjectSource {
  /** Resolves when the first full list has been delivered (after `synced`), pending kinds aside. Rejects when there can be none. */
  start(sink: ObjectSink): Promise<void>;
  stop(): Promise<void>;
}
