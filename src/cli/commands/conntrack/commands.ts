/** The conntrack commands. Each returns an exit code: 0 done, 1 failed, with the reason on stderr. */
import { counted } from "../../../base/counted.js";
import { percentText } from "../../../base/percent.js";
import { FAMILY_NAMES, IP_FAMILIES } from "../../../base/ip-families.js";
import { handleEnd } from "../../../base/signals.js";
import {
  DIRECTIONS,
  GarbageCollector,
  type GcFamilyReport,
  type GcReport,
} from "../../../conntrack/gc/garbage-collector.js";
import { compileFilter, matchesPatterns } from "../../../nft/conntrack/compile-filter.js";
import { NetlinkConntrack } from "../../../nft/conntrack/netlink-conntrack.js";
import { packEntry } from "../../../nft/conntrack/encode.js";
import type { ConntrackEntry, ConntrackFilter, ConntrackTable } from "../../../nft/conntrack/conntrack-table.js";
import { readNumber } from "../../../node/kernel-number.js";
import { IpProto } from "../../../nft/kernel/constants.js";
import { KernelError } from "../../../nft/kernel/errors.js";
import { NftKernel } from "../../../nft/kernel/nft-kernel.js";
import { createLogger } from "../../../base/logger.js";
import { holdYoungGeneration } from "../../../base/runtime.js";
import { TABLE_NAME } from "../../../ruleset/names.js";
import { UsageError } from "../../../base/user-error.js";
import type {
  Connection,
  CountOptions,
  DeleteOptions,
  FilteredOptions,
  GcOptions,
  GetOptions,
} from "./command-line.js";
import { filterOf } from "./filter-of.js";
import { UserError, writeError } from "../../stdio.js";
import { interfaceAddresses } from "../../setup.js";
import { EntryCounts } from "./counted-by.js";
import type { Extra, Format } from "./entry-columns.js";
import { terminalWidth } from "../../text/terminal.js";
import { type EntryNames, ServiceSnapshot, type WantedService } from "./service-snapshot.js";
import { isWatched, Output, Progress, ReaderGone } from "./output.js";
import { EntryWriter } from "./entry-writer.js";

/** `service`: "[namespace/]name[:port]". */
type SessionOptions = Omit<GetOptions, "zone"> & Pick<FilteredOptions, "service">;

/** The resources of one command. */
interface Session {
  readonly table: ConntrackTable;
  readonly output: Output;
  readonly services: ServiceSnapshot | undefined;
  /** The service whose connections are wanted. Undefined: those of all services and of none. */
  readonly wanted: WantedService | undefined;
  readonly writer: EntryWriter;
}

/** The kernel's settings of this network namespace. */
const SETTINGS = "proc/sys/net/netfilter";
const setting = (name: string): Promise<number | undefined> => readNumber({ root: "/" }, `${SETTINGS}/${name}`);

/** Opens a command's resources and runs it. */
async function inSession(
  options: SessionOptions,
  run: (session: Session) => Promise<number>,
  needsServices = options.service !== undefined,
): Promise<number> {
  holdYoungGeneration();
  const log = await createLogger(options.logLevel);
  const services = await ServiceSnapshot.load(options, await interfaceAddresses(), log, needsServices);
  const wanted = options.service === undefined ? undefined : services?.find(options.service);
  const output = new Output();
  const named = services !== undefined;
  const { output: format, noHeaders = false } = options;
  const writer = new EntryWriter(output, { format, named, headers: !noHeaders, width: terminalWidth() });
  let table: ConntrackTable | undefined;
  try {
    table = await NetlinkConntrack.open();
    const code = await run({ table, output, services, wanted, writer });
    await writer.flush();
    return code;
  } catch (error) {
    // `list | head` is not a failure.
    if (error instanceof ReaderGone) return 0;
    // The waiting output is about finished work, so it is written despite the failure.
    await writer.flush().catch(() => undefined);
    throw error;
  } finally {
    await table?.close();
  }
}

