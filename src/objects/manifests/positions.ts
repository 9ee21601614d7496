/**
 * Finds the position of a value in a manifest file, for the people who correct it. Reads the file again, which is slow compared
 * with serving.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { formatOf } from "./files.js";
import { jsonSteps, readValues, type Syntax, utf8Of } from "./documents.js";
import { keyOf } from "./object-index.js";
import { itemsOf, type Place } from "./items.js";

/** From 1. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** Positions in one file. */
export class FilePositions {
  readonly #text: string;
  readonly #syntax: Syntax;
  /** Keyed by "Service default/web". */
  readonly #objects: ReadonlyMap<string, Place>;

  private constructor(text: string, syntax: Syntax, objects: ReadonlyMap<string, Place>) {
    this.#text = text;
    this.#syntax = syntax;
    this.#objects = objects;
  }

  /** Returns undefined if the file cannot be read: that problem is reported elsewhere. */
  static async open(directory: string, file: string): Promise<FilePositions | undefined> {
    const format = formatOf(file) ?? "yaml";
    try {
      const body = utf8Of(await readFile(join(directory, file)));
      const { values, syntax } = await readValues(body, format);
      const objects = new Map<string, Place>();
      for (const item of itemsOf(values)) {
        if (!("object" in item)) continue;
        const key = keyOf(item);
        if (!objects.has(key)) objects.set(key, item.place);
      }
      return new FilePositions(body.toString(), syntax, objects);
    } catch {
      return undefined;
    }
  }

  /** Position of an object's field, or of the nearest value around it if the field is missing. @param field as in `Problem`. */
  async ofField(object: string, field: string): Promise<Position | undefined> {
    const place = this.#objects.get(object);
    return place === undefined ? undefined : this.of([...place, ...stepsOf(field)]);
  }

  async of(place: Place): Promise<Position | undefined> {
    const offset = this.#syntax === "json" ? jsonOffset(this.#text, place) : await yamlOffset(this.#text, place);
    if (offset === undefined) return undefined;
    const before = this.#text.slice(0, offset);
    return { line: before.split("\n").length, column: offset - before.lastIndexOf("\n") };
  }
}

/** `spec.ports[1].nodePort`, `metadata.labels["a/b"]`. */
function stepsOf(field: string): (string | number)[] {
  return [...field.matchAll(/\[(\d+)\]|\["([^"]*)"\]|([^.[\]]+)/g)].map(
    ([, index, quoted, name]) => quoted ?? name ?? Number(index),
  );
}

async function yamlOffset(text: string, [document, ...path]: Place): Promise<number | undefined> {
  const { isCollection, isNode, isScalar, parseAllDocuments } = await import("yaml");
  const all = parseAllDocuments(text, { stringKeys: true, merge: true, logLevel: "error" });
  const documents = (Array.isArray(all) ? all : []).filter(
    ({ contents }) => contents !== null && !(isScalar(contents) && contents.value === null),
  );
  let node: unknown = documents[Number(document)]?.contents;
  let offset = isNode(node) ? node.range?.[0] : undefined;
  for (const step of path) {
    if (!isCollection(node)) break;
    node = node.get(step, true);
    if (!isNode(node)) break;
    offset = node.range?.[0] ?? offset;
  }
  return offset;
}

/** Offset of the value at a place, or of the nearest value around it. */
function jsonOffset(text: string, [document, ...path]: Place): number | undefined {
  let found: number | undefined;
  let documents = -1;
  for (const { at, key, around } of jsonSteps(text)) {
    if (key) continue;
    if (around.length === 0) documents++;
    if (documents > Number(document)) break;
    const onTheWay = documents === document && around.every(({ next }, i) => next === path[i]);
    if (onTheWay) found = at;
    if (onTheWay && around.length === path.length) break;
  }
  return found;
}
