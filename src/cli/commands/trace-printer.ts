/** Prints the packets of a trace as lines, in order, as fast as the reader takes them. */
import { counted } from "../../base/counted.js";
import { serviceText } from "../../observe/status-report.js";
import { packetText, type PacketNames } from "../../tools/trace/packet-text.js";
import { isDropped, type TracedPacket, type TraceTotals } from "../../tools/trace/traced-packet.js";
import { Output, type OutputStream, ReaderGone } from "./conntrack/output.js";
import type { TraceOptions } from "../options.js";

/** Version of a JSON line. Fields may be added to it, but not changed or removed. */
const LINE = { apiVersion: "nft-proxier.dev/v1", kind: "TracedPacket" } as const;

/** Maximum number of packets kept for a slow reader, some 20 s of the trace. A pager that is not scrolled stops reading. */
export const MOST_WAITING = 1000;

export interface TracePrinterOptions extends Pick<TraceOptions, "count" | "dropped" | "output"> {
  readonly names: { of(packet: TracedPacket): Promise<PacketNames> };
  readonly stream: OutputStream;
  /** Called when printing ends, because enough packets are printed or the reader is gone. */
  onFull(): void;
  /** Called when the first packets are skipped, because `MOST_WAITING` packets are pending. */
  onBehind(): void;
}

/** The verdict, unless the other side refused the connection or did not answer. */
function outcomeOf({ verdict, reply }: TracedPacket): string {
  return reply === "refused" ? "refused" : reply === "no" ? "unanswered" : verdict;
}

export class TracePrinter {
  readonly #options: TracePrinterOptions;
  readonly #output: Output;
  readonly #outcomes = new Map<string, number>();
  #printed = 0;
  #waiting = 0;
  #skipped = 0;
  #behind = false;
  #printing: Promise<void> = Promise.resolve();

  constructor(options: TracePrinterOptions) {
    this.#options = options;
    this.#output = new Output(options.stream);
  }

  packet(packet: TracedPacket): void {
    const { count, dropped = false } = this.#options;
    if (count !== undefined && this.#printed >= count) return;
    const outcome = outcomeOf(packet);
    this.#outcomes.set(outcome, (this.#outcomes.get(outcome) ?? 0) + 1);
    if (dropped && !isDropped(packet)) return;
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
    this.#printing.catch(() => this.#options.onFull());
    if (this.#printed === count) this.#options.onFull();
  }

  /** Resolves to the number of printed packets when all waiting ones are written. */
  async finish(): Promise<number> {
    try {
      await this.#printing;
    } catch (error) {
      if (!(error instanceof ReaderGone)) throw error;
    } finally {
      this.#output.close();
    }
    return this.#printed;
  }

  /** Returns the result of the trace: "3 packets traced: 2 accepted, 1 refused; 7 matched". */
  summary({ matched, losses }: TraceTotals): string {
    const sum = [...this.#outcomes.values()].reduce((all, each) => all + each, 0);
    const kinds = [...this.#outcomes].map(([outcome, count]) => `${count} ${outcome}`).join(", ");
    const more = matched > sum ? `; ${matched} matched` : "";
    const lost = losses === 0 ? "" : `; the kernel dropped messages ${losses === 1 ? "once" : `${losses} times`}`;
    const skipped = this.#skipped === 0 ? "" : `; ${this.#skipped} not printed because the reader was too slow`;
    return `${counted(sum, "packet")} traced${kinds === "" ? "" : `: ${kinds}`}${more}${lost}${skipped}`;
  }

  #skip(): void {
    this.#skipped++;
    if (this.#behind) return;
    this.#behind = true;
    this.#options.onBehind();
  }

  async #print(packet: TracedPacket): Promise<void> {
    const names = await this.#options.names.of(packet);
    const { service, endpoint } = names;
    const { at, ...rest } = packet;
    const line =
      this.#options.output === "text"
        ? packetText(packet, names)
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
