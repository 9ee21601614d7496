/** metadata.managedFields as server-side tracking writes it: it repeats the field names of the object. */
import type { KubeJson } from "./resources.ts";

/** Lists that have one owner as a whole. */
const ATOMIC = new Set(["endpoints", "addresses", "ports", "cidrs"]);

export function managedFields(apiVersion: string, object: KubeJson): readonly unknown[] {
  const { kind: _kind, apiVersion: _apiVersion, metadata, ...rest } = object;
  const { labels, annotations } = metadata as { labels?: unknown; annotations?: unknown };
  const owned = { ...((labels ?? annotations) !== undefined && { metadata: { labels, annotations } }), ...rest };
  return [
    {
      manager: "kube-controller-manager",
      operation: "Update",
      apiVersion,
      time: "2026-01-01T00:00:00Z",
      fieldsType: "FieldsV1",
      fieldsV1: fieldsOf(owned),
    },
  ];
}

function fieldsOf(value: object): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(value) as [string, unknown][]) {
    if (field === undefined) continue;
    const nested = typeof field === "object" && field !== null && !Array.isArray(field) && !ATOMIC.has(name);
    fields[`f:${name}`] = nested ? { ".": {}, ...fieldsOf(field) } : {};
  }
  return fields;
}
