/** Entries of the connection tracking table, created through ctnetlink: any protocol and state, without packets. */
import type { NewConntrackEntry } from "../../../src/nft/conntrack/conntrack-table.ts";
import { type Family, PLAN } from "../../lab/topology.ts";
import { POD_PORT } from "./objects.ts";

export const NUMBERS = { tcp: 6, udp: 17, sctp: 132 } as const;
export type Proto = keyof typeof NUMBERS;
/** A pod's address that is in no slice. */
export const GONE = { ip: "10.244.0.99", ip6: "fd00:10:244::99" } as const;
const SECONDS = 3600;

export interface EntrySpec {
  readonly family: Family;
  readonly protocol: Proto;
  readonly sourcePort: number;
  readonly destination: string;
  readonly port: number;
  /** The answering address, on POD_PORT; absent for the destination itself, untranslated. */
  readonly endpoint?: string;
  readonly state?: string;
  /** Default: the lab's client. */
  readonly source?: string;
}

/** A client's connection. SCTP's state is ESTABLISHED unless given. */
export function entryTo(spec: EntrySpec): NewConntrackEntry {
  const { family, sourcePort, destination, port, endpoint, source = PLAN.client[family] } = spec;
  const protocol = NUMBERS[spec.protocol];
  const state = spec.state ?? (spec.protocol === "sctp" ? "ESTABLISHED" : undefined);
  return {
    family,
    original: { protocol, source, sourcePort, destination, destinationPort: port },
    reply: {
      protocol,
      source: endpoint ?? destination,
      sourcePort: endpoint === undefined ? port : POD_PORT,
      destination: source,
      destinationPort: sourcePort,
    },
    timeout: SECONDS,
    state,
  };
}
