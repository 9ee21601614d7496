/** Prints the connections of a trace as lines, in order, as fast as the reader takes them. */
import { counted } from "../../base/counted.js";
import { serviceText } from "../../observe/status-report.js";
import { outcomeLine, outcomeOf, type PacketNames } from "../../tools/trace/outcome-line.js";
import { isDropped, type TracedPacket, type TraceTotals } from "../../tools/trace/traced-packet.js";
import { Output, ReaderGone } from "./conntrack/output.js";
import type { writeOut } from "../stdio.js";
import type { TraceOptions } from "./question-commands.js";

/** Version of a JSON line. Fields may be added to it, but not changed or removed. */
const LINE = { apiVersion: "nft-proxier.dev/v1", kind: "TracedPacket" } as const;

/** Maximum number of packets kept for a slow reader, some 20 s of the trace. A pager that is not scrolled stops reading. */
export const MOST_WAITING = 1000;

/** A client repeats its first packet at growing intervals of up to 64 s. */
const REPEATED_MS = 70_000;
/** Maximum number of connections to remember. More than 50 a second are not traced. */
const MOST_REMEMBERED = 5000;

type Filters = Pick<TraceOptions, "refused" | "unanswered" | "dropped">;

export interface TracePrinterOptions extends Pick<TraceOptions, "count" | "allPackets" | "output">, Filters {
  /** Maximum length of a line of text. Absent: no limit. */
  readonly width?: number;
  readonly names: { of(packet: TracedPacket): Promise<PacketNames> };
  /** Default: writes to stdout. */
  readonly write?: typeof writeOut;
  /** Called when printing ends, because enough packets are printed or the reader is gone. */
  onFull(): void;
  /** Called when the first packets are skipped, because `MOST_WAITING` packets are pending. */
  onBehind(): void;
}

/** Without any filter, every connection passes. */
function passes({ refused, unanswered, dropped }: Filters, packet: TracedPacket): boolean {
  if (refused !== true && unanswered !== true && dropped !== true) return true;
  if (isDropped(packet)) return dropped === true;
  return packet.reply === "refused" ? refused === true : unanswered === true && packet.reply === "no";
}

export class TracePrinter {
  readonly #output: Output;
  readonly #outcomes = new Map<string, number>();
  readonly #recent = new Map<string, { readonly outcome: string; readonly at: number }>();
  #seen = 0;
  #printed = 0;
  #waiting = 0;
  #skipped = 0;
  #behind = false;
  #printing: Promise<void> = Promise.resolve();

  constructor(private readonly options: TracePrinterOptions) {
    this.#output = new Output(options.write);
  }

  packet(packet: TracedPacket): void {
    const { count } = this.options;
    if (count !== undefined && this.#printed >= count) return;
    this.#seen++;
    if (!this.#isNews(packet) || !passes(this.options, packet)) return;
    if (this.#waiting >= MOST_WAITING) return this.#skip();
    this.#behind = false;
    this.#printed++;
    this.#waiting++;
    // Packets keep their order, although their names may take time.
    const before = this.#printing;
    this.#printing = (async () => {
      await before;
      await this.#print(packet);
      this.#waiting--;
    })();
    this.#printing.catch(() => this.options.onFull());
    if (this.#printed === count) this.options.onFull();
  }

  /** Resolves to the number of printed packets when all waiting ones are written. */
  async finish(): Promise<number> {
    try {
      await this.#printing;
    } catch (error) {
      if (!(error instanceof ReaderGone)) throw error;
    }
    return this.#printed;
  }

  /** Returns the result of the trace: "3 connections: 2 answered, 1 refused; 7 packets matched". */
  summary({ matched, losses }: TraceTotals): string {
    const counts = [...this.#outcomes].filter(([, count]) => count > 0).toSorted(([, a], [, b]) => b - a);
    const sum = counts.reduce((all, [, count]) => all + count, 0);
    const kinds = counts.map(([outcome, count]) => `${count} ${outcome}`).join(", ");
    const more = matched > this.#seen ? `; ${counted(matched, "packet")} matched` : "";
    const lost = losses === 0 ? "" : `; the kernel dropped messages ${losses === 1 ? "once" : `${losses} times`}`;
    const skipped = this.#skipped === 0 ? "" : `; ${this.#skipped} not printed because the reader was too slow`;
    const what = counted(sum, this.options.allPackets === true ? "packet" : "connection");
    return `${what}${kinds === "" ? "" : `: ${kinds}`}${more}${lost}${skipped}`;
  }

  /** Counts the outcome. Returns false for a repeated first packet whose outcome is that of the one before. */
  #isNews(packet: TracedPacket): boolean {
    const outcome = outcomeOf(packet);
    const count = (which: string, by: number): unknown =>
      this.#outcomes.set(which, (this.#outcomes.get(which) ?? 0) + by);
    const key = JSON.stringify([packet.protocol, packet.packet]);
    const before = this.options.allPackets === true ? undefined : this.#recent.get(key);
    const isRepeated = before !== undefined && packet.at - before.at < REPEATED_MS;
    // The newest is the last.
    this.#recent.delete(key);
    this.#recent.set(key, { outcome, at: packet.at });
    const [oldest = ""] = this.#recent.keys();
    if (this.#recent.size > MOST_REMEMBERED) this.#recent.delete(oldest);
    if (isRepeated) count(before.outcome, -1);
    count(outcome, 1);
    return !isRepeated || before.outcome !== outcome;
  }

  #skip(): void {
    this.#skipped++;
    if (this.#behind) return;
    this.#behind = true;
    this.options.onBehind();
  }

  async #print(packet: TracedPacket): Promise<void> {
    const names = await this.options.names.of(packet);
    const { service, endpoint } = names;
    const { at, ...rest } = packet;
    const line =
      this.options.output === "text"
        ? outcomeLine(packet, names, this.options.width)
        : JSON.stringify({
            ...LINE,
            time: new Date(at).toISOString(),
            service: service && serviceText(service),
            endpoint,
            ...rest,
          });
    await this.#output.line(line);
    await this.#output.flush();
  }
}
