/** Encodes objects, lists and events as kube-apiserver does, from its own descriptions of the messages in kubernetes.proto. */
import { readFileSync } from "node:fs";
import { join } from "node:path";

interface Field {
  readonly name: string;
  readonly number: number;
  readonly type: string;
  readonly form: "optional" | "repeated" | "map";
  /** Written even if it is empty: a field of Go that is no pointer. */
  readonly always: boolean;
}

export type Json = Readonly<Record<string, unknown>>;

const MESSAGES = readMessages(readFileSync(join(import.meta.dirname, "kubernetes.proto"), "utf8"));
const MAGIC = Buffer.from("k8s\0");

function readMessages(text: string): ReadonlyMap<string, readonly Field[]> {
  const messages = text.matchAll(/^message (\w+) \{\n(.*?)^\}/gms);
  return new Map(Array.from(messages, ([, name = "", body = ""]) => [name, readFields(body)]));
}

function readFields(body: string): Field[] {
  const lines = body.matchAll(/^ {2}(optional|repeated|map<string,) (\w+)>? (\w+) = (\d+);( \/\/ always)?$/gm);
  const fields = Array.from(lines, ([, form = "", type = "", name = "", number, always]): Field => ({
    name,
    number: Number(number),
    type,
    form: form === "optional" || form === "repeated" ? form : "map",
    always: always !== undefined,
  }));
  return fields.sort((a, b) => a.number - b.number);
}

/** A value that no field of the API can have, so no API server would send it. */
export class NotOfTheApi extends Error {}

function varint(value: number | bigint): Buffer {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest > 0x7fn; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80);
  return Buffer.from([...bytes, Number(rest)]);
}

/** A field with a length. */
export function delimited(number: number, value: Buffer): Buffer {
  return Buffer.concat([varint((number << 3) | 2), varint(value.length), value]);
}

function number(field: number, value: number | bigint): Buffer {
  return Buffer.concat([varint(field << 3), varint(value)]);
}

function encodeValue(type: string, field: number, value: unknown): Buffer {
  const is = (wanted: string): boolean => typeof value === wanted;
  if (type === "string" && is("string")) return delimited(field, Buffer.from(value as string));
  if (type === "bool" && is("boolean")) return number(field, value === true ? 1 : 0);
  if (type.startsWith("int") && Number.isInteger(value)) return number(field, value as number);
  if (type === "bytes" && value instanceof Buffer) return delimited(field, value);
  if (MESSAGES.has(type)) return delimited(field, encode(type, value));
  throw new NotOfTheApi(`${JSON.stringify(value)} is not of type ${type}`);
}

const ZERO: Readonly<Record<string, unknown>> = { string: "", bool: false, int32: 0, int64: 0 };

/** Types whose JSON is not an object with the message's fields. */
const SPECIAL: Readonly<Record<string, (value: unknown) => unknown>> = {
  Time: (value) =>
    typeof value === "string" || value instanceof Date
      ? { seconds: Math.floor(Number(new Date(value)) / 1000), nanos: 0 }
      : {},
  Quantity: (value) => ({ string: value }),
  FieldsV1: (value) => ({ Raw: Buffer.from(JSON.stringify(value)) }),
  IntOrString: (value) =>
    typeof value === "string" ? { type: 1, intVal: 0, strVal: value } : { type: 0, intVal: value ?? 0, strVal: "" },
};

/** A message, without its type. Throws `NotOfTheApi`. */
export function encode(type: string, value: unknown): Buffer {
  const given: unknown = SPECIAL[type]?.(value) ?? value ?? {};
  if (typeof given !== "object" || given === null || Array.isArray(given)) throw new NotOfTheApi(`no ${type}`);
  const object = given as Json;
  const fields = MESSAGES.get(type) ?? [];
  const known = new Set(["kind", "apiVersion", ...fields.map(({ name }) => name)]);
  const unknown = Object.keys(object).filter((name) => !known.has(name));
  if (unknown.length > 0) throw new NotOfTheApi(`${type} has no fields ${unknown.join(", ")}`);
  return Buffer.concat(fields.flatMap((field) => encodeField(field, object[field.name] ?? undefined)));
}

function encodeField({ form, type, number: field, always, name }: Field, value: unknown): Buffer[] {
  if (value === undefined) {
    if (!always) return [];
    return [encodeValue(type, field, type in ZERO ? ZERO[type] : undefined)];
  }
  if (form === "optional") return [encodeValue(type, field, value)];
  if (form === "repeated") {
    if (!Array.isArray(value)) throw new NotOfTheApi(`${name} is not a list`);
    return value.map((item) => encodeValue(type, field, item));
  }
  if (typeof value !== "object" || Array.isArray(value)) throw new NotOfTheApi(`${name} is not an object`);
  const entries = Object.entries(value as Json).sort(([a], [b]) => (a < b ? -1 : 1));
  return entries.map(([key, item]) =>
    delimited(field, Buffer.concat([encodeValue("string", 1, key), encodeValue(type, 2, item)])),
  );
}

/** The envelope of every object. @param raw the object's message. */
export function envelope(kind: string, apiVersion: string, raw: Buffer): Buffer {
  return Buffer.concat([MAGIC, encode("Unknown", { typeMeta: { apiVersion, kind }, raw })]);
}

/** An object with its kind and version. Throws `NotOfTheApi`. */
export function encodeObject(object: Json): Buffer {
  const { kind, apiVersion } = object as { readonly kind: string; readonly apiVersion: string };
  return envelope(kind, apiVersion, encode(kind, object));
}

/** @param items their messages. @param type of the items. */
export function encodeList(
  type: { readonly kind: string; readonly apiVersion: string },
  metadata: Json,
  items: readonly Buffer[],
): Buffer {
  const fields = [delimited(1, encode("ListMeta", metadata)), ...items.map((item) => delimited(2, item))];
  return envelope(`${type.kind}List`, type.apiVersion, Buffer.concat(fields));
}

/** An event of a watch, after its length. @param object as `encodeObject` returns it. */
export function encodeEvent(type: string, object: Buffer): Buffer {
  return framed(encode("WatchEvent", { type, object: { raw: object } }));
}

export function framed(event: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(event.length);
  return Buffer.concat([length, event]);
}
