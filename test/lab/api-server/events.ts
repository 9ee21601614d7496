/** The checks of kube-apiserver on a new events.k8s.io/v1 Event (pkg/apis/core/validation/events.go). */
import type { KubeJson } from "./resources.ts";

const MICRO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;
const SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

/** Returns the reasons to reject the event; empty if it is valid. */
export function eventFaults(event: KubeJson, namespace: string): string[] {
  const faults: string[] = [];
  const text = (field: string) => (typeof event[field] === "string" ? event[field] : "");
  const { name, namespace: own } = event.metadata;
  if (name.length > 253 || !SUBDOMAIN.test(name))
    faults.push("metadata.name: Invalid value: a lowercase RFC 1123 subdomain");
  if (own !== undefined && own !== namespace)
    faults.push("metadata.namespace: does not match the namespace of the request");
  const regarding = (event["regarding"] ?? {}) as { namespace?: string };
  const allowed = regarding.namespace === undefined ? ["default", "kube-system"] : [regarding.namespace];
  if (!allowed.includes(namespace)) faults.push("regarding.namespace: Invalid value: does not match event.namespace");
  if (!MICRO_TIME.test(text("eventTime"))) faults.push("eventTime: Required value");
  for (const field of ["reportingController", "reportingInstance", "action", "reason"]) {
    if (text(field) === "") faults.push(`${field}: Required value`);
    if (text(field).length > 128) faults.push(`${field}: Invalid value: can have at most 128 characters`);
  }
  if (Buffer.byteLength(text("note")) > 1024) faults.push("note: Invalid value: can have at most 1024 characters");
  if (!["Normal", "Warning"].includes(text("type"))) faults.push("type: Invalid value: has to be Normal or Warning");
  return [...faults, ...seriesFaults(event["series"])];
}

function seriesFaults(series: unknown): string[] {
  if (series === undefined) return [];
  const { count, lastObservedTime } = series as { count?: unknown; lastObservedTime?: unknown };
  const faults: string[] = [];
  if (typeof count !== "number" || count < 2) faults.push("series.count: Invalid value: should be at least 2");
  if (typeof lastObservedTime !== "string" || !MICRO_TIME.test(lastObservedTime)) {
    faults.push("series.lastObservedTime: Required value");
  }
  return faults;
}
