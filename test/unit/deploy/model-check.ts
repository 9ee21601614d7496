/**
 * Checks objects against client-node's models: every key must exist in the model, and every value must have its type.
 */
import * as client from "@kubernetes/client-node";

interface Attribute {
  readonly baseName: string;
  readonly type: string;
}
interface Model {
  getAttributeTypeMap(): readonly Attribute[];
}

function modelOf(type: string): Model | undefined {
  const found: unknown = (client as unknown as Record<string, unknown>)[type];
  return typeof found === "function" && "getAttributeTypeMap" in found ? (found as unknown as Model) : undefined;
}

/** Returns the problems as "path: words"; empty if there are none. */
export function checkAgainst(type: string, value: unknown, path = ""): string[] {
  const list = /^Array<(.*)>$/.exec(type);
  if (list !== null) {
    if (!Array.isArray(value)) return [`${path}: expected a list`];
    return value.flatMap((item, index) => checkAgainst(list[1], item, `${path}[${index}]`));
  }
  const map = /^\{ \[key: string\]: (.*); \}$/.exec(type);
  if (map !== null) {
    if (!isObject(value)) return [`${path}: expected a map`];
    return Object.entries(value).flatMap(([key, item]) => checkAgainst(map[1], item, `${path}.${key}`));
  }
  if (type === "IntOrString") {
    const good = typeof value === "string" || Number.isInteger(value);
    return good ? [] : [`${path}: expected a number or a string`];
  }
  const model = modelOf(type);
  if (model === undefined) return typeof value === type ? [] : [`${path}: expected a ${type}`];
  if (!isObject(value)) return [`${path}: expected a ${type}`];
  const attributes = new Map(model.getAttributeTypeMap().map(({ baseName, type }) => [baseName, type]));
  return Object.entries(value).flatMap(([key, item]) => {
    const attribute = attributes.get(key);
    return attribute === undefined
      ? [`${path}.${key}: ${type} has no such field`]
      : checkAgainst(attribute, item, `${path}.${key}`);
  });
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
