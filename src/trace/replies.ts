/** Whether a connection was answered: its conntrack entry says so (IPS_SEEN_REPLY). */
import { setTimeout as sleep } from "node:timers/promises";
import { CONNTRACK_STATUS, type ConntrackEntry, type ConntrackTable } from "../conntrack/table/types.js";
import { IpProto } from "../base/protocols.js";
import type { TraceHeaders } from "./headers.js";
import type { TracedReply } from "./types.js";

/** When the entry is looked at, ms behind each other: an answer within a node comes at once, one from elsewhere within a second. */
const WAITS_MS = [0, 10, 40, 100, 200, 300, 350] as const;

export interface Answer {
  /** Absent: the wait was cut short, and it may come yet. */
  readonly reply?: TracedReply;
  /** As it was last; absent: there was none. */
  readonly entry?: ConntrackEntry;
}

/** @param ctId of the packet's entry, where the kernel told: another one with the same tuple is another connection's. */
export async function awaitReply(
  conntrack: Pick<ConntrackTable, "lookup">,
  { family, protocol, source, sourcePort, destination, destinationPort }: TraceHeaders,
  ctId: number | undefined,
  signal: AbortSignal,
): Promise<Answer> {
  const original = { source, sourcePort, destination, destinationPort, protocol: IpProto[protocol] };
  let last: ConntrackEntry | undefined;
  for (const waitMs of WAITS_MS) {
    if (waitMs > 0) await sleep(waitMs, undefined, { signal }).catch(() => undefined);
    const entry = await conntrack.lookup(family, original);
    if (entry !== undefined && (ctId === undefined || entry.id === ctId)) last = entry;
    if (last !== undefined && (last.status & CONNTRACK_STATUS.seenReply) !== 0) return { reply: "yes", entry: last };
    if (signal.aborted) return last === undefined ? {} : { entry: last };
  }
  return last === undefined ? { reply: "untracked" } : { reply: "no", entry: last };
}