function warn(text: string): void {
  writeError(text);
}

async function progressOf(table: ConntrackTable): Promise<Progress> {
  if (!isWatched()) return new Progress(undefined);
  return new Progress((text) => process.stderr.write(text), await table.count());
}

/** Finds matching entries, with a wanted service only its own. The kernel filters by service unless the user's filter prevents it. */
async function select(
  { table, services, wanted }: Session,
  filter: ConntrackFilter,
  onEntry: (entry: ConntrackEntry) => Promise<void> | void,
): Promise<{ interrupted: boolean }> {
  const progress = await progressOf(table);
  const filters = wanted === undefined || services === undefined ? [filter] : serviceFilters(services, wanted, filter);
  let seen = 0;
  let interrupted = false;
  try {
    for (const one of filters) {
      const atNodePort = one.original?.destination === undefined;
      const result = await table.dump(one, async (entries) => {
        seen += entries.length;
        progress.update(seen);
        for (const entry of entries) {
          const target = wanted === undefined ? undefined : services?.targetOf(entry);
          if (wanted?.has(target) === false) continue;
          // An external IP may be this node's own. Its own dump has already shown these entries.
          if (filters.length > 1 && atNodePort && target?.addresses.includes(entry.original.destination)) continue;
          progress.clear();
          await onEntry(entry);
        }
      });
      interrupted ||= result.interrupted;
    }
  } finally {
    progress.clear();
  }
  if (interrupted) warn("the kernel resized the table during the dump, so entries may be missing or shown twice");
  return { interrupted };
}

/** Returns one filter per address and node port of the service, or only the user's filter if it contains a destination. */
function serviceFilters(
  services: ServiceSnapshot,
  { service }: WantedService,
  filter: ConntrackFilter,
): ConntrackFilter[] {
  if (filter.original?.destination !== undefined || filter.original?.destinationPort !== undefined) return [filter];
  const filters = new Map<string, ConntrackFilter>();
  for (const family of IP_FAMILIES) {
    if (filter.family !== undefined && filter.family !== family) continue;
    for (const { addresses, nodePort } of services.model.targets(family, service)) {
      for (const destination of addresses) {
        filters.set(destination, { ...filter, family, original: { ...filter.original, destination } });
      }
      if (nodePort === 0) continue;
      filters.set(`${family} ${nodePort}`, {
        ...filter,
        family,
        original: { ...filter.original, destinationPort: nodePort },
      });
    }
  }
  return [...filters.values()];
}

/** `conntrack list`. */
export function listCommand(options: FilteredOptions): Promise<number> {
  const filter = filterOf(options);
  return inSession(options, async (session) => {
    await head(session, options);
    await select(session, filter, (entry) => put(session, entry));
    return 0;
  });
}

/** Settings without which columns are empty. */
const COUNTING = [
  ["nf_conntrack_acct", "PACKETS and BYTES are not counted", "count them"],
  ["nf_conntrack_timestamp", "SINCE is not recorded", "record it"],
] as const;

/** Writes the titles, and reports why some columns will be empty. */
async function head({ writer }: Session, options: SessionOptions, first?: readonly string[]): Promise<void> {
  for (const [name, what, then] of options.output === "wide" ? COUNTING : []) {
    if ((await setting(name)) === 0)
      warn(`${what}; run \`sysctl -w net.netfilter.${name}=1\` to ${then} for new connections`);
  }
  writer.head(first);
}

function put({ writer, services }: Session, entry: ConntrackEntry, extra?: Extra): Promise<void> {
  return writer.entry(entry, namesOf(services, entry), extra);
}

function namesOf(services: ServiceSnapshot | undefined, entry: ConntrackEntry): EntryNames {
  return services?.namesOf(entry) ?? {};
}

