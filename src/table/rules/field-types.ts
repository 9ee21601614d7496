/** The types of the fields of keys and data: widths, numbers and texts. */
import { addressText } from "../../base/ip-ranges.js";
import { protocolName } from "../../base/protocols.js";
import { DataTypeId, IpProto } from "../../netlink/constants.js";
import { readU32 } from "../elements/bytes.js";
import type { FieldType } from "./rule.js";

interface FieldTypeTerms {
  /** The number of the type in nft. */
  readonly id: number;
  /** Width without padding. */
  readonly bytes: number;
  /** An expression of this type for nft's `typeof`. */
  readonly example: string;
  /** Whether the kernel loads it in the machine's own byte order. */
  readonly hostOrder: boolean;
  /** Prints the unpadded bytes as nft does. */
  readonly text: (bytes: Uint8Array) => string;
}

/** Prints the protocol as nft does. */
const protocolText = (number: number): string => (number === IpProto.icmpv6 ? "ipv6-icmp" : protocolName(number));

/** A type that is sent in network byte order. */
function inOrder(id: number, bytes: number, example: string, text: (bytes: Uint8Array) => string): FieldTypeTerms {
  return { id, bytes, example, hostOrder: false, text };
}

function hostNumber(id: number, example: string, text: (value: number) => string): FieldTypeTerms {
  return { id, bytes: 4, example, hostOrder: true, text: (bytes) => text(readU32(bytes, 0)) };
}

export const FIELD_TYPES: Readonly<Record<FieldType, FieldTypeTerms>> = {
  ipv4_addr: inOrder(DataTypeId.ipv4_addr, 4, "ip daddr", addressText),
  ipv6_addr: inOrder(DataTypeId.ipv6_addr, 16, "ip6 daddr", addressText),
  inet_proto: inOrder(DataTypeId.inet_proto, 1, "meta l4proto", ([n]) => protocolText(n)),
  inet_service: inOrder(DataTypeId.inet_service, 2, "th dport", ([high, low]) => String(high * 256 + low)),
  ifname: inOrder(
    DataTypeId.ifname,
    16,
    "meta iifname",
    (name) => `"${Buffer.from(name).toString().replaceAll("\0", "")}"`,
  ),
  mark: hostNumber(DataTypeId.mark, "meta mark", hex),
  classid: hostNumber(DataTypeId.classid, "meta priority", classidText),
  index: hostNumber(DataTypeId.mark, "numgen random mod 2", String),
};

export function hex(value: number): string {
  return `0x${(value >>> 0).toString(16)}`;
}

/** Prints a class as tc and nft do: major and minor number in hex. The smallest and the largest value have names. */
export function classidText(value: number): string {
  if (value === 0) return "none";
  return value === 0xffffffff ? "root" : `${(value >>> 16).toString(16)}:${(value & 0xffff).toString(16)}`;
}
