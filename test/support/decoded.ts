/** Decodes an object like a source, for tests that have none. */
import type { V1EndpointSlice, V1Node, V1Service, V1ServiceCIDR } from "@kubernetes/client-node";
import type { Fields } from "../../src/base/unknown.js";
import { nameOf, ObjectDecoder } from "../../src/objects/decode/object-decoder.js";
import type { NodeRecord } from "../../src/objects/records.js";
import type { KubeObject, ObjectSink } from "../../src/objects/object-sink.js";

/** An object as the API server sends it. */
export type ApiObject =
  | { readonly kind: "Service"; readonly object: V1Service }
  | { readonly kind: "EndpointSlice"; readonly object: V1EndpointSlice }
  | { readonly kind: "Node"; readonly object: V1Node }
  | { readonly kind: "ServiceCIDR"; readonly object: V1ServiceCIDR };

/** @param nodeName the default is "this-node". */
export function decoded({ kind, object }: ApiObject, nodeName = "this-node"): KubeObject {
  const fields = object as unknown as Fields;
  return new ObjectDecoder({ nodeName }).decode(kind, nameOf(kind, fields) ?? "(no name)", fields);
}

/** The record of a Node, of any shape. */
export function nodeRecord(node: unknown): NodeRecord {
  const { record } = decoded({ kind: "Node", object: node as V1Node });
  return record as NodeRecord;
}

/** Gives `to` a Service with its EndpointSlice. */
export function putObjects(to: Pick<ObjectSink, "upsert">, service: V1Service, slice: V1EndpointSlice): void {
  to.upsert(decoded({ kind: "Service", object: service }));
  to.upsert(decoded({ kind: "EndpointSlice", object: slice }));
}