/** `conntrack get`: returns 1 if the entry does not exist. */
export function getCommand({ family, tuple }: Connection, options: GetOptions): Promise<number> {
  return inSession(options, async (session) => {
    const entry = await session.table.lookup(family, tuple, options.zone);
    if (entry === undefined) {
      warn("the entry does not exist");
      return 1;
    }
    await head(session, options);
    await put(session, entry);
    return 0;
  });
}

/** `conntrack count`. */
export function countCommand(options: CountOptions): Promise<number> {
  const filter = filterOf(options);
  const needsServices = options.service !== undefined || options.by === "service";
  const run = async (session: Session): Promise<number> => {
    const { table, output, services } = session;
    if (options.by !== undefined) {
      const counts = new EntryCounts(options.by);
      await select(session, filter, (entry) => counts.add(entry, namesOf(services, entry)));
      for (const line of counts.lines(options.output, options.noHeaders !== true)) await output.line(line);
      return 0;
    }
    if (Object.keys(filter).length > 0 || options.service !== undefined) {
      let entries = 0;
      await select(session, filter, () => void entries++);
      await output.line(options.output === "json" ? JSON.stringify({ entries }) : String(entries));
      return 0;
    }
    const [entries, max] = await Promise.all([table.count(), table.max()]);
    const pressure = max === 0 ? 0 : entries / max;
    const lines: Record<Format, string> = {
      text: String(entries),
      wide: `${entries} of ${max} (${percentText(entries, max)} full)`,
      json: JSON.stringify({ entries, max, pressure }),
    };
    await output.line(lines[options.output]);
    return 0;
  };
  return inSession(options, run, needsServices);
}

/** `conntrack gc`: prints each deleted entry and each remaining orphan on stdout, and the sums on stderr. */
export function gcCommand(options: GcOptions): Promise<number> {
  const filter = filterOf(options);
  const run = async (session: Session): Promise<number> => {
    const { table, services, writer } = session;
    if (services === undefined) throw new UserError("gc needs the services to know which entries are garbage");
    services.requireWhole();
    const { dryRun = false, orphans = false } = options;
    const asked = filter.protocol === IpProto.tcp ? "all" : "closing";
    if (orphans && asked === "all") services.requireAllEndpoints();
    await findFormer(services);
    let shown = false;
    const collector = new GarbageCollector({
      table,
      model: services.model,
      former: services.former,
      families: IP_FAMILIES,
      nodePortAddresses: (family) => Promise.resolve(services.nodePortAddresses(family)),
    });
    const report = await collector.run({
      ...(Object.keys(filter).length > 0 && { filter }),
      dryRun,
      orphans: orphans ? asked : "none",
      // Each entry is shown as soon as the kernel has answered, so deleted entries are shown even if a later step fails.
      onEntry: async (entry, why, outcome) => {
        if (!shown) await head(session, options, ["OUTCOME", "REASON"]);
        shown = true;
        await put(session, entry, { cells: [outcome, why], fields: { outcome, reason: why } });
      },
    });
    await writer.flush();
    for (const family of report.families) warn(familySummary(family, dryRun));
    warnInterrupted(report);
    return 0;
  };
  return inSession(options, run, true);
}

/** Former services may still be in the kernel's tables. */
async function findFormer(services: ServiceSnapshot): Promise<void> {
  try {
    const kernel = await NftKernel.open();
    try {
      await services.findFormer(kernel);
    } finally {
      await kernel.close();
    }
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    warn(`the tables ${TABLE_NAME} cannot be read, so entries of removed services are not found: ${error.message}`);
  }
}

function familySummary({ family, directions }: GcFamilyReport, dryRun: boolean): string {
  const sum = (what: "alive" | "deleted" | "orphaned"): number =>
    DIRECTIONS.reduce((total, direction) => total + directions[direction][what], 0);
  const [alive, deleted, orphaned] = [sum("alive"), sum("deleted"), sum("orphaned")];
  const left =
    orphaned === 0
      ? ""
      : `, ${orphaned} with an endpoint that no service has (--orphans deletes half-open, closing and closed ones; --orphans -p tcp deletes all)`;
  return `${FAMILY_NAMES[family]}: ${counted(deleted, "entry", "entries")} ${dryRun ? "would be deleted" : "deleted"}, ${alive} kept${left}`;
}

