/** Parses the words of commands that describe packets: "[tcp|udp|sctp] [SOURCE] DESTINATION". Pure. */
import { type Transport, TRANSPORTS } from "./machine/packet-spec.js";

interface PacketWords {
  readonly protocol?: Transport;
  readonly source?: string;
  /** Absent if there are too few words, or too many. */
  readonly destination?: string;
}

export function packetWords(words: readonly string[]): PacketWords {
  const protocol = TRANSPORTS.find((name) => name === words[0]);
  const rest = protocol === undefined ? words : words.slice(1);
  if (rest.length === 1) return { protocol, destination: rest[0] };
  return rest.length === 2 ? { protocol, source: rest[0], destination: rest[1] } : { protocol };
}

/** Splits "HOST", "HOST:PORT" and "[HOST]:PORT". Returns undefined for another form, or a port that cannot exist. */
export function hostAndPort(text: string): { readonly host: string; readonly port?: number } | undefined {
  const [, bracketed, plain = bracketed, digits] = /^(?:\[(.+)\]|([^[\]]+?))(?::(\d{1,5}))?$/.exec(text) ?? [];
  const port = digits === undefined ? undefined : Number(digits);
  if (plain === undefined || port === 0 || (port ?? 0) > 65_535) return undefined;
  return { host: plain, port };
}
