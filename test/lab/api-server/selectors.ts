/** Label and field selectors: the part of kube-apiserver's grammar that proxies and kubectl use. */
import type { KubeJson, Resource } from "./resources.ts";

export type Predicate = (object: KubeJson) => boolean;

/** The request is invalid; becomes a Status with code 400. */
export class BadRequest extends Error {}

/** Parses `a=b,c!=d,e,!f,g in (h,i),j notin (k)`; "" selects everything. */
export function labelPredicate(selector: string): Predicate {
  const tests = splitRequirements(selector).map(labelTest);
  return (object) => tests.every((test) => test(object.metadata.labels ?? {}));
}

type LabelTest = (labels: Readonly<Record<string, string>>) => boolean;

function labelTest(requirement: string): LabelTest {
  const set = /^(\S+)\s+(in|notin)\s+\(([^)]*)\)$/.exec(requirement);
  if (set !== null) {
    const [, key = "", operator, list = ""] = set;
    const values = list.split(",").map((value) => value.trim());
    return (labels) => (operator === "in") === (labels[key] !== undefined && values.includes(labels[key]));
  }
  const comparison = /^([^\s=!]+)\s*(==|=|!=)\s*([^\s=!]*)$/.exec(requirement);
  if (comparison !== null) {
    const [, key = "", operator, value = ""] = comparison;
    return (labels) => (operator === "!=") !== (labels[key] === value);
  }
  const existence = /^(!?)([^\s=!]+)$/.exec(requirement);
  if (existence === null) throw new BadRequest(`unable to parse requirement: ${requirement}`);
  const [, not, key = ""] = existence;
  return (labels) => (not === "!") !== Object.hasOwn(labels, key);
}

/** A comma inside parentheses is part of a set. */
function splitRequirements(selector: string): string[] {
  return (selector.match(/(?:[^,(]|\([^)]*\))+/g) ?? []).map((part) => part.trim()).filter((part) => part !== "");
}

/**
 * Parses `metadata.name=a,spec.clusterIP!=None`. Rejects fields that the resource does not support, as the server does.
 */
export function fieldPredicate(selector: string, resource: Resource): Predicate {
  const tests = splitRequirements(selector).map((requirement) => {
    const comparison = /^([^=!]+)(==|=|!=)(.*)$/.exec(requirement);
    if (comparison === null)
      throw new BadRequest(`invalid selector: '${requirement}'; can't understand '${requirement}'`);
    const [, field = "", operator, value = ""] = comparison;
    const read = fieldReader(field, resource);
    return (object: KubeJson) => (operator === "!=") !== (read(object) === value);
  });
  return (object) => tests.every((test) => test(object));
}

function fieldReader(field: string, resource: Resource): (object: KubeJson) => string {
  if (field === "metadata.name") return (object) => object.metadata.name;
  if (field === "metadata.namespace" && resource.namespaced) return (object) => object.metadata.namespace ?? "";
  const read = resource.fields[field];
  if (read === undefined) throw new BadRequest(`field label not supported: ${field}`);
  return read;
}
