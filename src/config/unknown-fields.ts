/** Finds fields that KubeProxyConfiguration does not have, each with the field that was probably meant. */
import { z } from "zod";
import { closest } from "../base/closest.js";
import { isFields } from "../base/unknown.js";
import { configSchema, KIND } from "./schema.js";
import type { ConfigProblem } from "./proxy-config.js";

/** Sections of other modes. A field that the nftables section also has was meant for that section. */
const OTHER_MODES = /^(iptables|ipvs|winkernel)\./;

/** Checks all levels of the configuration. */
export function unknownFields(value: unknown): ConfigProblem[] {
  return unknownIn(configSchema, value, "", placesByName());
}

/** Sections that have a field of that name: "masqueradeAll" → "iptables.masqueradeAll", "nftables.masqueradeAll". */
type Places = ReadonlyMap<string, readonly string[]>;

function unknownIn(schema: z.ZodObject, value: unknown, prefix: string, places: Places): ConfigProblem[] {
  if (!isFields(value)) return [];
  return Object.entries(value).flatMap(([key, field]) => {
    const path = `${prefix}${key}`;
    const inner: unknown = Object.hasOwn(schema.shape, key) ? schema.shape[key] : undefined;
    if (inner === undefined) {
      const hint = hintFor(key, Object.keys(schema.shape), prefix, places);
      return { path, message: `is not a field of ${KIND}${hint === undefined ? "" : `: did you mean ${hint}?`}` };
    }
    const type = requiredOf(inner);
    if (type instanceof z.ZodObject) return unknownIn(type, field, `${path}.`, places);
    if (!(type instanceof z.ZodArray) || !Array.isArray(field)) return [];
    const { element } = type;
    if (!(element instanceof z.ZodObject)) return [];
    return field.flatMap((item, index) => unknownIn(element, item, `${path}[${index}].`, places));
  });
}

/** Suggests a field of this section, or the section in which the field belongs. */
function hintFor(key: string, here: readonly string[], prefix: string, places: Places): string | undefined {
  const guess = closest(key, [...here, ...places.keys()]);
  if (guess === undefined) return undefined;
  if (here.includes(guess)) return `${prefix}${guess}`;
  const all = places.get(guess) ?? [];
  const served = all.filter((place) => !OTHER_MODES.test(place));
  return (served.length > 0 ? served : all).join(" or ");
}

function placesByName(): Places {
  const places = new Map<string, string[]>();
  for (const [name, path] of fieldsOf(configSchema, "")) places.set(name, [...(places.get(name) ?? []), path]);
  return places;
}

/** Every field with its path; only the list itself for lists. */
function* fieldsOf(schema: z.ZodObject, prefix: string): Generator<readonly [name: string, path: string]> {
  for (const [name, inner] of Object.entries(schema.shape)) {
    yield [name, `${prefix}${name}`];
    const type = requiredOf(inner);
    if (type instanceof z.ZodObject) yield* fieldsOf(type, `${prefix}${name}.`);
  }
}

function requiredOf(type: unknown): unknown {
  return type instanceof z.ZodOptional ? type.unwrap() : type;
}
