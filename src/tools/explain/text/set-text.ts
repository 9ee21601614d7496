/** Keys and data of sets as nft prints them. */
import { formatAddress } from "../../../base/ip.js";
import { protocolName } from "../../../base/protocols.js";
import { DATA_VERDICT, DataTypeId } from "../../../netlink/constants.js";
import type { SetDump } from "../../../netlink/kernel.js";
import type { Found } from "../machine/elements.js";

/** Bits of a field's type in a concatenation's type. */
const TYPE_BITS = 6;

/** "services: 10.96.0.10 . tcp . 80 → goto served". */
export function elementText(set: SetDump, key: Uint8Array, found: Found): string {
  const value = valueText(set, found);
  return `${set.set}: ${keyText(set, key)}${value === undefined ? "" : ` → ${value}`}`;
}

export function keyText(set: SetDump, key: Uint8Array): string {
  return fieldsText(set.keyType, key);
}

/** Returns undefined if it is a set. */
export function valueText(set: SetDump, { data, verdict }: Found): string | undefined {
  if (verdict !== undefined) return "chain" in verdict ? `${verdict.verdict} ${verdict.chain}` : verdict.verdict;
  if (data === undefined || set.dataType === undefined || set.dataType === DATA_VERDICT) return undefined;
  return fieldsText(set.dataType, data);
}

/** Fields of a concatenation are padded to 4 bytes. A single field is not. */
function fieldsText(type: number, bytes: Uint8Array): string {
  const types: number[] = [];
  for (let rest = type; rest > 0; rest = Math.floor(rest / 2 ** TYPE_BITS)) types.unshift(rest % 2 ** TYPE_BITS);
  let at = 0;
  const texts = types.map((id) => {
    const length = id === DataTypeId.ipv6_addr || id === DataTypeId.ifname ? 16 : 4;
    const field = bytes.subarray(at, (at += length));
    return (TEXTS[id] ?? numberText)(field);
  });
  return texts.join(" . ");
}

/** By the type of a field. */
const TEXTS: Readonly<Partial<Record<number, (bytes: Uint8Array) => string>>> = {
  [DataTypeId.ipv4_addr]: formatAddress,
  [DataTypeId.ipv6_addr]: formatAddress,
  [DataTypeId.inet_proto]: ([number = 0]) => protocolName(number),
  [DataTypeId.inet_service]: ([high = 0, low = 0]) => String(high * 256 + low),
  [DataTypeId.classid]: (bytes) => `${(host(bytes) >>> 16).toString(16)}:${(host(bytes) & 0xffff).toString(16)}`,
  [DataTypeId.ifname]: (bytes) => Buffer.from(bytes).toString().replace(/\0.*$/s, ""),
};

function numberText(bytes: Uint8Array): string {
  return bytes.length === 4 ? String(host(bytes)) : Buffer.from(bytes).toString("hex");
}

function host(bytes: Uint8Array): number {
  return new Uint32Array(Uint8Array.from(bytes).buffer.slice(0, 4))[0] ?? 0;
}
