/** Keys and data of sets as nft prints them. */
import { formatAddress } from "../../base/ip.js";
import { protocolName } from "../../base/protocols.js";
import { DATA_VERDICT, DataTypeId } from "../../netlink/constants.js";
import type { SetDump, Verdict } from "../../netlink/kernel.js";
import type { Found } from "./ruleset.js";

/** Bits of a field's type in a concatenation's type. */
const TYPE_BITS = 6;

export function keyText(set: SetDump, key: Uint8Array): string {
  return fieldsText(set.keyType, key);
}

/** Returns undefined if it is a set. */
export function valueText(set: SetDump, { data, verdict }: Found): string | undefined {
  if (verdict !== undefined) return verdictText(verdict);
  if (data === undefined || set.dataType === undefined || set.dataType === DATA_VERDICT) return undefined;
  return fieldsText(set.dataType, data);
}

function verdictText(verdict: Verdict): string {
  return "chain" in verdict ? `${verdict.verdict} ${verdict.chain}` : verdict.verdict;
}

/** Fields of a concatenation are padded to 4 bytes. A single field is not. */
function fieldsText(type: number, bytes: Uint8Array): string {
  const types: number[] = [];
  for (let rest = type; rest > 0; rest = Math.floor(rest / 2 ** TYPE_BITS)) types.unshift(rest % 2 ** TYPE_BITS);
  let at = 0;
  const texts = types.map((id) => {
    const length = id === DataTypeId.ipv6_addr || id === DataTypeId.ifname ? 16 : 4;
    const field = bytes.subarray(at, at + length);
    at += length;
    return fieldText(id, field);
  });
  return texts.join(" . ");
}

function fieldText(id: number, bytes: Uint8Array): string {
  switch (id) {
    case DataTypeId.ipv4_addr:
    case DataTypeId.ipv6_addr:
      return formatAddress(bytes);
    case DataTypeId.inet_proto:
      return protocolName(bytes[0] ?? 0);
    case DataTypeId.inet_service:
      return String((bytes[0] ?? 0) * 256 + (bytes[1] ?? 0));
    case DataTypeId.classid: {
      const value = host(bytes);
      return `${(value >>> 16).toString(16)}:${(value & 0xffff).toString(16)}`;
    }
    case DataTypeId.ifname:
      return Buffer.from(bytes).toString().replace(/\0.*$/s, "");
    default:
      return bytes.length === 4 ? String(host(bytes)) : Buffer.from(bytes).toString("hex");
  }
}

function host(bytes: Uint8Array): number {
  return new Uint32Array(Uint8Array.from(bytes).buffer.slice(0, 4))[0] ?? 0;
}
