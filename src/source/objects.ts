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

/** The way to a value of a file: number of the document, from 0, then fields and positions. */
export type Place = readonly (string | number)[];

/** An object of a file. `name` is what `ObjectSink.remove` takes. */
export interface NamedObject {
  readonly name: string;
  readonly object: KubeObject;
  readonly place: Place;
}

/** What cannot be taken for an object of ours although it means to be one. */
export interface Fault {
  readonly reason: string;
  readonly place: Place;
}

/** What is no object of ours. */
export interface Others {
  /** "ConfigMap (v1)": kinds that are none of ours, and where the first one of each is. */
  readonly otherKinds: ReadonlyMap<string, Place>;
  readonly faults: readonly Fault[];
}

/**
 * Sorts the values of a file, lists opened: `take` is told of each object. Whoever walks through it decides when the event
 * loop has its turn.
 */
export function* sortInSteps(
  values: readonly unknown[],
  take: (object: NamedObject) => void,
): Generator<undefined, Others> {
  const otherKinds = new Map<string, Place>();
  const faults: Fault[] = [];
  const fault = (place: Place, reason: string): void =>
    void faults.push({ place, reason: `${wordsFor(place)}${reason}` });
  for (const [i, value] of values.entries()) yield* visit(value, [i], {});
  return { otherKinds, faults };

  /** `inherited`: apiVersion and kind of the items of a typed list, which need not repeat them. */
  function* visit(
    value: unknown,
    place: Place,
    inherited: { apiVersion?: unknown; kind?: string },
  ): Generator<undefined, void> {
    if (!isFields(value)) return fault(place, " is not an object");
    const kind = value["kind"] ?? inherited.kind;
    const apiVersion = value["apiVersion"] ?? inherited.apiVersion;
    if (typeof kind !== "string" || typeof apiVersion !== "string") {
      return fault(place, ` has no ${typeof kind !== "string" ? "kind" : "apiVersion"}`);
    }
    if (kind.endsWith("List") && value["items"] !== undefined) {
      const items = value["items"] ?? [];
      if (!Array.isArray(items)) return fault(place, ": items is not a list");
      const ofItems = kind === "List" ? {} : { apiVersion, kind: kind.slice(0, -"List".length) };
      for (const [i, item] of items.entries()) yield* visit(item as unknown, [...place, "items", i], ofItems);
      return;
    }
    if (kind === "List") return;
    if (!isKubeKind(kind)) {
      const name = `${kind} (${apiVersion})`;
      if (!otherKinds.has(name)) otherKinds.set(name, place);
      return;
    }
    const name = nameOf(kind, value);
    if (!VERSIONS[kind].includes(apiVersion)) {
      const readable = VERSIONS[kind].join(" or ");
      return fault(place, `: ${kind} ${name ?? ""} of ${apiVersion} is not read, only of ${readable}`);
    }
    if (name === undefined) return fault(place, `: ${kind} has no metadata.name`);
    // The API's types are promises that nobody has checked here: whoever receives the object reads it with care.
    take({ name, object: { kind, object: value } as unknown as KubeObject, place });
    yield;
  }
}

/** "document 2, items[3]". */
function wordsFor([document, ...path]: Place): string {
  const words = path.map((step) => (typeof step === "number" ? `[${step}]` : `, ${step}`)).join("");
  return `document ${Number(document) + 1}${words}`;
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
