/** Look-ups in sets and maps that come with the rule: nft's `tcp dport { … }`, `map { … }` and `vmap { … }`. */
import type { Range } from "../bytes/ip-ranges.js";
import type { Expr } from "../kernel/kernel.js";
import { anonymousRows, ANONYMOUS_NAME, type MapData } from "./anonymous-sets.js";
import { bytesOfValue, type ValueType, type Width, widthOf } from "../language/fields/field-types.js";
import { loadKey, type LoadedKey, loadOrdered, lookUp, maskOf, refuseOutside } from "./keys.js";
import { lowered, type Lowered, type LowerContext, masked } from "./lowered.js";
import { FieldError, within } from "../language/fields/field-error.js";
import { kindOfMap } from "../language/object-kinds.js";
import { dataFields, padded } from "../language/schema.js";
import type { KeyPart } from "../language/vocabulary.js";
import { numeric, rangeOf, toBytes, type TypedField } from "../language/fields/values.js";

/** One element: the values or ranges of its key, and the data of a map. */
export interface InlineRow {
  /** Its key in errors. */
  readonly place: string;
  readonly key: unknown;
  readonly data?: Uint8Array;
}

export function inlineLookup(
  context: LowerContext,
  { place, fields }: { readonly place: string; readonly fields: readonly KeyPart[] },
  rows: readonly InlineRow[],
  flags: Pick<Extract<Expr, { type: "lookup" }>, "dreg" | "flags">,
  data?: MapData,
): Lowered {
  const key = loadKey(context, fields, place);
  const [first] = key.operands;
  // Like nft, compares a single field of some bits at its place, and shifts the values instead.
  const inPlace = key.operands.length === 1 && first.loaded.isPartial ? first : undefined;
  const ranges = rows.map((row) => within(row.place, () => rangesOfRow(key, row.key)));
  const isInterval = ranges.some((row) => row.some(({ from, to }) => from !== to));
  refuseOverlaps(ranges, rows, isInterval);
  // Ranges compare bytes, so they need network byte order.
  const pack = (row: readonly Range[], end: keyof Range): Uint8Array => {
    const parts = key.operands.map((one, index) => {
      const width = { ...numeric(one), ...(isInterval ? { hostOrder: false } : {}) };
      if (inPlace === undefined) return toBytes(row[index][end], width);
      return toBytes(row[index][end] << BigInt(inPlace.loaded.shift), { ...width, length: inPlace.loaded.length });
    });
    return joinedParts(parts);
  };
  const keys = ranges.map((row) => [pack(row, "from"), ...(isInterval ? [pack(row, "to")] : [])]);
  const set = anonymousRows({
    key: key.operands,
    keyLen: keys[0][0].length,
    rows: keys.map((parts, index) =>
      Uint8Array.from([...parts.flatMap((part) => [...part]), ...(rows[index].data ?? [])]),
    ),
    isInterval,
    data,
  });
  const lookup = {
    type: "lookup",
    set: ANONYMOUS_NAME,
    setId: context.anonymous.push(set),
    sreg: 1,
    ...flags,
  } as const;
  const loaded = isInterval ? loadOrdered(key) : key.exprs;
  const exprs = inPlace === undefined ? loaded : [...inPlace.load(1), masked(maskOf(inPlace))];
  return lowered(...exprs, lookup);
}

function refuseOverlaps(ranges: readonly (readonly Range[])[], rows: readonly InlineRow[], isInterval: boolean): void {
  const values = new Map<string, number>();
  for (const [index, row] of ranges.entries()) {
    const value = row.map(({ from }) => from).join();
    const other = isInterval
      ? ranges.findIndex((one) => one.every(({ from, to }, field) => from <= row[field].to && row[field].from <= to))
      : (values.get(value) ?? index);
    values.set(value, index);
    if (other < index)
      throw new FieldError(rows[index].place, `no overlap with ${JSON.stringify(rows[other].key)}`, rows[index].key);
  }
}

function valuesOf(fields: readonly TypedField[], row: unknown): readonly unknown[] {
  const values = fields.length === 1 && !Array.isArray(row) ? [row] : row;
  if (!Array.isArray(values) || values.length !== fields.length)
    throw new FieldError("", `[${fields.map(({ type }) => type).join(", ")}]`, row);
  return values;
}

const placeIn = (fields: readonly TypedField[], index: number): string => (fields.length === 1 ? "" : `[${index}]`);

/** Reads the values or ranges of a key. Throws FieldError. */
function rangesOfRow({ operands }: LoadedKey, row: unknown): readonly Range[] {
  return valuesOf(operands, row).map((value, index) =>
    within(placeIn(operands, index), () => {
      const range = rangeOf(operands[index], value);
      if (range.from === range.to) refuseOutside(operands[index].bits, range.from);
      return range;
    }),
  );
}

/** The source of a look-up: a named map, or the pairs of one that comes with the rule. */
interface MapSource {
  readonly key: readonly KeyPart[];
  readonly map: string | readonly (readonly [key: unknown, data: unknown])[];
}

/** Loads the data of these types for a key into register 1. */
export function lookUpOrMake(
  context: LowerContext,
  { key, map }: MapSource,
  types: readonly ValueType[],
  widths: readonly Width[] = types.map((type) => widthOf(type)),
): Lowered {
  if (typeof map === "string") {
    const data = context.setSpec?.(map)?.data;
    const has = dataFields({ data });
    const fits = has.length === types.length && has.every((one, i) => one === types[i] || types[i] === "integer");
    if (data !== undefined && !fits) {
      const what = has.length > 0 ? has.join(" . ") : (kindOfMap({ data }) ?? "verdict");
      throw new FieldError("map", `a map with data of ${types.join(" . ")}, not of ${what}`, map);
    }
    return lookUp(context, key, map, 1);
  }
  const fields = types.map((type, index) => ({ type, width: widths[index] }));
  const rows = map.map(([from, to], index) => ({
    place: `map[${index}][0]`,
    key: from,
    data: within(`map[${index}][1]`, () => packed(fields, to)),
  }));
  return inlineLookup(context, { place: "key", fields: key }, rows, { dreg: 1 }, { fields });
}

/** Packs single values: each padded to 4 bytes, but not a single one. Throws FieldError. */
function packed(fields: readonly TypedField[], row: unknown): Uint8Array {
  const values = valuesOf(fields, row);
  return joinedParts(
    fields.map(({ type, width }, index) =>
      within(placeIn(fields, index), () => bytesOfValue(type, values[index], width)),
    ),
  );
}

function joinedParts(parts: readonly Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0];
  return Uint8Array.from(parts.flatMap((part) => [...part, ...new Uint8Array(padded(part.length) - part.length)]));
}
