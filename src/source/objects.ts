/** From plain values to the objects that matter, by apiVersion and kind. */
import { type Fields, isFields } from "../base/unknown.js";
import type { KubeKind, KubeObject } from "./types.js";

/** API versions that are read, by kind. */
const VERSIONS: Readonly<Record<KubeKind, readonly string[]>> = {
  Service: ["v1"],
  EndpointSlice: ["discovery.k8s.io/v1"],
  Node: ["v1"],
  ServiceCIDR: ["networking.k8s.io/v1", "networking.k8s.io/v1beta1"],
};

/** An object of a file. `name` is what `ObjectSink.remove` takes. */
export interface NamedObject {
  readonly name: string;
  readonly object: KubeObject;
}

/** What is no object of ours. */
export interface Others {
  /** "ConfigMap (v1)": kinds that are none of ours. */
  readonly otherKinds: ReadonlySet<string>;
  /** What cannot be taken for an object of ours although it means to be one. */
  readonly faults: readonly string[];
}

/**
 * Sorts the values of a file, lists opened: `take` is told of each object. Whoever walks through it decides when the event
 * loop has its turn.
 */
export function* sortInSteps(
  values: readonly unknown[],
  take: (object: NamedObject) => void,
): Generator<undefined, Others> {
  const otherKinds = new Set<string>();
  const faults: string[] = [];
  for (const [i, value] of values.entries()) yield* visit(value, `document ${i + 1}`, {});
  return { otherKinds, faults };

  /** `inherited`: apiVersion and kind of the items of a typed list, which need not repeat them. */
  function* visit(
    value: unknown,
    where: string,
    inherited: { apiVersion?: unknown; kind?: string },
  ): Generator<undefined, void> {
    if (!isFields(value)) return void faults.push(`${where} is not an object`);
    const kind = value["kind"] ?? inherited.kind;
    const apiVersion = value["apiVersion"] ?? inherited.apiVersion;
    if (typeof kind !== "string" || typeof apiVersion !== "string") {
      const missing = typeof kind !== "string" ? "kind" : "apiVersion";
      return void faults.push(`${where} has no ${missing}`);
    }
    if (kind.endsWith("List") && value["items"] !== undefined) {
      const items = value["items"] ?? [];
      if (!Array.isArray(items)) return void faults.push(`${where}: items is not a list`);
      const ofItems = kind === "List" ? {} : { apiVersion, kind: kind.slice(0, -"List".length) };
      for (const [i, item] of items.entries()) yield* visit(item as unknown, `${where}, items[${i}]`, ofItems);
      return;
    }
    if (kind === "List") return;
    if (!isKubeKind(kind)) return void otherKinds.add(`${kind} (${apiVersion})`);
    const name = nameOf(kind, value);
    if (!VERSIONS[kind].includes(apiVersion)) {
      const wanted = VERSIONS[kind].join(" or ");
      return void faults.push(`${where}: ${kind} ${name ?? ""} of ${apiVersion} is not read, only of ${wanted}`);
    }
    if (name === undefined) return void faults.push(`${where}: ${kind} has no metadata.name`);
    // The API's types are promises that nobody has checked here: whoever receives the object reads it with care.
    take({ name, object: { kind, object: value } as unknown as KubeObject });
    yield;
  }
}

function isKubeKind(kind: string): kind is KubeKind {
  return Object.hasOwn(VERSIONS, kind);
}

function nameOf(kind: KubeKind, value: Fields): string | undefined {
  const metadata = isFields(value["metadata"]) ? value["metadata"] : {};
  const { name, namespace } = metadata;
  if (typeof name !== "string" || name === "") return undefined;
  if (kind === "Node" || kind === "ServiceCIDR") return name;
  return `${typeof namespace === "string" && namespace !== "" ? namespace : "default"}/${name}`;
}
