/**
 * Builds the kustomizations of deploy/ as kustomize does, for machines without it: resources, patches, images and the
 * namespace, in the forms that deploy/ uses. Everything else is an error. test/page
 * compares the results with kubectl's.
 */
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { parse } from "yaml";
import {
  list,
  oneOf,
  optional,
  record,
  type Shape,
  text,
  value,
  type ValueOf,
  variants,
} from "../../src/base/shape.js";

export interface KubeObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}

type Fields = Readonly<Record<string, unknown>>;

const string = text("text", () => true);

const KUSTOMIZATION = record({
  apiVersion: oneOf("kustomize.config.k8s.io/v1beta1"),
  kind: oneOf("Kustomization"),
  namespace: optional(string),
  resources: list(string),
  images: optional(list(record({ name: string, newName: string, newTag: string }))),
  patches: optional(list(record({ target: record({ kind: string, name: string }), patch: string }))),
});

const written = { path: string, value: value<unknown>("a value", (given) => given !== undefined) };
const OPERATIONS = list(variants("op", { test: written, replace: written, remove: { path: string } }));

/** Returns the value, if it has the shape. */
function checked<T>(shape: Shape<T>, place: string, given: unknown): T {
  const problem = shape.find(place, given);
  if (problem !== undefined) throw new Error(`${problem.path}: expected ${problem.expected}`);
  return given as T;
}

/** Kinds without a namespace, of those in deploy/. */
const CLUSTER_WIDE = new Set(["ClusterRoleBinding"]);

/** Returns the objects that `kubectl apply -k` sends. Throws if a file is missing, or if a patch does not fit. */
export function kustomize(directory: string): readonly KubeObject[] {
  const file = join(directory, "kustomization.yaml");
  const kustomization = checked(KUSTOMIZATION, file, parse(readFileSync(file, "utf8")));
  const { resources, patches = [], images = [], namespace } = kustomization;
  let objects = resources.flatMap((name): readonly KubeObject[] => {
    const path = join(directory, name);
    return statSync(path).isDirectory() ? kustomize(path) : [parse(readFileSync(path, "utf8")) as KubeObject];
  });
  for (const { target, patch } of patches) {
    const isTarget = ({ kind, metadata }: KubeObject): boolean => kind === target.kind && metadata.name === target.name;
    if (!objects.some(isTarget)) throw new Error(`${file}: a patch's ${target.kind} ${target.name} does not exist`);
    objects = objects.flatMap((object) => (isTarget(object) ? (patched(object, parse(patch)) ?? []) : [object]));
  }
  return objects.map((object) => withNamespace(withImages(object, images), namespace));
}

/**
 * Applies a strategic merge patch, or a list of JSON patch operations. Returns undefined if the patch deletes the object.
 */
export function patched<T extends KubeObject>(object: T, patch: unknown): T | undefined {
  const changed = Array.isArray(patch) ? operated(object, checked(OPERATIONS, "patch", patch)) : merged(object, patch);
  return changed as T | undefined;
}

/** The field that identifies an item of a list: the API's merge keys, for the lists that the patches of deploy/ contain. */
const MERGE_KEYS: Readonly<Record<string, string>> = { containers: "name" };

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns undefined if the patch deletes the value. */
function merged(value: unknown, patch: unknown, field = ""): unknown {
  if (patch === null) return undefined;
  const key = MERGE_KEYS[field];
  if (key !== undefined && Array.isArray(value) && Array.isArray(patch)) return mergedLists(value, patch, key);
  if (!isFields(patch)) return patch;
  if (patch["$patch"] === "delete") return undefined;
  const before = isFields(value) ? value : {};
  const after: Record<string, unknown> = { ...before };
  for (const [name, part] of Object.entries(patch)) {
    const next = merged(before[name], part, name);
    if (next === undefined) delete after[name];
    else after[name] = next;
  }
  return after;
}

function mergedLists(list: readonly Fields[], patches: readonly Fields[], key: string): unknown[] {
  const patchOf = (item: Fields): Fields => patches.find((patch) => patch[key] === item[key]) ?? {};
  const added = patches.filter((patch) => !list.some((item) => item[key] === patch[key]));
  return [...list.map((item) => merged(item, patchOf(item))), ...added.map((item) => merged({}, item))];
}

/** RFC 6902. */
function operated(object: unknown, operations: ValueOf<typeof OPERATIONS>): unknown {
  const copy = structuredClone(object);
  for (const operation of operations) {
    const names = operation.path.split("/").slice(1);
    const last = names.pop() ?? "";
    const parent = names.reduce((value, name) => (value as Fields | undefined)?.[name], copy) as
      Record<string, unknown> | undefined;
    if (parent?.[last] === undefined) throw new Error(`${operation.op} ${operation.path}: no such field`);
    if (operation.op === "remove") delete parent[last];
    else if (operation.op === "replace") parent[last] = operation.value;
    else if (!isDeepStrictEqual(parent[last], operation.value))
      throw new Error(`test ${operation.path}: ${JSON.stringify(parent[last])}`);
  }
  return copy;
}

type Images = NonNullable<ValueOf<typeof KUSTOMIZATION>["images"]>;

function withImages(object: KubeObject, images: Images): KubeObject {
  const replaced = (_: string, value: unknown): unknown => {
    const image = isFields(value) ? images.find(({ name }) => name === value["image"]) : undefined;
    return image === undefined ? value : { ...(value as Fields), image: `${image.newName}:${image.newTag}` };
  };
  return JSON.parse(JSON.stringify(object, replaced)) as KubeObject;
}

function withNamespace(object: KubeObject, namespace: string | undefined): KubeObject {
  if (namespace === undefined || CLUSTER_WIDE.has(object.kind)) return object;
  return { ...object, metadata: { ...object.metadata, namespace } };
}
