import { handleEnd } from "../base/signals.js";
import { NetlinkConntrack } from "../conntrack/table/netlink-conntrack.js";
import { KernelError } from "../kernel/errors.js";
import type { NftKernel } from "../kernel/nft-kernel.js";
import { PACKETS_PER_SECOND, type TraceFilter } from "../trace/filter.js";
import { broadness, filterOf, RequestError, requestOf } from "../trace/request.js";
import { packetText, serviceText } from "../trace/text.js";
import { NoOwnedTables, PacketTrace } from "../trace/trace.js";
import { isDropped, type TracedPacket, type TraceTotals } from "../trace/types.js";
import { Output, ReaderGone } from "./conntrack/output.js";
import type { TraceOptions } from "./options.js";
import { openKernel } from "./open-kernel.js";
import { UserError } from "./stdio.js";
import { TraceNames } from "./trace-names.js";

export { RequestError };

/** Version of a line of JSON: fields may be added to it, none changes or goes. */
const LINE = { apiVersion: "nft-proxier.dev/v1", kind: "TracedPacket" } as const;

/**
 * `trace [tcp|udp|sctp] [SOURCE] DESTINATION:PORT|NS/NAME[:PORT]`: live packets, and what becomes of them. Exit code 0: some were
 * printed; 1: none. Rejects with a RequestError for words that mean nothing, or too much.
 */
export async function traceCommand(words: readonly string[], options: TraceOptions): Promise<number> {
  const request = requestOf(words);
  const broad = broadness(request);
  if (broad !== undefined && options.force !== true) {
    const share = `of which ${PACKETS_PER_SECOND} packets a second would be traced`;
    throw new RequestError(`${broad} may be all of this node's traffic, ${share}: --force does it`);
  }
  const names = await TraceNames.load(options.socket, request);
  if (!names.known) note("no daemon answers: services and endpoints are told by their addresses alone");
  const filter = filterOf(request, names.requested, options.allPackets === true);
  const kernel = await openKernel();
  try {
    return await traced(kernel, filter, new Printer(names, options), options);
  } catch (error) {
    if (!(error instanceof KernelError) && !(error instanceof NoOwnedTables)) throw error;
    throw new UserError(error.message, { cause: error });
  } finally {
    await kernel.close();
  }
}

async function traced(
  kernel: NftKernel,
  filter: TraceFilter,
  printer: Printer,
  { for: forMs, allPackets = false }: TraceOptions,
): Promise<number> {
  const conntrack = await NetlinkConntrack.open();
  const end = new End(forMs);
  try {
    printer.onFull = () => end.come();
    const trace = await PacketTrace.start(kernel, conntrack, filter, {
      onPacket: (packet) => printer.packet(packet),
      onLost: () => note("the kernel dropped messages: packets of this moment are missing, or their end is unknown"),
      onError: (error) => end.come(error),
    });
    const which = allPackets ? "packets" : "first packets of connections";
    note(`tracing ${which}, ${PACKETS_PER_SECOND} a second at most; ${endText(forMs)}`);
    await end.promise;
    const totals = await trace.stop();
    const printed = await printer.finish();
    if (end.error !== undefined) throw end.error;
    note(summary(printer, totals));
    return printed > 0 ? 0 : 1;
  } finally {
    end.clear();
    await conntrack.close();
  }
}

/** Beside the packets, which may go into a file. */
function note(text: string): void {
  process.stderr.write(`nft-proxier: ${text}\n`);
}

function endText(forMs: number): string {
  return forMs === 0 ? "Ctrl-C ends it" : `for ${forMs / 1000} s, Ctrl-C ends it earlier`;
}

/** A timer of Node's takes no longer, ms: 24 days. */
const MOST_MS = 2 ** 31 - 1;

/** By a signal, by time, by a failure, or because enough was printed. */
class End {
  readonly promise: Promise<void>;
  error: Error | undefined;
  #resolve: () => void = () => undefined;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #signals: () => void;

  constructor(forMs: number) {
    this.promise = new Promise((resolve) => (this.#resolve = resolve));
    this.#timer = forMs === 0 ? undefined : setTimeout(() => this.come(), Math.min(forMs, MOST_MS));
    this.#signals = handleEnd(() => this.come());
  }

  come(error?: Error): void {
    this.error ??= error;
    this.#resolve();
  }

  clear(): void {
    clearTimeout(this.#timer);
    this.#signals();
  }
}

class Printer {
  readonly #names: TraceNames;
  readonly #options: TraceOptions;
  readonly #output = new Output(process.stdout);
  readonly #verdicts = new Map<string, number>();
  #printed = 0;
  #printing: Promise<void> = Promise.resolve();
  /** Called when no more is to be printed. */
  onFull: () => void = () => undefined;

  constructor(names: TraceNames, options: TraceOptions) {
    this.#names = names;
    this.#options = options;
  }

  /** By verdict, printed or not. */
  get verdicts(): ReadonlyMap<string, number> {
    return this.#verdicts;
  }

  packet(packet: TracedPacket): void {
    const { count, dropped = false } = this.#options;
    const full = count !== undefined && this.#printed >= count;
    if (full) return;
    this.#verdicts.set(packet.verdict, (this.#verdicts.get(packet.verdict) ?? 0) + 1);
    if (dropped && !isDropped(packet)) return;
    this.#printed++;
    // In their order, although names may take a while.
    const before = this.#printing;
    this.#printing = (async () => {
      await before;
      await this.#print(packet);
    })();
    this.#printing.catch(() => this.onFull());
    if (this.#printed === count) this.onFull();
  }

  /** Resolves, when all is written, with how many were. */
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

  async #print(packet: TracedPacket): Promise<void> {
    const names = await this.#names.of(packet);
    const { service, endpoint } = names;
    const { at, ...rest } = packet;
    const line =
      this.#options.output === "text"
        ? packetText(packet, names)
        : JSON.stringify({
            ...LINE,
            time: new Date(at).toISOString(),
            ...(service && { service: serviceText(service) }),
            ...(endpoint && { endpoint }),
            ...rest,
          });
    await this.#output.line(line);
    await this.#output.flush();
  }
}

function summary({ verdicts }: Printer, { matched, losses }: TraceTotals): string {
  const sum = [...verdicts.values()].reduce((all, each) => all + each, 0);
  const kinds = [...verdicts].map(([verdict, count]) => `${count} ${verdict}`).join(", ");
  const more = matched > sum ? `; ${matched} matched` : "";
  const lost = losses === 0 ? "" : `; messages were lost ${losses} times`;
  return `${sum} packets traced${kinds === "" ? "" : `: ${kinds}`}${more}${lost}; the trace table is removed`;
}
