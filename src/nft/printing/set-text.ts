/** Sets, maps and their elements in nft's notation. Pure. */
import { DATA_VERDICT, SetFlag } from "../kernel/constants.js";
import { type Element, elementsOf } from "../kernel/element-batch.js";
import type { ElementBatch, SetInfo } from "../kernel/kernel.js";
import { FIELD_TYPES, type ValueType } from "../language/fields/field-types.js";
import { verdictText } from "../language/verdicts.js";
import { rangeRows } from "../language/intervals.js";
import { dataText, type Form, formOf, lengthOf, partsOf, rangesText, type ValueStyle } from "./value-text.js";

/** A set that a rule names. */
export interface ListedSet {
  readonly info: SetInfo;
  /** Only needed for anonymous sets. */
  readonly elements?: ElementBatch | undefined;
}

/** Bits of a field's type in a concatenation's type. */
const TYPE_BITS = 6;
const TYPES = new Map<number, ValueType>();
for (const type of Object.keys(FIELD_TYPES) as ValueType[])
  if (!TYPES.has(FIELD_TYPES[type].id)) TYPES.set(FIELD_TYPES[type].id, type);
/** User data of sets (NFTNL_UDATA_SET_*): nft's byte order of single fields. */
const BYTEORDER = { key: 0, data: 1 } as const;
const HOST_ENDIAN = 1;
const NONE = new Uint8Array();

/** The forms of a type's fields. Empty if they are unknown, or have another length. */
function formsOf(typeId: number, length: number, isHost: boolean): readonly Form[] {
  const forms: Form[] = [];
  for (let rest = typeId >>> 0; rest > 0; rest = Math.floor(rest / 2 ** TYPE_BITS)) {
    const type = TYPES.get(rest % 2 ** TYPE_BITS);
    if (type === undefined) return [];
    forms.unshift(formOf(type));
  }
  const [first] = forms;
  if (forms.length === 1 && first.type === "integer")
    return [{ ...first, length, bits: length * 8, hostOrder: isHost }];
  return forms.length > 0 && lengthOf(forms) === length ? forms : [];
}

export function keyFormsOf({ keyType, keyLen, userdata }: SetInfo): readonly Form[] {
  return formsOf(keyType, keyLen, isHostOrder(userdata, "key"));
}

/** Empty for sets, for maps of verdicts or objects, and for unknown types. */
export function dataFormsOf(info: SetInfo | undefined): readonly Form[] {
  if (info?.dataType === undefined || info.dataType === DATA_VERDICT || info.dataLen === undefined) return [];
  const isHost = isHostOrder(info.userdata, "data");
  const forms = formsOf(info.dataType, info.dataLen, isHost);
  return forms.length > 0 ? forms : formsOf(info.dataType, info.dataLen / 2, isHost);
}

function isHostOrder(userdata: Uint8Array = NONE, part: keyof typeof BYTEORDER): boolean {
  for (let at = 0; at + 2 < userdata.length; at += 2 + userdata[at + 1])
    if (userdata[at] === BYTEORDER[part]) return userdata.subarray(at + 2, at + 6).includes(HOST_ENDIAN);
  return false;
}

/** "services: 10.96.0.10 . tcp . 80 → goto served". */
export function elementText(info: SetInfo, key: Uint8Array, value: Pick<Element, "data" | "verdict">): string {
  const text = mappedText(info, value);
  return `${info.set}: ${keyText(info, key)}${text === undefined ? "" : ` → ${text}`}`;
}

/** The key of an element. */
export function keyText(info: SetInfo, key: Uint8Array, style: ValueStyle = {}): string {
  const forms = keyFormsOf(info);
  return forms.length === 0 ? Buffer.from(key).toString("hex") : dataText(forms, key, style);
}

/** Returns undefined if it is a set. */
export function mappedText(
  info: SetInfo,
  { data, verdict }: Pick<Element, "data" | "verdict">,
  style: ValueStyle = {},
): string | undefined {
  if (verdict !== undefined) return verdictText(verdict);
  if (data === undefined || info.dataType === undefined) return undefined;
  const forms = dataFormsOf(info);
  const length = lengthOf(forms);
  // Maps of address translation may hold networks and ranges.
  if (data.length === 2 * length) return rangesText(forms, data.subarray(0, length), data.subarray(length), style);
  return forms.length === 0 ? Buffer.from(data).toString("hex") : dataText(forms, data, style);
}

interface SetReader {
  readonly style: ValueStyle;
  readonly set: (name: string, id: number | undefined) => ListedSet | undefined;
}

/** @param forms those of the key that the rule looks up. */
export function setText(reading: SetReader, name: string, id: number | undefined, forms: readonly Form[]): string {
  const found = reading.set(name, id);
  const isAnonymous = found === undefined ? name.startsWith("__") : (found.info.flags & SetFlag.anonymous) !== 0;
  // The key of an unknown set may have more fields.
  if (!isAnonymous) return found === undefined && reading.style.isPortable !== true ? `… @${name}` : `@${name}`;
  const { info, elements } = found ?? {};
  if (info === undefined || elements === undefined || forms.length === 0 || lengthOf(forms) !== info.keyLen)
    return "{ … }";
  return `{ ${elementTexts(info, elements, forms, reading.style).join(", ")} }`;
}

/** In nft's order. */
function elementTexts(info: SetInfo, batch: ElementBatch, forms: readonly Form[], style: ValueStyle): string[] {
  const isInterval = (info.flags & SetFlag.interval) !== 0;
  const all = isInterval ? rangeRows(batch).rows : batch;
  const rows = [...elementsOf(all)];
  // nft keeps the kernel's order of ranges.
  const sorted = isInterval ? rows : rows.toSorted((a, b) => Buffer.compare(orderOf(a, forms), orderOf(b, forms)));
  return [...sorted.filter(({ catchall }) => !catchall), ...sorted.filter(({ catchall }) => catchall)].map((row) => {
    const middle = row.key.length / 2;
    const key = row.catchall
      ? "*"
      : isInterval
        ? rangesText(forms, row.key.subarray(0, middle), row.key.subarray(middle), style)
        : dataText(forms, row.key, style);
    const value = row.object === undefined ? mappedText(info, row, style) : `"${row.object}"`;
    return value === undefined ? key : `${key} : ${value}`;
  });
}

/** nft sorts single values as numbers, and keys of several fields from their last byte on. */
function orderOf({ key }: Element, forms: readonly Form[]): Uint8Array {
  const [{ type, hostOrder }] = forms;
  const isNumber = forms.length === 1 && !hostOrder && (type === "raw" || FIELD_TYPES[type].kind !== "text");
  return isNumber ? key : Buffer.concat(partsOf(forms, key, (_, part) => part)).toReversed();
}
