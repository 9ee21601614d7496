/**
 * Addresses and prefixes, read as Go's lenient parser reads them (k8s.io/utils/net ParseIPSloppy, ParseCIDRSloppy).
 * Leading zeros in a dotted quad are decimal, an IPv4-mapped IPv6 address is the IPv4 address, and zones are invalid.
 */
import { isIPv4 } from "node:net";

export type IpFamily = "ip" | "ip6";

const DOT = 46;
const COLON = 58;
const ZERO = 48;
const NINE = 57;

/** Family of a *canonical* address or CIDR. */
export function familyOf(canonical: string): IpFamily {
  return canonical.includes(":") ? "ip6" : "ip";
}

/** Writes the four bytes of the dotted quad text[from..]. Returns false if it is not one. */
function packV4(text: string, from: number, into: Uint8Array, offset: number): boolean {
  let octet = 0;
  let digits = 0;
  let at = 0;
  for (let i = from; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c >= ZERO && c <= NINE) {
      octet = octet * 10 + c - ZERO;
      if (octet > 255) return false;
      digits++;
    } else if (c === DOT && digits > 0 && at < 3) {
      into[offset + at++] = octet;
      octet = 0;
      digits = 0;
    } else {
      return false;
    }
  }
  if (at !== 3 || digits === 0) return false;
  into[offset + 3] = octet;
  return true;
}

function hexDigit(c: number): number {
  if (c >= ZERO && c <= NINE) return c - ZERO;
  const lower = c | 0x20;
  return lower >= 97 && lower <= 102 ? lower - 87 : -1;
}

/** Writes the sixteen bytes of an IPv6 address. Returns false if it is not one. The steps are those of Go's parseIPv6. */
function packV6(text: string, into: Uint8Array, offset: number): boolean {
  let ellipsis = -1;
  let at = 0;
  let i = 0;
  if (text.charCodeAt(0) === COLON && text.charCodeAt(1) === COLON) {
    ellipsis = 0;
    i = 2;
  }
  while (at < 16 && i < text.length) {
    const start = i;
    let group = 0;
    for (let digit; i < text.length && (digit = hexDigit(text.charCodeAt(i))) >= 0; i++) {
      group = group * 16 + digit;
      if (group > 0xffff) return false;
    }
    if (i === start) return false;
    if (text.charCodeAt(i) === DOT) {
      if ((ellipsis < 0 && at !== 12) || at > 12 || !packV4(text, start, into, offset + at)) return false;
      at += 4;
      i = text.length;
      break;
    }
    into[offset + at++] = group >> 8;
    into[offset + at++] = group & 0xff;
    if (i === text.length) break;
    if (text.charCodeAt(i) !== COLON || i + 1 === text.length) return false;
    i++;
    if (text.charCodeAt(i) === COLON) {
      if (ellipsis >= 0) return false;
      ellipsis = at;
      i++;
    }
  }
  if (i !== text.length) return false;
  if (at === 16) return ellipsis < 0;
  if (ellipsis < 0) return false;
  const tail = at - ellipsis;
  into.copyWithin(offset + 16 - tail, offset + ellipsis, offset + at);
  into.fill(0, offset + ellipsis, offset + 16 - tail);
  return true;
}

/** True if the sixteen bytes are ::ffff:a.b.c.d. */
function isMapped(bytes: Uint8Array, offset: number): boolean {
  for (let i = 0; i < 10; i++) if (bytes[offset + i] !== 0) return false;
  return bytes[offset + 10] === 0xff && bytes[offset + 11] === 0xff;
}

/**
 * The 4 bytes of a canonical dotted quad, or the 16 of an IPv6 address, including an IPv4-mapped one. Returns undefined if
 * `text` is neither.
 */
export function addressBytes(text: string): Uint8Array | undefined {
  const bytes = new Uint8Array(16);
  if (isIPv4(text)) packV4(text, 0, bytes, 0);
  else return packV6(text, bytes, 0) ? bytes : undefined;
  return bytes.subarray(0, 4);
}

/**
 * Writes an address in network byte order at `offset`. Returns its length, 4 or 16, or 0 if `text` is not an address (the
 * bytes there are then undefined). `into` needs room for 16 bytes whenever the text may contain a colon.
 */
export function packAddress(text: string, into: Uint8Array, offset: number): 0 | 4 | 16 {
  if (packV4(text, 0, into, offset)) return 4;
  if (!text.includes(":") || !packV6(text, into, offset)) return 0;
  if (!isMapped(into, offset)) return 16;
  into.copyWithin(offset, offset + 12, offset + 16);
  return 4;
}

/** Canonical text of 4 or 16 address bytes: dotted quad, or RFC 5952. */
export function formatAddress(bytes: Uint8Array): string {
  if (bytes.length === 4) return `${bytes[0]}.${bytes[1]}.${bytes[2]}.${bytes[3]}`;
  const group = (i: number) => ((bytes[2 * i] ?? 0) << 8) | (bytes[2 * i + 1] ?? 0);
  let best = -1;
  let bestLength = 1;
  for (let i = 0; i < 8; i++) {
    let end = i;
    while (end < 8 && group(end) === 0) end++;
    if (end - i > bestLength) {
      best = i;
      bestLength = end - i;
    }
    if (end > i) i = end;
  }
  let text = "";
  for (let i = 0; i < 8; i++) {
    if (i === best) {
      text += "::";
      i += bestLength - 1;
    } else {
      text += (text === "" || text.endsWith(":") ? "" : ":") + group(i).toString(16);
    }
  }
  return text;
}

