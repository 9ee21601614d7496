import { UsageError } from "../../base/user-error.js";
import { handleEnd } from "../../base/signals.js";
import { NetlinkConntrack } from "../../nft/conntrack/netlink-conntrack.js";
import { NftKernel } from "../../nft/kernel/nft-kernel.js";
import { PACKETS_PER_SECOND, type TraceFilter } from "../../tools/trace/trace-filter.js";
import { broadness, filterOf, requestOf } from "../../tools/trace/trace-request.js";
import { PacketTrace } from "../../tools/trace/packet-trace.js";
import type { TraceOptions } from "./question-commands.js";
import { writeError } from "../stdio.js";
import { terminalWidth } from "../text/terminal.js";
import { TraceNames } from "./trace-names.js";
import { MOST_WAITING, TracePrinter } from "./trace-printer.js";

/**
 * `trace [tcp|udp|sctp] [SOURCE] DESTINATION:PORT|SERVICE`: shows live connections and their outcome. Exit code 0 if lines were
 * printed, otherwise 1. Rejects with UsageError for words that are invalid or select too much.
 */
export async function traceCommand(words: readonly string[], options: TraceOptions): Promise<number> {
  const request = requestOf(words);
  const broad = broadness(request);
  if (broad !== undefined && options.force !== true) {
    const share = `of which at most ${PACKETS_PER_SECOND} a second are traced`;
    throw new UsageError(`${broad} may be many packets, ${share}. Name a port, or use --force.`);
  }
  const names = await TraceNames.load(options.socket, request, options.namespace);
  if (!names.known)
    note("no daemon answers, or it has not written its rules yet, so services and endpoints have no names");
  const filter = filterOf(request, names.requested, options.allPackets === true);
  const kernel = await NftKernel.open();
  try {
    return await traced(kernel, filter, names, options);
  } finally {
    await kernel.close();
  }
}

async function traced(
  kernel: NftKernel,
  filter: TraceFilter,
  names: TraceNames,
  options: TraceOptions,
): Promise<number> {
  const { for: forMs, allPackets = false } = options;
  const conntrack = await NetlinkConntrack.open();
  // By a signal, after the given time, by a failure, or because enough packets were printed.
  const ended = Promise.withResolvers<Error | undefined>();
  const end = (error?: Error): void => ended.resolve(error);
  const timer = forMs === 0 ? undefined : setTimeout(end, Math.min(forMs, MOST_MS));
  const release = handleEnd(() => end());
  const printer = new TracePrinter({
    ...{ ...options, names, width: terminalWidth() },
    onFull: end,
    onBehind: () =>
      note(
        `${MOST_WAITING} packets wait for the reader; until it continues, further packets are counted but not printed`,
      ),
  });
  try {
    const trace = await PacketTrace.start(kernel, conntrack, filter, {
      onPacket: (packet) => printer.packet(packet),
      onLost: () =>
        note("the kernel dropped messages, so packets of this moment are missing or their outcome is unknown"),
      onHint: (text) => note(`hint: ${text}`),
      onError: end,
    });
    note(
      `tracing ${allPackets ? "packets" : "connections"}, at most ${PACKETS_PER_SECOND} a second${allPackets ? " in each direction" : ""}, ${endText(forMs)}`,
    );
    const error = await ended.promise;
    const totals = await trace.stop();
    const printed = await printer.finish();
    if (error !== undefined) throw error;
    note(`${printer.summary(totals)}; the trace table is removed`);
    return printed > 0 ? 0 : 1;
  } finally {
    clearTimeout(timer);
    release();
    await conntrack.close();
  }
}

/** Writes to stderr, because the packets on stdout may go into a file. */
function note(text: string): void {
  writeError(text);
}

function endText(forMs: number): string {
  return forMs === 0 ? "until Ctrl-C" : `for ${forMs / 1000}s or until Ctrl-C`;
}

/** Maximum time of Node's timers, ms: 24 days. */
const MOST_MS = 2 ** 31 - 1;
