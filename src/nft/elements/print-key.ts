/** Prints packed keys and data as nft's own text. Pure. */
import { dataText, formOf, rangesText, type ValueStyle } from "../printing/value-text.js";
import type { FieldType } from "../language/fields/field-types.js";
import { isSwapped } from "../language/intervals.js";
import type { SetSpec } from "../language/set-spec.js";

const PORTABLE: ValueStyle = { isPortable: true };

/** Prints the key of a row: in an interval set, a range. */
export function printKey({ key, interval }: SetSpec, bytes: Uint8Array): string {
  if (bytes.length === 0) return "*";
  if (interval !== true) return printPacked(key, bytes);
  const forms = key.map((field) => ({ ...formOf(field), ...(isSwapped(field) && { hostOrder: false }) }));
  return rangesText(forms, bytes.subarray(0, bytes.length / 2), bytes.subarray(bytes.length / 2), PORTABLE);
}

export function printPacked(fields: readonly FieldType[], bytes: Uint8Array): string {
  return dataText(fields.map(formOf), bytes, PORTABLE);
}