const scratch = new Uint8Array(16);

/** Canonical text of an address. Returns undefined if `text` is not an address. */
export function parseAddress(text: string): string | undefined {
  if (isIPv4(text)) return text;
  const length = packAddress(text, scratch, 0);
  return length === 0 ? undefined : formatAddress(scratch.subarray(0, length));
}

/** Kinds of addresses that no service and no endpoint can have. */
export type SpecialKind = "an unspecified" | "a loopback" | "a link-local" | "a multicast" | "the broadcast";

/** Returns undefined for an ordinary address. @param bytes contains the 4 or 16 address bytes, starting at `at`. */
export function specialKind(bytes: Uint8Array, at = 0, length = bytes.length): SpecialKind | undefined {
  const [first, second] = [bytes[at], bytes[at + 1]];
  if (length === 4) {
    if (first === 127) return "a loopback";
    if (first === 169 && second === 254) return "a link-local";
    if (first >= 224 && first < 240) return "a multicast";
  } else {
    if (first === 0xfe && (second & 0xc0) === 0x80) return "a link-local";
    if (first === 0xff) return "a multicast";
  }
  // The special addresses that remain have the same value in all bytes but the last.
  if (first !== 0 && (length === 16 || first !== 255)) return undefined;
  for (let i = 1; i < length - 1; i++) if (bytes[at + i] !== first) return undefined;
  const last = bytes[at + length - 1];
  if (first === 255) return last === 255 ? "the broadcast" : undefined;
  if (last === 0) return "an unspecified";
  return last === 1 && length === 16 ? "a loopback" : undefined;
}

/** Like `specialKind`, for a canonical address. */
export function specialKindOf(address: string): SpecialKind | undefined {
  const length = packAddress(address, scratch, 0);
  return length === 0 ? undefined : specialKind(scratch, 0, length);
}

export interface Prefix {
  readonly family: IpFamily;
  /** Network address: 4 or 16 bytes, host bits zero. */
  readonly bytes: Uint8Array;
  readonly length: number;
  /** "10.0.0.0/8": canonical, host bits zero. */
  readonly text: string;
}

/** Reads "address/length". Host bits are allowed, and cleared. Returns undefined if `text` is not a CIDR. */
export function parseCIDR(text: string): Prefix | undefined {
  const slash = text.indexOf("/");
  const lengthText = text.slice(slash + 1);
  if (slash < 0 || !/^\d{1,8}$/.test(lengthText)) return undefined;
  const addressText = text.slice(0, slash);
  const size = packAddress(addressText, scratch, 0);
  if (size === 0) return undefined;
  let length = Number(lengthText);
  // As in Go, the length for a mapped address counts from the start of the IPv6 address.
  if (size === 4 && addressText.includes(":")) {
    if (length < 96) return undefined;
    length -= 96;
  }
  if (length > size * 8) return undefined;
  const bytes = maskBytes(scratch.subarray(0, size), length);
  return { family: size === 4 ? "ip" : "ip6", bytes, length, text: `${formatAddress(bytes)}/${length}` };
}

function maskBytes(bytes: Uint8Array, length: number): Uint8Array {
  return bytes.map((byte, i) => byte & (0xff00 >> Math.min(8, Math.max(0, length - 8 * i))) & 0xff);
}

/** Whether `inner` lies inside `outer`. */
export function prefixCovers(outer: Prefix, inner: Prefix): boolean {
  if (outer.family !== inner.family || outer.length > inner.length) return false;
  return maskBytes(inner.bytes, outer.length).every((byte, i) => byte === outer.bytes[i]);
}

/** Whether the address (any spelling) lies inside the prefix. */
export function prefixContains(prefix: Prefix, address: string): boolean {
  const bytes = new Uint8Array(16);
  const size = packAddress(address, bytes, 0);
  if (size !== prefix.bytes.length) return false;
  return maskBytes(bytes.subarray(0, size), prefix.length).every((byte, i) => byte === prefix.bytes[i]);
}

/**
 * The same addresses without overlap, sorted, as canonical text: an interval set rejects overlapping ranges. All prefixes
 * must be of one family.
 */
export function mergePrefixes(prefixes: readonly Prefix[]): string[] {
  const sorted = prefixes.toSorted((a, b) => Buffer.compare(a.bytes, b.bytes) || a.length - b.length);
  const kept: Prefix[] = [];
  for (const prefix of sorted) {
    // Sorted by start, then widest first: only the last kept prefix can cover this one.
    const last = kept.at(-1);
    if (last === undefined || !prefixCovers(last, prefix)) kept.push(prefix);
  }
  return kept.map((prefix) => prefix.text);
}

/** Splits "IP:port", with an IPv6 address in brackets. */
export function hostAndPort(text: string): { readonly host: string; readonly port: number } {
  const colon = text.lastIndexOf(":");
  const host = text.slice(0, colon).replace(/^\[(.*)\]$/, "$1");
  return { host, port: Number(text.slice(colon + 1)) };
}

/** Joins address and port, with an IPv6 address in brackets. */
export function withPort(address: string, port: number): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
