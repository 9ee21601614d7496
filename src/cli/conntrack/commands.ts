/** What the conntrack commands do. Each returns an exit code: 0 done, 1 not (said on stderr). */
import { handleEnd } from "../../base/signals.js";
import { BEYOND_KUBE_PROXY } from "../../conntrack/decide.js";
import { DIRECTIONS, GarbageCollector, type GcFamilyReport, type GcReport } from "../../conntrack/gc.js";
import { compileFilter, matchesPatterns } from "../../conntrack/filter.js";
import { NetlinkConntrack } from "../../conntrack/netlink-conntrack.js";
import { packEntry } from "../../conntrack/record.js";
import type { ConntrackEntry, ConntrackFilter, ConntrackTable, ConntrackTuple } from "../../conntrack/types.js";
import { readNumber } from "../../host/kernel-number.js";
import { IpProto } from "../../kernel/constants.js";
import { KernelError } from "../../kernel/errors.js";
import { NftKernel } from "../../kernel/nft-kernel.js";
import type { IpFamily } from "../../model/types.js";
import { createLogger, type LogLevel } from "../../observe/log.js";
import { TABLE_NAME } from "../../ruleset/names.js";
import { UserError } from "../errors.js";
import { interfaceAddresses } from "../setup.js";
import { EntryFormat, type EntryNames, type Format } from "./format.js";
import { isWatched, Output, Progress, ReaderGone } from "./output.js";
import { FAMILIES, World, type WorldOptions } from "./world.js";

export interface CommonConntrackOptions extends WorldOptions {
  readonly output: Format;
  readonly headers: boolean;
  readonly logLevel: LogLevel;
  /** "namespace/name". */
  readonly service?: string;
}

/** What a command works with. */
interface Session {
  readonly table: ConntrackTable;
  readonly output: Output;
  readonly world: World | undefined;
  readonly format: EntryFormat;
}

/** The kernel's setting of this network namespace. */
const EVENTS = "proc/sys/net/netfilter/nf_conntrack_events";

/** Opens what a command needs, runs it, and says what went wrong in words for people. */
async function inSession(options: CommonConntrackOptions, run: (session: Session) => Promise<number>): Promise<number> {
  const log = await createLogger(options.logLevel);
  const world = await World.load(options, await interfaceAddresses(), log);
  if (options.service !== undefined) world?.requireService(options.service);
  const output = new Output(process.stdout);
  let table: ConntrackTable | undefined;
  try {
    table = await NetlinkConntrack.open();
    const code = await run({ table, output, world, format: new EntryFormat(options.output, world !== undefined) });
    await output.flush();
    return code;
  } catch (error) {
    // `list | head` is a use, not a failure.
    if (error instanceof ReaderGone) return 0;
    // What is shown by now has been done, whatever failed after it.
    await output.flush().catch(() => undefined);
    if (!(error instanceof KernelError)) throw error;
    throw new UserError(error.message, { cause: error });
  } finally {
    output.close();
    await table?.close();
  }
}

function warn(text: string): void {
  process.stderr.write(`nft-proxier: ${text}\n`);
}

async function progressOf(table: ConntrackTable): Promise<Progress> {
  if (!isWatched()) return new Progress(undefined);
  return new Progress((text) => process.stderr.write(text), await table.count());
}

