/** Formats entries for people and programs. Pure. */
import { withPort } from "../../../base/ip.js";
import type { Column } from "../../text/text-table.js";
import { FAMILY_NAMES } from "../../../base/ip-families.js";
import { isTranslated } from "../../../conntrack/reconcile/stale-entries.js";
import { CONNTRACK_STATUS, type ConntrackEntry, type ConntrackTuple } from "../../../nft/conntrack/conntrack-table.js";
import { PROTOCOL_NUMBERS, STATUS_NAMES } from "./filter-options.js";
import type { EntryNames } from "./service-snapshot.js";

export type Format = "text" | "wide" | "json";

const PROTOCOL_NAMES: ReadonlyMap<number, string> = new Map(
  [...PROTOCOL_NUMBERS].map(([name, number]) => [number, name]),
);

function protocolText(number: number): string {
  return PROTOCOL_NAMES.get(number) ?? String(number);
}

function statusNames(status: number): string[] {
  return Object.entries(STATUS_NAMES)
    .filter(([, bit]) => (status & bit) !== 0)
    .map(([name]) => name);
}

function addressText(address: string, port: number): string {
  return port === 0 ? address : withPort(address, port);
}

function sourceText(tuple: ConntrackTuple): string {
  return addressText(tuple.source, tuple.sourcePort);
}

function destinationText(tuple: ConntrackTuple): string {
  const text = addressText(tuple.destination, tuple.destinationPort);
  const { icmp } = tuple;
  return icmp === undefined ? text : `${text} type ${icmp.type} code ${icmp.code} id ${icmp.id}`;
}

/** Returns the protocol's state or, for protocols without states, whether replies have come. */
function stateText({ state, status }: ConntrackEntry): string {
  if (state !== undefined) return state;
  if ((status & CONNTRACK_STATUS.seenReply) === 0) return "UNREPLIED";
  return (status & CONNTRACK_STATUS.assured) === 0 ? "REPLIED" : "ASSURED";
}

/** One line of output. */
interface EntryLine {
  readonly entry: ConntrackEntry;
  readonly names: EntryNames;
  /** Cells of additional columns. */
  readonly extra: readonly string[];
}

type EntryColumn = Column<EntryLine>;

const of =
  (text: (entry: ConntrackEntry) => string) =>
  ({ entry }: EntryLine): string =>
    text(entry);

const COLUMNS: readonly EntryColumn[] = [
  { title: "PROTO", usual: 5, text: of(({ original }) => protocolText(original.protocol)) },
  { title: "STATE", usual: 11, text: of(stateText) },
  { title: "LEFT", usual: 8, drop: 1, text: of(({ timeout }) => (timeout === undefined ? "-" : `${timeout}s`)) },
  { title: "SOURCE", usual: 21, text: of(({ original }) => sourceText(original)) },
  { title: "DESTINATION", usual: 21, text: of(({ original }) => destinationText(original)) },
  { title: "ENDPOINT", usual: 21, text: of((entry) => (isTranslated(entry) ? sourceText(entry.reply) : "-")) },
];

const NAME_COLUMNS: readonly EntryColumn[] = [
  { title: "SERVICE", usual: 24, drop: 3, text: ({ names }) => names.service ?? "-" },
  { title: "POD", usual: 24, drop: 2, text: ({ names }) => names.pod ?? "-" },
];

const WIDE_COLUMNS: readonly EntryColumn[] = [
  { title: "REPLY-TO", usual: 21, text: of(({ reply }) => addressText(reply.destination, reply.destinationPort)) },
  { title: "PACKETS", usual: 15, text: of(({ counters }) => counted(counters, "packets")) },
  { title: "BYTES", usual: 17, text: of(({ counters }) => counted(counters, "bytes")) },
  { title: "MARK", usual: 6, text: of(({ mark }) => (mark === 0 ? "-" : `0x${mark.toString(16)}`)) },
  { title: "ZONE", text: of(zoneText) },
  { title: "SINCE", usual: 24, text: of(({ startedAt }) => (startedAt === undefined ? "-" : isoTime(startedAt))) },
  { title: "ID", usual: 10, text: of(({ id }) => String(id)) },
  { title: "FLAGS", text: of(({ status }) => statusNames(status).join(",") || "-") },
];

/** Usual widths of additional columns: an outcome and a reason. */
const EXTRA_WIDTHS: readonly number[] = [8, 17];

/**
 * @param extra titles of additional columns before the entry's. A title of a single character needs only its own width.
 * @param named whether services are known, and so have columns.
 */
export function entryColumns(format: Format, named: boolean, extra: readonly string[] = []): readonly EntryColumn[] {
  const first = extra.map((title, i) => ({
    title,
    usual: title.length <= 1 ? 1 : EXTRA_WIDTHS[i],
    text: (line: EntryLine) => line.extra[i] ?? "",
  }));
  return [...first, ...COLUMNS, ...(named ? NAME_COLUMNS : []), ...(format === "wide" ? WIDE_COLUMNS : [])];
}

function counted(counters: ConntrackEntry["counters"], what: "packets" | "bytes"): string {
  return counters === undefined ? "-" : `${counters.original[what]}/${counters.reply[what]}`;
}

function zoneText({ zone, original, reply }: ConntrackEntry): string {
  if (original.zone === undefined && reply.zone === undefined) return zone === 0 ? "-" : String(zone);
  return `${original.zone ?? 0}/${reply.zone ?? 0}`;
}

function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

/** Additional information about an entry, in separate columns before it, or in JSON fields. */
export interface Extra {
  readonly cells: readonly string[];
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Returns an entry as one object, with all fields from the kernel and the names. */
export function jsonOf(entry: ConntrackEntry, { service, pod }: EntryNames): Record<string, unknown> {
  const { family, original, reply, id, status, timeout, mark, zone, state, labels, counters, startedAt } = entry;
  return {
    family: FAMILY_NAMES[family],
    protocol: protocolText(original.protocol),
    state,
    original: tupleJson(original),
    reply: tupleJson(reply),
    status: statusNames(status),
    timeoutSeconds: timeout,
    mark,
    zone,
    id,
    labels: labels && Buffer.from(labels).toString("hex"),
    ...(counters !== undefined && {
      counters: { original: countersJson(counters.original), reply: countersJson(counters.reply) },
    }),
    ...(startedAt !== undefined && { startedAt: isoTime(startedAt) }),
    service,
    pod,
  };
}

function tupleJson({ source, sourcePort, destination, destinationPort, icmp, zone }: ConntrackTuple): object {
  return {
    source,
    ...(icmp === undefined && { sourcePort }),
    destination,
    ...(icmp === undefined && { destinationPort }),
    icmp: icmp && { id: icmp.id, type: icmp.type, code: icmp.code },
    zone,
  };
}

/** Returns numbers up to 2^53, and text for larger ones, because JSON readers would round them. */
function countersJson({ packets, bytes }: { packets: bigint; bytes: bigint }): object {
  const number = (value: bigint) => (value <= Number.MAX_SAFE_INTEGER ? Number(value) : value.toString());
  return { packets: number(packets), bytes: number(bytes) };
}