function warnInterrupted({ families }: GcReport): void {
  if (families.some(({ interrupted }) => interrupted)) {
    warn("the kernel resized the table during the dump, so entries may have been missed; run the command again");
  }
}

/** Number of entries to delete in one call. */
const DELETIONS = 1024;

/** `conntrack delete`: prints each matching entry, of any service or none, when the kernel has deleted it, and the sum on stderr. */
export function deleteCommand(options: DeleteOptions): Promise<number> {
  const filter = filterOf(options);
  const isAll = options.all === true;
  const hasFilter = Object.keys(filter).length > 0 || options.service !== undefined;
  if (!isAll && !hasFilter) throw new UsageError("delete needs a filter (see --help), or --all for all entries");
  if (isAll && hasFilter) throw new UsageError("delete takes a filter or --all, not both");
  return inSession(options, async (session) => {
    const { table, writer } = session;
    const { dryRun = false } = options;
    let batch: ConntrackEntry[] = [];
    const counts = { deleted: 0, absent: 0 };
    const remove = async (): Promise<void> => {
      const entries = batch;
      batch = [];
      const absent = new Set(dryRun ? [] : (await table.deleteAll(entries)).absentAt);
      if (counts.deleted + counts.absent === 0 && entries.length > 0) await head(session, options, ["OUTCOME"]);
      counts.absent += absent.size;
      counts.deleted += entries.length - absent.size;
      for (const [at, entry] of entries.entries()) {
        const outcome = absent.has(at) ? "absent" : dryRun ? "would-go" : "deleted";
        await put(session, entry, { cells: [outcome], fields: { outcome } });
      }
    };
    await select(session, filter, async (entry) => {
      batch.push(entry);
      if (batch.length >= DELETIONS) await remove();
    });
    await remove();
    await writer.flush();
    const gone = counts.absent === 0 ? "" : `; ${counts.absent} had already ended`;
    warn(`${counted(counts.deleted, "entry", "entries")} ${dryRun ? "would be deleted" : "deleted"}${gone}`);
    return 0;
  });
}

/** `conntrack watch`: prints new and ended connections, until a signal comes or the reader exits. */
export function watchCommand(options: FilteredOptions): Promise<number> {
  const filter = filterOf(options);
  return inSession(options, async (session) => {
    const { table, writer, services, wanted } = session;
    const patterns = compileFilter(filter, "watch");
    if ((await setting("nf_conntrack_events")) === 0) {
      warn("the kernel reports no connections; run `sysctl -w net.netfilter.nf_conntrack_events=1`");
    }
    await head(session, options, [" "]);
    await writer.flush();
    const ended = Promise.withResolvers<number>();
    const show = (event: "new" | "destroy", entry: ConntrackEntry): void => {
      if (!matchesPatterns(patterns, packEntry("watch", entry))) return;
      if (wanted?.has(services?.targetOf(entry)) === false) return;
      // Each line is written at once, because a person watches, or a program reads line by line.
      put(session, entry, { cells: [event === "new" ? "+" : "-"], fields: { event } })
        .then(() => writer.flush())
        .catch(ended.reject);
    };
    const stop = (): void => ended.resolve(0);
    const release = handleEnd(stop);
    const stream = await table.events({
      onNew: (entry) => show("new", entry),
      onDestroy: (entry) => show("destroy", entry),
      onLost: () => warn("the kernel dropped events, so some connections are not shown"),
      onError: ended.reject,
    });
    try {
      return await ended.promise;
    } finally {
      release();
      await stream.close();
    }
  });
}
