/** Reads a request's meaning from its method and URL. */
import { BadRequest, fieldPredicate, labelPredicate, type Predicate } from "./selectors.ts";
import { groupPath, RESOURCES, type Resource, type Verb } from "./resources.ts";

/** A request to a resource. */
export interface ApiRequest {
  readonly verb: Verb;
  readonly resource: Resource;
  /** Only objects of this namespace; undefined for all. */
  readonly namespace: string | undefined;
  /** Name of one object; undefined for the collection. */
  readonly name: string | undefined;
  readonly query: URLSearchParams;
}

/** Returns undefined if the path is not that of a resource. */
export function readRequest(method: string, url: URL): ApiRequest | undefined {
  for (const resource of RESOURCES) {
    const base = `${groupPath(resource)}/`;
    if (!url.pathname.startsWith(base)) continue;
    const parts = url.pathname.slice(base.length).split("/").map(decodeURIComponent);
    const namespace = parts[0] === "namespaces" && resource.namespaced ? parts[1] : undefined;
    const [plural, name, further] = namespace === undefined ? parts : parts.slice(2);
    if (plural !== resource.plural || further !== undefined) continue;
    const verb = verbOf(method, name, url.searchParams);
    if (verb === undefined) return undefined;
    return { verb, resource, namespace, name, query: url.searchParams };
  }
  return undefined;
}

function verbOf(method: string, name: string | undefined, query: URLSearchParams): Verb | undefined {
  switch (method) {
    case "GET":
      if (name !== undefined) return "get";
      return isTrue(query.get("watch")) ? "watch" : "list";
    case "POST":
      return "create";
    case "PATCH":
      return "patch";
    case "PUT":
      return "update";
    case "DELETE":
      return "delete";
    default:
      return undefined;
  }
}

/** Parses query parameters of type bool as Go does. */
export function isTrue(value: string | null): boolean {
  return value === "true" || value === "1";
}

export interface Selection {
  readonly matches: Predicate;
  /** Whether there is a selector: then a page does not say how many objects follow. */
  readonly narrowed: boolean;
}

/** Throws `BadRequest`. */
export function selectionOf(request: ApiRequest): Selection {
  const labels = request.query.get("labelSelector") ?? "";
  const fields = request.query.get("fieldSelector") ?? "";
  const byLabel = labelPredicate(labels);
  const byField = fieldPredicate(fields, request.resource);
  const { namespace } = request;
  return {
    matches: (object) =>
      (namespace === undefined || object.metadata.namespace === namespace) && byLabel(object) && byField(object),
    narrowed: labels !== "" || fields !== "",
  };
}

/** Returns a resourceVersion or another number of the query, or undefined if absent. Throws `BadRequest`. */
export function numberOf(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null || text === "") return undefined;
  if (!/^\d+$/.test(text)) throw new BadRequest(`Invalid value: "${text}": ${name} is not a number`);
  return Number(text);
}