/** Entries that match; with a service those to it alone, found by the kernel's filter where one of the user's is not in the way. */
async function select(
  { table, world }: Session,
  filter: ConntrackFilter,
  service: string | undefined,
  onEntry: (entry: ConntrackEntry) => Promise<void> | void,
): Promise<{ interrupted: boolean }> {
  const progress = await progressOf(table);
  const filters = service === undefined || world === undefined ? [filter] : serviceFilters(world, service, filter);
  let seen = 0;
  let interrupted = false;
  try {
    for (const one of filters) {
      const atNodePort = one.original?.destination === undefined;
      const result = await table.dump(one, async (entries) => {
        seen += entries.length;
        progress.update(seen);
        for (const entry of entries) {
          const target = service === undefined ? undefined : world?.targetOf(entry);
          if (target?.service !== service) continue;
          // An external IP may be this node's own: what its own dump has shown is not shown again.
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
  if (interrupted) warn("the table was changed in size meanwhile: entries may be missing, or shown twice");
  return { interrupted };
}

/** One dump for each address and node port of the service; only the user's filter where that speaks of destinations itself. */
function serviceFilters(world: World, service: string, filter: ConntrackFilter): ConntrackFilter[] {
  if (filter.original?.destination !== undefined || filter.original?.destinationPort !== undefined) return [filter];
  const filters = new Map<string, ConntrackFilter>();
  for (const family of FAMILIES) {
    if (filter.family !== undefined && filter.family !== family) continue;
    for (const { addresses, nodePort } of world.model.targets(family, service)) {
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
export function listCommand(filter: ConntrackFilter, options: CommonConntrackOptions): Promise<number> {
  return inSession(options, async (session) => {
    await head(session, options);
    await select(session, filter, options.service, (entry) => put(session, entry));
    return 0;
  });
}

async function head({ output, format }: Session, { headers }: CommonConntrackOptions, first?: string): Promise<void> {
  const line = headers ? format.header(first) : undefined;
  if (line !== undefined) await output.line(line);
}

function put({ output, format, world }: Session, entry: ConntrackEntry): Promise<void> {
  return output.line(format.entry(entry, namesOf(world, entry)));
}

function namesOf(world: World | undefined, entry: ConntrackEntry): EntryNames {
  return world?.namesOf(entry) ?? {};
}

/** `conntrack get`: 1 when there is no such entry. */
export function getCommand(
  family: IpFamily,
  tuple: ConntrackTuple,
  zone: number,
  options: CommonConntrackOptions,
): Promise<number> {
  return inSession(options, async (session) => {
    const entry = await session.table.lookup(family, tuple, zone);
    if (entry === undefined) {
      warn("there is no such entry");
      return 1;
    }
    await head(session, options);
    await put(session, entry);
    return 0;
  });
}

/** `conntrack count`. */
export function countCommand(filter: ConntrackFilter, options: CommonConntrackOptions): Promise<number> {
  return inSession(options, async (session) => {
    const { table, output } = session;
    if (Object.keys(filter).length > 0 || options.service !== undefined) {
      let entries = 0;
      await select(session, filter, options.service, () => void entries++);
      await output.line(options.output === "json" ? JSON.stringify({ entries }) : String(entries));
      return 0;
    }
    const [entries, max] = await Promise.all([table.count(), table.max()]);
    const pressure = max === 0 ? 0 : entries / max;
    const lines: Record<Format, string> = {
      text: String(entries),
      wide: `${entries} of ${max} (${(pressure * 100).toFixed(1)} % full)`,
      json: JSON.stringify({ entries, max, pressure }),
    };
    await output.line(lines[options.output]);
    return 0;
  });
}

export interface GcCommandOptions extends CommonConntrackOptions {
  readonly dryRun: boolean;
  readonly orphans: boolean;
}

/** `conntrack gc`: each entry that goes, and each orphan that stays, on stdout; the sums on stderr. */
export function gcCommand(filter: ConntrackFilter, options: GcCommandOptions): Promise<number> {
  return inSession(options, async (session) => {
    const { table, world, output, format } = session;
    if (world === undefined) {
      throw new UserError("gc needs the services: they tell what is garbage");
    }
    world.requireWhole();
    await findFormer(world);
    const { dryRun, orphans } = options;
    const asked = filter.protocol === IpProto.tcp ? "all" : "closing";
    let shown = false;
    const collector = new GarbageCollector({
      table,
      model: world.model,
      former: world.former,
      families: FAMILIES,
      nodePortAddresses: (family) => Promise.resolve(world.nodePortAddresses(family)),
      switches: BEYOND_KUBE_PROXY,
    });
    const report = await collector.run({
      ...(Object.keys(filter).length > 0 && { filter }),
      dryRun,
      orphans: orphans ? asked : "none",
      // Each as soon as the kernel has answered: what has been deleted is shown, whatever comes after.
      onEntry: async (entry, why, outcome) => {
        if (!shown) await head(session, options, `${"OUTCOME".padEnd(8)}  ${"REASON".padEnd(17)}`);
        shown = true;
        const more = { text: `${outcome.padEnd(8)}  ${why.padEnd(17)}`, fields: { outcome, reason: why } };
        await output.line(format.entry(entry, namesOf(world, entry), more));
      },
    });
    await output.flush();
    for (const family of report.families) warn(familySummary(family, dryRun));
    warnInterrupted(report);
    return 0;
  });
}

/** Services that are gone may still be in the kernel's tables. */
async function findFormer(world: World): Promise<void> {
  try {
    const kernel = await NftKernel.open();
    await world.findFormer(kernel).finally(() => kernel.close());
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    warn(`the tables ${TABLE_NAME} cannot be read, entries of services that are gone are not found: ${error.message}`);
  }
}

function familySummary({ family, directions }: GcFamilyReport, dryRun: boolean): string {
  const sum = (what: "alive" | "deleted" | "orphaned"): number =>
    DIRECTIONS.reduce((total, direction) => total + directions[direction][what], 0);
  const [alive, deleted, orphaned] = [sum("alive"), sum("deleted"), sum("orphaned")];
  const left =
    orphaned === 0
      ? ""
      : `; ${orphaned} of them orphans (--orphans deletes those of TCP that are not established, with -p tcp all)`;
  return `${family === "ip" ? "IPv4" : "IPv6"}: ${deleted} ${dryRun ? "would be deleted" : "deleted"}, ${alive} stay${left}`;
}

function warnInterrupted({ families }: GcReport): void {
  if (families.some(({ interrupted }) => interrupted)) {
    warn("the table was changed in size meanwhile: run it again, entries may have been missed");
  }
}

/** `conntrack watch`: new and ended connections, until a signal or until the reader goes. */
export function watchCommand(filter: ConntrackFilter, options: CommonConntrackOptions): Promise<number> {
  return inSession(options, async (session) => {
    const { table, output, format, world } = session;
    const patterns = compileFilter(filter, "watch");
    if ((await readNumber({ root: "/" }, EVENTS)) === 0) {
      warn("net.netfilter.nf_conntrack_events is 0: the kernel tells of no connection; set it to 1");
    }
    await head(session, options, " ");
    await output.flush();
    const ended = Promise.withResolvers<number>();
    const show = (event: "new" | "destroy", entry: ConntrackEntry): void => {
      if (!matchesPatterns(patterns, packEntry("watch", entry))) return;
      if (options.service !== undefined && world?.targetOf(entry)?.service !== options.service) return;
      const more = { text: event === "new" ? "+" : "-", fields: { event } };
      // Each at once: somebody looks on, or reads line by line.
      output
        .line(format.entry(entry, namesOf(world, entry), more))
        .then(() => output.flush())
        .catch(ended.reject);
    };
    const stop = (): void => ended.resolve(0);
    const release = handleEnd(stop);
    const stream = await table.events({
      onNew: (entry) => show("new", entry),
      onDestroy: (entry) => show("destroy", entry),
      onLost: () => warn("events were lost: more connections came or went than are shown"),
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
