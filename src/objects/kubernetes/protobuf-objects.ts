/**
 * Objects of the Kubernetes API in protobuf. The numbers of the fields are those of `generated.proto` in k8s.io/api and
 * k8s.io/apimachinery. Only fields that this program reads are named.
 */
import { type Fields, isFields } from "../../base/unknown.js";
import {
  BYTES,
  FLAG,
  INTEGER,
  listOf,
  type Message,
  NAME,
  one,
  ProtobufReader,
  TEXT,
  TEXTS_BY_NAME,
  TIME,
} from "./protobuf-reader.js";

/** Media type. */
export const PROTOBUF = "application/vnd.kubernetes.protobuf";
/** Every object, but not an event of a watch, starts with these bytes. */
export const MAGIC = Buffer.from("k8s\0");

const OBJECT_META: Message = {
  1: ["name", TEXT],
  3: ["namespace", NAME],
  5: ["uid", TEXT],
  6: ["resourceVersion", TEXT],
  8: ["creationTimestamp", TIME],
  9: ["deletionTimestamp", TIME],
  11: ["labels", TEXTS_BY_NAME],
  12: ["annotations", TEXTS_BY_NAME],
};

export const LIST_META: Message = {
  2: ["resourceVersion", TEXT],
  3: ["continue", TEXT],
  4: ["remainingItemCount", INTEGER],
};

const SERVICE_PORT: Message = {
  1: ["name", TEXT],
  2: ["protocol", NAME],
  3: ["port", INTEGER],
  5: ["nodePort", INTEGER],
};

const SERVICE_SPEC: Message = {
  1: ["ports", listOf(one(SERVICE_PORT))],
  3: ["clusterIP", TEXT],
  4: ["type", NAME],
  5: ["externalIPs", listOf(TEXT)],
  7: ["sessionAffinity", NAME],
  9: ["loadBalancerSourceRanges", listOf(TEXT)],
  11: ["externalTrafficPolicy", NAME],
  12: ["healthCheckNodePort", INTEGER],
  14: ["sessionAffinityConfig", one({ 1: ["clientIP", one({ 1: ["timeoutSeconds", INTEGER] })] })],
  18: ["clusterIPs", listOf(TEXT)],
  19: ["ipFamilies", listOf(TEXT)],
  22: ["internalTrafficPolicy", NAME],
};

const INGRESS: Message = { 1: ["ip", TEXT], 3: ["ipMode", TEXT] };

const ENDPOINT: Message = {
  1: ["addresses", listOf(TEXT)],
  2: ["conditions", one({ 1: ["ready", FLAG], 2: ["serving", FLAG], 3: ["terminating", FLAG] })],
  4: ["targetRef", one({ 1: ["kind", NAME], 2: ["namespace", NAME], 3: ["name", TEXT] })],
  6: ["nodeName", NAME],
  7: ["zone", NAME],
  8: [
    "hints",
    one({ 1: ["forZones", listOf(one({ 1: ["name", TEXT] }))], 2: ["forNodes", listOf(one({ 1: ["name", TEXT] }))] }),
  ],
};

const ENDPOINT_PORT: Message = { 1: ["name", TEXT], 2: ["protocol", NAME], 3: ["port", INTEGER] };

const NODE_SPEC: Message = {
  1: ["podCIDR", TEXT],
  5: ["taints", listOf(one({ 1: ["key", TEXT] }))],
  7: ["podCIDRs", listOf(TEXT)],
};

const NODE_STATUS: Message = { 5: ["addresses", listOf(one({ 1: ["type", NAME], 2: ["address", TEXT] }))] };

/** By kind. */
const OBJECTS: Readonly<Record<string, Message>> = {
  Service: {
    1: ["metadata", one(OBJECT_META)],
    2: ["spec", one(SERVICE_SPEC)],
    3: ["status", one({ 1: ["loadBalancer", one({ 1: ["ingress", listOf(one(INGRESS))] })] })],
  },
  EndpointSlice: {
    1: ["metadata", one(OBJECT_META)],
    2: ["endpoints", listOf(one(ENDPOINT))],
    3: ["ports", listOf(one(ENDPOINT_PORT))],
    4: ["addressType", NAME],
  },
  Node: {
    1: ["metadata", one(OBJECT_META)],
    2: ["spec", one(NODE_SPEC)],
    3: ["status", one(NODE_STATUS)],
  },
  ServiceCIDR: { 1: ["metadata", one(OBJECT_META)], 2: ["spec", one({ 1: ["cidrs", listOf(TEXT)] })] },
  Status: {
    3: ["message", TEXT],
    4: ["reason", TEXT],
    5: ["details", one({ 5: ["retryAfterSeconds", INTEGER] })],
    6: ["code", INTEGER],
  },
};

export const TYPE_META: Message = { 1: ["apiVersion", NAME], 2: ["kind", NAME] };
/** `runtime.Unknown`, which contains each object. */
const ENVELOPE: Message = { 1: ["typeMeta", one(TYPE_META)], 2: ["raw", BYTES] };
const EVENT: Message = { 1: ["type", NAME], 2: ["object", one({ 1: ["raw", BYTES] })] };

/** The fields of an object of this kind, without its kind and version. Throws `SyntaxError`. */
export function readFields(kind: string, bytes: Buffer): Fields {
  return readMessage(OBJECTS[kind] ?? {}, bytes);
}

/** An object of any kind. It has no fields but its kind and version if this program does not know the kind. Throws `SyntaxError`. */
export function readObject(bytes: Buffer): Fields {
  if (!bytes.subarray(0, MAGIC.length).equals(MAGIC)) throw new SyntaxError('an object does not start with "k8s"');
  const { typeMeta = {}, raw } = readMessage(ENVELOPE, bytes.subarray(MAGIC.length));
  const { kind, apiVersion }: Fields = isFields(typeMeta) ? typeMeta : {};
  const fields = typeof kind === "string" && raw instanceof Buffer ? readFields(kind, raw) : {};
  return { ...fields, kind, apiVersion };
}

/** An event of a watch. Throws `SyntaxError`. */
export function readEvent(bytes: Buffer): Fields {
  const { type, object } = readMessage(EVENT, bytes);
  const raw = isFields(object) ? object["raw"] : undefined;
  return { type, object: raw instanceof Buffer ? readObject(raw) : undefined };
}

/** A message that is all of the bytes. Throws `SyntaxError`. */
export function readMessage(message: Message, bytes: Buffer): Fields {
  return new ProtobufReader(bytes).message(message, bytes.length);
}
