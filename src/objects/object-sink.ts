import type { KubeKind, KubeObject } from "./records.js";

export type { KubeKind, KubeObject } from "./records.js";

/** Receives objects. Calls are synchronous and cheap: nothing here touches the kernel. */
export interface ObjectSink {
  upsert(object: KubeObject): void;
  /** `name` is "namespace/name", or only the name for cluster-wide kinds. */
  remove(kind: KubeKind, name: string): void;
  /**
   * The first full list has arrived; called once. @param pending kinds whose first list has not arrived; `listed` reports it
   * later. Never Service or EndpointSlice. Default: none.
   */
  synced(pending?: readonly KubeKind[]): void;
  /**
   * The first full list of a kind that was pending at `synced` has arrived, or the server does not have the kind. A flush
   * follows.
   */
  listed?(kind: KubeKind): void;
  /** Ends a group of upserts and removes that belong together: now is a good time to write. */
  flush(): void;
}

/** Source of objects: the API server, or a directory. */
export interface ObjectSource {
  /**
   * Resolves when the first full list has been delivered (after `synced`), without the pending kinds. Rejects if there can be
   * none.
   */
  start(sink: ObjectSink): Promise<void>;
  stop(): Promise<void>;
}
