/**
 * What is kept of an object: the fields that this program reads. managedFields, other people's annotations, selectors and
 * conditions are most of what an object weighs; none of it goes further than here.
 */
import type { V1EndpointSlice, V1Node, V1ObjectMeta, V1Service, V1ServiceCIDR } from "@kubernetes/client-node";
import { type Fields, isFields } from "../../base/unknown.js";
import type { KubeObject } from "../types.js";

/** Switches for a single Service, and the trigger time of an EndpointSlice, are annotations. */
const ANNOTATION_PREFIX = "nft-proxier.dev/";
const ANNOTATIONS: ReadonlySet<string> = new Set(["endpoints.kubernetes.io/last-change-trigger-time"]);
/** Labels of Services and EndpointSlices that say whose they are. Of a Node all labels stay: it is only one. */
const LABELS: ReadonlySet<string> = new Set([
  "kubernetes.io/service-name",
  "service.kubernetes.io/headless",
  "service.kubernetes.io/service-proxy-name",
]);

export function pruneService(object: Fields): KubeObject {
  const { spec, status } = object;
  const pruned = { metadata: metadataOf(object, LABELS), spec: serviceSpec(spec), status: serviceStatus(status) };
  return { kind: "Service", object: pruned as V1Service };
}

/** The list of ports is left as it is: it holds hardly anything else. */
function serviceSpec(spec: unknown): unknown {
  if (!isFields(spec)) return spec;
  return {
    type: spec["type"],
    clusterIP: spec["clusterIP"],
    clusterIPs: spec["clusterIPs"],
    ipFamilies: spec["ipFamilies"],
    ports: spec["ports"],
    externalIPs: spec["externalIPs"],
    loadBalancerSourceRanges: spec["loadBalancerSourceRanges"],
    sessionAffinity: spec["sessionAffinity"],
    sessionAffinityConfig: spec["sessionAffinityConfig"],
    internalTrafficPolicy: spec["internalTrafficPolicy"],
    externalTrafficPolicy: spec["externalTrafficPolicy"],
    healthCheckNodePort: spec["healthCheckNodePort"],
  };
}

function serviceStatus(status: unknown): unknown {
  return isFields(status) ? { loadBalancer: status["loadBalancer"] } : status;
}

export function pruneEndpointSlice(object: Fields): KubeObject {
  const pruned = {
    metadata: metadataOf(object, LABELS),
    addressType: object["addressType"],
    endpoints: object["endpoints"],
    ports: object["ports"],
  };
  return { kind: "EndpointSlice", object: pruned as V1EndpointSlice };
}

export function pruneNode(object: Fields): KubeObject {
  const { spec, status } = object;
  const pruned = {
    metadata: metadataOf(object, undefined),
    spec: isFields(spec) ? { podCIDR: spec["podCIDR"], podCIDRs: spec["podCIDRs"], taints: spec["taints"] } : spec,
    status: isFields(status) ? { addresses: status["addresses"] } : status,
  };
  return { kind: "Node", object: pruned as V1Node };
}

export function pruneServiceCIDR(object: Fields): KubeObject {
  const { spec } = object;
  const pruned = { metadata: metadataOf(object, LABELS), spec: isFields(spec) ? { cidrs: spec["cidrs"] } : spec };
  return { kind: "ServiceCIDR", object: pruned as V1ServiceCIDR };
}

/** `labels`: those to keep; undefined: all. */
function metadataOf(object: Fields, labels: ReadonlySet<string> | undefined): V1ObjectMeta {
  const { metadata } = object;
  if (!isFields(metadata)) return {};
  const pruned: Record<string, unknown> = {
    name: metadata["name"],
    namespace: metadata["namespace"],
    uid: metadata["uid"],
    creationTimestamp: dateOf(metadata["creationTimestamp"]),
    labels: labels === undefined ? metadata["labels"] : someOf(metadata["labels"], (name) => labels.has(name)),
    annotations: someOf(metadata["annotations"], isOurs),
  };
  if (metadata["deletionTimestamp"] != null) pruned["deletionTimestamp"] = dateOf(metadata["deletionTimestamp"]);
  return pruned;
}

function isOurs(annotation: string): boolean {
  return ANNOTATIONS.has(annotation) || annotation.startsWith(ANNOTATION_PREFIX);
}

/** Undefined when nothing is left. */
function someOf(map: unknown, keep: (name: string) => boolean): Fields | undefined {
  if (!isFields(map)) return undefined;
  let kept: Record<string, unknown> | undefined;
  for (const name in map) if (keep(name)) (kept ??= {})[name] = map[name];
  return kept;
}

function dateOf(value: unknown): Date | undefined {
  return typeof value === "string" ? new Date(value) : undefined;
}
