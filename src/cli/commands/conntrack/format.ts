/** Formats entries for people and programs. Pure. */
import { withPort } from "../../../base/ip.js";
import { FAMILY_NAMES } from "../../../base/ip-families.js";
import { isTranslated } from "../../../conntrack/reconcile/stale-entries.js";
import {
  CONNTRACK_STATUS,
  type ConntrackEntry,
  type ConntrackTuple,
} from "../../../conntrack/table/conntrack-table.js";
import { PROTOCOL_NUMBERS, STATUS_NAMES } from "./filter-options.js";
import type { EntryNames } from "./service-snapshot.js";

export const FORMATS = ["text", "wide", "json"] as const;
export type Format = (typeof FORMATS)[number];

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

interface Column {
  readonly title: string;
  readonly width: number;
  text(entry: ConntrackEntry, names: EntryNames): string;
}

const COLUMNS: readonly Column[] = [
  { title: "PROTO", width: 5, text: ({ original }) => protocolText(original.protocol) },
  { title: "STATE", width: 11, text: stateText },
  { title: "LEFT", width: 8, text: ({ timeout }) => (timeout === undefined ? "-" : `${timeout}s`) },
  { title: "SOURCE", width: 21, text: ({ original }) => sourceText(original) },
  { title: "DESTINATION", width: 21, text: ({ original }) => destinationText(original) },
  { title: "ENDPOINT", width: 21, text: (entry) => (isTranslated(entry) ? sourceText(entry.reply) : "-") },
];

const NAME_COLUMNS: readonly Column[] = [
  { title: "SERVICE", width: 24, text: (_entry, { service }) => service ?? "-" },
  { title: "POD", width: 24, text: (_entry, { pod }) => pod ?? "-" },
];

const WIDE_COLUMNS: readonly Column[] = [
  { title: "REPLY-TO", width: 21, text: ({ reply }) => addressText(reply.destination, reply.destinationPort) },
  { title: "PACKETS", width: 15, text: ({ counters }) => counted(counters, "packets") },
  { title: "BYTES", width: 17, text: ({ counters }) => counted(counters, "bytes") },
  { title: "MARK", width: 6, text: ({ mark }) => (mark === 0 ? "-" : `0x${mark.toString(16)}`) },
  { title: "ZONE", width: 4, text: (entry) => zoneText(entry) },
  { title: "SINCE", width: 24, text: ({ startedAt }) => (startedAt === undefined ? "-" : isoTime(startedAt)) },
  { title: "ID", width: 10, text: ({ id }) => String(id) },
  { title: "FLAGS", width: 5, text: ({ status }) => statusNames(status).join(",") || "-" },
];

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

/** Widths of the additional columns: an outcome and a reason. A single character needs only its own width. */
const EXTRA_WIDTHS: readonly number[] = [8, 17];

export class EntryFormat {
  readonly #format: Format;
  readonly #columns: readonly Column[];

  /** @param named whether services are known, and so have columns. */
  constructor(format: Format, named: boolean) {
    this.#format = format;
    this.#columns = [...COLUMNS, ...(named ? NAME_COLUMNS : []), ...(format === "wide" ? WIDE_COLUMNS : [])];
  }

  /** Whether lines may be shortened to fit a terminal. Lines of `wide` are meant for scrolling. */
  get fits(): boolean {
    return this.#format === "text";
  }

  /** Returns the titles of all columns, starting with the additional ones, or undefined for JSON. */
  header(first: readonly string[] = []): string[] | undefined {
    if (this.#format === "json") return undefined;
    return [...first, ...this.#columns.map(({ title }) => title)];
  }

  /** Returns the widths that suffice for most cells of all columns, starting with the additional ones. */
  widths(extra: readonly string[] = []): readonly number[] {
    const front = extra.map(({ length }, i) => (length <= 1 ? length : Math.max(length, EXTRA_WIDTHS[i] ?? 0)));
    return [...front, ...this.#columns.map(({ width }) => width)];
  }

  row(entry: ConntrackEntry, names: EntryNames, extra?: Extra): string[] {
    return [...(extra?.cells ?? []), ...this.#columns.map((column) => column.text(entry, names))];
  }

  /** Returns one JSON object, or undefined for formats with columns. */
  json(entry: ConntrackEntry, names: EntryNames, extra?: Extra): string | undefined {
    return this.#format === "json" ? JSON.stringify({ ...extra?.fields, ...jsonOf(entry, names) }) : undefined;
  }
}

/** Returns an entry as one object, with all fields from the kernel and the names. */
function jsonOf(entry: ConntrackEntry, { service, pod }: EntryNames): Record<string, unknown> {
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
