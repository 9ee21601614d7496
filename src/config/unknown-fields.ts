/** Describes fields that KubeProxyConfiguration does not have, each with the field that was probably meant. */
import { closest } from "../base/closest.js";
import type { Field, UnknownField } from "./config-fields.js";
import type { ConfigProblem } from "./config-error.js";
import { configSchema, KIND } from "./schema.js";

/** Sections of other modes. A field that the nftables section also has was meant for that section. */
const OTHER_MODES = /^(iptables|ipvs|winkernel)\./;

export function unknownFields(unknown: readonly UnknownField[]): ConfigProblem[] {
  if (unknown.length === 0) return [];
  const places = placesByName();
  return unknown.map((field) => {
    const hint = hintFor(field, places);
    const message = `is not a field of ${KIND}${hint === undefined ? "" : `: did you mean ${hint}?`}`;
    return { path: `${field.prefix}${field.name}`, message };
  });
}

/** Sections that have a field of that name: "masqueradeAll" → "iptables.masqueradeAll", "nftables.masqueradeAll". */
type Places = ReadonlyMap<string, readonly string[]>;

/** Suggests a field of this section, or the section in which the field belongs. */
function hintFor({ name, prefix, known }: UnknownField, places: Places): string | undefined {
  const guess = closest(name, [...known, ...places.keys()]);
  if (guess === undefined) return undefined;
  if (known.includes(guess)) return `${prefix}${guess}`;
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
function* fieldsOf({ section = {} }: Field<unknown>, prefix: string): Generator<readonly [name: string, path: string]> {
  for (const [name, field] of Object.entries(section)) {
    yield [name, `${prefix}${name}`];
    yield* fieldsOf(field, `${prefix}${name}.`);
  }
}
