/** Turns plain values into supported objects, by apiVersion and kind. */
import { type Fields, isFields } from "../../base/unknown.js";
import { nameOf } from "../decode/object-decoder.js";
import type { KubeKind } from "../object-sink.js";

/** Supported API versions by kind. */
const VERSIONS: Readonly<Record<KubeKind, readonly string[]>> = {
  Service: ["v1"],
  EndpointSlice: ["discovery.k8s.io/v1"],
  Node: ["v1"],
  ServiceCIDR: ["networking.k8s.io/v1", "networking.k8s.io/v1beta1"],
};

/** The path to a value in a file: number of the document, from 0, then fields and positions. */
export type Place = readonly (string | number)[];

export type Item =
  /** A supported object; `name` is the argument of `ObjectSink.remove`. */
  | { readonly kind: KubeKind; readonly name: string; readonly object: Fields; readonly place: Place }
  /** A value that looks like a supported object but is invalid. */
  | { readonly fault: string; readonly place: Place }
  /** An object of an unsupported kind: "ConfigMap (v1)", "Service (serving.knative.dev/v1)". */
  | { readonly otherKind: string; readonly place: Place };

/** The items in the values of a file, including those inside lists. */
export function* itemsOf(values: readonly unknown[]): Generator<Item, void> {
  for (const [i, value] of values.entries()) yield* visit(value, [i], {});
}

/** @param inherited apiVersion and kind for the items of a typed list, which need not repeat them. */
function* visit(
  value: unknown,
  place: Place,
  inherited: { apiVersion?: unknown; kind?: string },
): Generator<Item, void> {
  const fault = (reason: string): Item => ({ place, fault: `${wordsFor(place)}${reason}` });
  if (!isFields(value)) return yield fault(" is not an object");
  const kind = value["kind"] ?? inherited.kind;
  const apiVersion = value["apiVersion"] ?? inherited.apiVersion;
  if (typeof kind !== "string" || typeof apiVersion !== "string") {
    return yield fault(` has no ${typeof kind !== "string" ? "kind" : "apiVersion"}`);
  }
  if (kind.endsWith("List") && value["items"] !== undefined) {
    const items = value["items"] ?? [];
    if (!Array.isArray(items)) return yield fault(": items is not a list");
    const ofItems = kind === "List" ? {} : { apiVersion, kind: kind.slice(0, -"List".length) };
    for (const [i, item] of items.entries()) yield* visit(item as unknown, [...place, "items", i], ofItems);
    return;
  }
  if (kind === "List") return;
  if (!isKubeKind(kind) || isForeign(apiVersion, kind)) return yield { place, otherKind: `${kind} (${apiVersion})` };
  const name = nameOf(kind, value);
  if (!VERSIONS[kind].includes(apiVersion)) {
    const readable = VERSIONS[kind].join(" or ");
    return yield fault(`: ${kind} ${name ?? ""} has the unsupported version ${apiVersion}; supported: ${readable}`);
  }
  if (name === undefined) return yield fault(`: ${kind} has no metadata.name`);
  yield { kind, name, object: value, place };
}

/** "document 2, items[3]". */
function wordsFor([document, ...path]: Place): string {
  const words = path.map((step) => (typeof step === "number" ? `[${step}]` : `, ${step}`)).join("");
  return `document ${Number(document) + 1}${words}`;
}

/**
 * Whether the kind belongs to a custom resource. Its group has a dot (ValidateCustomResourceDefinition of
 * apiextensions-apiserver). A group without one is Kubernetes' own: there, the kind has the wrong apiVersion.
 */
function isForeign(apiVersion: string, kind: KubeKind): boolean {
  const group = groupOf(apiVersion);
  return group.includes(".") && !VERSIONS[kind].some((version) => groupOf(version) === group);
}

const groupOf = (apiVersion: string): string => apiVersion.slice(0, Math.max(0, apiVersion.lastIndexOf("/")));

function isKubeKind(kind: string): kind is KubeKind {
  return Object.hasOwn(VERSIONS, kind);
}
