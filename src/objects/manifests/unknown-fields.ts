/** Finds fields that an object should not have, like kubectl's strict validation. Nothing reads them, so they change nothing. */
import { closest } from "../../base/closest.js";
import { type Fields, isFields } from "../../base/unknown.js";
import type { KubeKind } from "../object-sink.js";
import { KNOWN_FIELDS } from "./known-fields.js";

interface UnknownField {
  /** "spec.ports[0].nodeport". */
  readonly field: string;
  /** The same path as steps. */
  readonly path: readonly (string | number)[];
  /** The field that was probably meant; absent if none is similar. */
  readonly meant?: string;
}

/** Unknown fields of one object. */
export interface UnknownFields {
  /** The first few. */
  readonly named: readonly UnknownField[];
  /** Number of all of them. */
  readonly total: number;
}

/** Unknown fields to report per object. A file with other content would otherwise fill the log. */
const MOST_NAMED = 10;
/** Longer names are not compared, because the time grows with their length. */
const LONGEST_COMPARED = 64;

/** Fields by name, with the model of their content; undefined if the content is not checked. */
type Model = ReadonlyMap<string, Model | undefined>;

const models = new Map<string, Model>();

/**
 * A list of objects and a single object have the same model. The decoder reports a list in place of an object, and the reverse.
 */
function modelOf(type: string): Model {
  const known = models.get(type);
  if (known !== undefined) return known;
  const model = new Map<string, Model | undefined>();
  models.set(type, model);
  for (const entry of (KNOWN_FIELDS[type] ?? "").split(" ")) {
    const [name = "", inner] = entry.replace("[]", "").split(":");
    model.set(name, inner === undefined ? undefined : modelOf(inner));
  }
  return model;
}

/** Returns undefined in nearly all cases: the object only has fields of its kind. */
export function unknownFields(kind: KubeKind, object: Fields): UnknownFields | undefined {
  const search = new Search();
  search.visit(object, modelOf(`V1${kind}`));
  return search.total === 0 ? undefined : search;
}

class Search implements UnknownFields {
  readonly named: UnknownField[] = [];
  total = 0;
  readonly #path: (string | number)[] = [];

  visit(object: Fields, model: Model): void {
    for (const name in object) {
      const inner = model.get(name);
      if (inner === undefined) {
        if (!model.has(name)) this.#report(name, model);
        continue;
      }
      const value = object[name];
      this.#path.push(name);
      if (Array.isArray(value)) this.#visitItems(value as readonly unknown[], inner);
      else if (isFields(value)) this.visit(value, inner);
      this.#path.pop();
    }
  }

  #visitItems(items: readonly unknown[], model: Model): void {
    for (let i = 0; i < items.length; i++) {
      const item = items[i];
      if (!isFields(item)) continue;
      this.#path.push(i);
      this.visit(item, model);
      this.#path.pop();
    }
  }

  #report(name: string, model: Model): void {
    if (++this.total > MOST_NAMED) return;
    const path = [...this.#path, name];
    const meant = name.length > LONGEST_COMPARED ? undefined : closest(name, model.keys());
    this.named.push({ field: textOf(path), path, meant });
  }
}

function textOf(path: readonly (string | number)[]): string {
  return path
    .map((step, i) => {
      if (typeof step === "number") return `[${step}]`;
      if (!/^[\w-]+$/.test(step)) return `[${JSON.stringify(step)}]`;
      return i === 0 ? step : `.${step}`;
    })
    .join("");
}
