/** Look-ups in sets and maps that come with the rule: nft's `tcp dport { … }`, `map { … }` and `vmap { … }`. */
import type { Range } from "../bytes/ip-ranges.js";
import type { Expr } from "../kernel/kernel.js";
import { anonymousRows, ANONYMOUS_NAME, type MapData } from "./anonymous-sets.js";
import { bytesOfValue } from "../language/fields/field-types.js";
import { loadKey, type LoadedKey, loadOrdered, maskOf } from "./keys.js";
import { lowered, type Lowered, type LowerContext, masked } from "./lowered.js";
import type { Field } from "../language/rule.js";
import { padded } from "../language/schema.js";
import { numeric, rangesOf, toBytes, type TypedField } from "../language/fields/values.js";

/** One element: the values or ranges of its key, and the data of a map. */
export interface InlineRow {
  readonly key: unknown;
  readonly data?: Uint8Array;
}

export function inlineLookup(
  context: LowerContext,
  fields: readonly Field[],
  rows: readonly InlineRow[],
  flags: Pick<Extract<Expr, { type: "lookup" }>, "dreg" | "flags">,
  data?: MapData,
): Lowered {
  const key = loadKey(context, fields, "the set");
  const [first] = key.operands;
  // Like nft, compares a single field of some bits at its place, and shifts the values instead.
  const inPlace = key.operands.length === 1 && first.loaded.isPartial ? first : undefined;
  const ranges = rows.map((row) => rangesOfRow(key, row.key));
  const isInterval = ranges.some((row) => row.some(({ from, to }) => from !== to));
  if (isInterval) refuseOverlaps(ranges, rows);
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

function refuseOverlaps(ranges: readonly (readonly Range[])[], rows: readonly InlineRow[]): void {
  for (const [index, row] of ranges.entries()) {
    const other = ranges.findIndex(
      (earlier, at) =>
        at < index && earlier.every(({ from, to }, field) => from <= row[field].to && row[field].from <= to),
    );
    if (other >= 0)
      throw new RangeError(`${JSON.stringify(rows[index].key)} overlaps ${JSON.stringify(rows[other].key)}`);
  }
}

function valuesOf(fields: readonly TypedField[], row: unknown): readonly unknown[] {
  const values = fields.length === 1 && (!Array.isArray(row) || row.length !== 1) ? [row] : row;
  if (!Array.isArray(values) || values.length !== fields.length)
    throw new RangeError(`expected ${fields.length} values, found ${JSON.stringify(row)}`);
  return values;
}

/** Reads the values or ranges of a key. Throws RangeError. */
function rangesOfRow({ operands }: LoadedKey, row: unknown): readonly Range[] {
  return valuesOf(operands, row).map((value, index) => {
    const ranges = rangesOf(operands[index], Array.isArray(value) ? [value] : value);
    return ranges[0];
  });
}

/** Packs single values: each padded to 4 bytes, but not a single one. Throws RangeError. */
export function packed(fields: readonly TypedField[], row: unknown): Uint8Array {
  const values = valuesOf(fields, row);
  return joinedParts(fields.map(({ type, width }, index) => bytesOfValue(type, values[index], width)));
}

function joinedParts(parts: readonly Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0];
  return Uint8Array.from(parts.flatMap((part) => [...part, ...new Uint8Array(padded(part.length) - part.length)]));
}
