/** Short helpers for connections in conntrack tests: create and list entries. */
import { plainEntry } from "../../src/nft/conntrack/decode.js";
import type {
  ConntrackEntry,
  ConntrackFilter,
  ConntrackTable,
  ConntrackTuple,
  NewConntrackEntry,
} from "../../src/nft/conntrack/conntrack-table.js";
import { KernelError } from "../../src/nft/kernel/errors.js";

/** `tuple` in the other direction. */
export function inverted(tuple: ConntrackTuple): ConntrackTuple {
  const { source, destination, protocol, sourcePort, destinationPort } = tuple;
  return {
    source: destination,
    destination: source,
    protocol,
    sourcePort: destinationPort,
    destinationPort: sourcePort,
  };
}

export interface Flow {
  readonly client?: string;
  readonly clientPort?: number;
  readonly vip?: string;
  readonly port?: number;
  readonly protocol?: number;
  readonly endpoint?: string;
  readonly endpointPort?: number;
}

/** A connection to a service; without an endpoint, one to the address itself. */
export function flow(from: Flow = {}, more: Partial<NewConntrackEntry> = {}): NewConntrackEntry {
  const { client = "10.0.0.7", clientPort = 40_000, vip = "10.96.0.10", port = 53, protocol = 17 } = from;
  const original: ConntrackTuple = {
    source: client,
    destination: vip,
    protocol,
    sourcePort: clientPort,
    destinationPort: port,
  };
  const plain = inverted(original);
  const { endpoint = plain.source, endpointPort = plain.sourcePort } = from;
  const reply: ConntrackTuple = { ...plain, source: endpoint, sourcePort: endpointPort };
  return { family: client.includes(":") ? "ip6" : "ip", original, reply, timeout: 600, ...more };
}

/** An echo request. */
export function ping(source: string, destination: string, id: number): NewConntrackEntry {
  const v4 = !source.includes(":");
  const tuple = (from: string, to: string, type: number): ConntrackTuple => ({
    source: from,
    destination: to,
    protocol: v4 ? 1 : 58,
    sourcePort: 0,
    destinationPort: 0,
    icmp: { id, type, code: 0 },
  });
  return {
    family: v4 ? "ip" : "ip6",
    original: tuple(source, destination, v4 ? 8 : 128),
    reply: tuple(destination, source, v4 ? 0 : 129),
    timeout: 600,
  };
}

/** Returns every entry of the table as plain objects, by client and port. */
export async function all(table: ConntrackTable, filter: ConntrackFilter = {}): Promise<ConntrackEntry[]> {
  const entries: ConntrackEntry[] = [];
  await table.dump(filter, (chunk) => void entries.push(...chunk.map(plainEntry)));
  const key = ({ original, zone }: ConntrackEntry): string => JSON.stringify([original, zone]);
  return entries.sort((a, b) => (key(a) < key(b) ? -1 : 1));
}

/** Creates an entry and returns it as the table has it. */
export async function made(table: ConntrackTable, entry: NewConntrackEntry): Promise<ConntrackEntry> {
  await table.create(entry);
  const found = await table.lookup(entry.family, entry.original, entry.zone);
  if (found === undefined) throw new Error("the entry was created and cannot be found");
  return found;
}

/**
 * Recreates `entry` with another id than `old`. The kernel may give it the memory of the deleted entry, and therefore its id. More and more
 * other entries take that memory until it does not: each CPU has its own list of free memory, and this thread moves between CPUs.
 */
export async function remade(table: ConntrackTable, entry: NewConntrackEntry, old: number): Promise<ConntrackEntry> {
  let others = 0;
  for (let round = 1; round <= 100; round++) {
    for (let i = 0; i < round; i++) await table.create(flow({ client: "10.77.0.1", clientPort: ++others }));
    const again = await made(table, entry);
    if (again.id !== old) return again;
    await table.delete(again);
  }
  throw new Error("every new entry has the old one's id");
}

/** Returns the KernelError of a promise that must be rejected with one. */
export async function refusal(promise: Promise<unknown>): Promise<KernelError> {
  const error: unknown = await promise.then(
    () => new Error("the call was not rejected"),
    (reason: unknown) => reason,
  );
  if (error instanceof KernelError) return error;
  throw error;
}
