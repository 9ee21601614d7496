/** Decodes an object like a source. */
import type { V1EndpointSlice, V1Service, V1ServiceCIDR } from "@kubernetes/client-node";
import type { Fields } from "../../dist/base/unknown.js";
import { nameOf, ObjectDecoder } from "../../dist/objects/decode/object-decoder.js";
import type { KubeObject } from "../../dist/objects/object-sink.js";

const decoder = new ObjectDecoder({ nodeName: "bench-node" });

export function decoded({
  kind,
  object,
}:
  | { readonly kind: "Service"; readonly object: V1Service }
  | { readonly kind: "EndpointSlice"; readonly object: V1EndpointSlice }
  | { readonly kind: "ServiceCIDR"; readonly object: V1ServiceCIDR }): KubeObject {
  const fields = object as unknown as Fields;
  return decoder.decode(kind, nameOf(kind, fields) ?? "", fields);
}
