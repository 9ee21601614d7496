import { packAddress } from "../../src/base/ip.js";
import type { ConntrackEntry, ConntrackPrefilter } from "../../src/nft/conntrack/conntrack-table.js";

/** Whether the prefilter allows an entry of its family to be skipped. The C++ code must agree with it. */
export function maySkip(prefilter: ConntrackPrefilter, { original, reply }: ConntrackEntry): boolean {
  const { destinations, lists, endpoints } = prefilter;
  const bytes = prefilter.family === "ip" ? 4 : 16;
  const sought = new Uint8Array(bytes + 8);
  packAddress(original.destination, sought, 0);
  sought.set([original.protocol, 0, original.destinationPort >>> 8, original.destinationPort & 0xff], bytes);
  const source = new Uint8Array(bytes + 4);
  packAddress(reply.source, source, 0);
  source.set([reply.sourcePort >>> 8, reply.sourcePort & 0xff], bytes);
  const listed = (list: number): boolean => {
    for (let i = lists[list] ?? 0; i < (lists[list + 1] ?? 0); i++) {
      if (source.every((byte, at) => byte === endpoints[i * source.length + at])) return true;
    }
    return false;
  };
  for (let at = 0; at < destinations.length; at += bytes + 8) {
    const record = destinations.subarray(at, at + bytes + 8);
    const any = record.subarray(0, bytes).every((byte) => byte === 0);
    const from = any ? bytes : 0;
    if (!record.subarray(from, bytes + 4).every((byte, i) => byte === sought[from + i])) continue;
    if (!listed(new DataView(record.buffer, record.byteOffset).getUint32(bytes + 4, true))) return false;
  }
  return true;
}
