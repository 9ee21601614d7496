/**
 * Garbage collection of the connection tracking table. The feature is that of Cilium's ctmap, but the kernel already
 * removes expired entries, so garbage here means entries whose service no longer exists.
 * A run counts the entries, deletes the same ones as the reconciler (stale-entries.ts), and finds orphans. It purges the
 * orphans that its caller asked for (orphans.ts).
 */
import { serviceProtocol } from "../../base/protocols.js";
import type { IpFamily } from "../../base/ip.js";
import { decide, type DeleteReason } from "../reconcile/stale-entries.js";
import { plainEntry } from "../../nft/conntrack/decode.js";
import { compileFilter, familiesOf } from "../../nft/conntrack/compile-filter.js";
import type { FormerTargets } from "../reconcile/former-targets.js";
import { ServiceKnowledge, type TargetSource } from "../reconcile/service-knowledge.js";
import { isPurged, orphanOf, type OrphanPurge } from "./orphans.js";
import { PrefilterBuilder } from "../reconcile/prefilter.js";
import {
  CONNTRACK_STATUS,
  type ConntrackEntry,
  type ConntrackFilter,
  type ConntrackPrefilter,
  type ConntrackTable,
} from "../../nft/conntrack/conntrack-table.js";

/**
 * How far a connection has come, by netfilter's directions. `original`: only the first direction was ever seen (the
 * flow is one-way, or was not answered). `reply`: the other direction was seen too (IPS_SEEN_REPLY).
 */
type Direction = "original" | "reply";
export const DIRECTIONS: readonly Direction[] = ["original", "reply"];

interface GcCounts {
  /** Entries that stay, including the orphans that were left. */
  readonly alive: number;
  /**
   * Entries that the kernel confirmed as deleted; in a dry run, those that would be. Excludes entries that had already
   * expired.
   */
  readonly deleted: number;
  /** Orphans that were found and left. */
  readonly orphaned: number;
}

export type GcReason = DeleteReason | "orphan";

export interface GcFamilyReport {
  readonly family: IpFamily;
  readonly directions: Readonly<Record<Direction, GcCounts>>;
  /** Deleted entries by reason. */
  readonly reasons: Readonly<Partial<Record<GcReason, number>>>;
  /** The kernel's table changed during the dump, so the counts are approximate. */
  readonly interrupted: boolean;
}

export interface GcReport {
  readonly families: readonly GcFamilyReport[];
  /** Duration of the run, ms. */
  readonly ms: number;
  /** Deleted entries divided by all entries, 0 to 1. Undefined if there were no entries or a dump was interrupted. */
  readonly deleteRatio: number | undefined;
}

/** absent: the entry was already gone when the kernel was asked. would-go: dry run. left: an orphan that stays. */
type GcOutcome = "deleted" | "absent" | "would-go" | "left";

export interface GcRequest {
  /** Entries to examine. Default: all. */
  readonly filter?: ConntrackFilter;
  /** Orphans to purge; the others are only counted. Default "none". */
  readonly orphans?: OrphanPurge;
  /** Delete nothing, but count entries as if they were deleted. Default false. */
  readonly dryRun?: boolean;
  /**
   * Called for each entry that goes, after the kernel's answer, and for each orphan that is left. Awaited; an error
   * from it ends the run.
   */
  readonly onEntry?: (entry: ConntrackEntry, why: GcReason, outcome: GcOutcome) => void | Promise<void>;
  /**
   * Called for each entry that stays and is no orphan. With it, every entry of the table is passed to JavaScript;
   * without it, entries that are in order stay in the addon. A reference to an entry keeps its whole chunk in memory;
   * see ConntrackTable.dump.
   */
  readonly onAlive?: (entry: ConntrackEntry) => void;
}

export interface GcOptions {
  readonly table: Pick<ConntrackTable, "dump" | "deleteAll">;
  readonly model: TargetSource;
  readonly former: FormerTargets;
  readonly families: readonly IpFamily[];
  readonly nodePortAddresses: (family: IpFamily) => Promise<Iterable<string>>;
}

/** The first interval and its bounds, ms, as in Cilium's pkg/defaults. */
export const GC_START_MS = 5 * 60_000;
export const GC_MIN_MS = 10_000;
export const GC_MAX_MS = 30 * 60_000;

/**
 * Returns the interval to the next run, by the rule of Cilium's `ctmap.GetInterval`:
 *
 * - More than a quarter of all entries was deleted: the interval shrinks by that share, by nine tenths at most.
 * - Less than a twentieth was deleted: it grows by half.
 * - Otherwise, or if the ratio is unknown: it stays.
 *
 * The result is in whole seconds, from GC_MIN_MS (10 s) to GC_MAX_MS (30 min). An early run had less time to find
 * garbage, so its ratio is scaled up to a whole interval. Unlike in Cilium, a run that deletes nothing also lengthens
 * the interval, because that is the usual case here.
 *
 * @param previousMs the interval that was planned.
 * @param deleteRatio deleted entries divided by all entries, 0 to 1.
 * @param actualMs the time since the previous run, if that was less.
 */
export function gcInterval(previousMs: number, deleteRatio: number | undefined, actualMs = previousMs): number {
  if (deleteRatio === undefined) return previousMs;
  const early = actualMs > 0 && actualMs < previousMs;
  const ratio = early ? deleteRatio * (previousMs / actualMs) : deleteRatio;
  const seconds = (ms: number): number => Math.round(ms / 1000) * 1000;
  if (ratio > 0.25) return Math.max(seconds(previousMs * (1 - Math.min(ratio, 0.9))), GC_MIN_MS);
  if (ratio < 0.05) return Math.min(seconds(previousMs * 1.5), GC_MAX_MS);
  return previousMs;
}

/** Candidates to collect before checking their endpoints, since each check walks over all slices. */
const MOST_CANDIDATES = 10_000;

type MutableCounts = { -readonly [K in keyof GcCounts]: number };

interface Candidate {
  readonly entry: ConntrackEntry;
  /** "address port PROTOCOL". */
  readonly endpoint: string;
}

/** An entry to delete. */
interface Going {
  readonly entry: ConntrackEntry;
  readonly why: GcReason;
}

function directionOf({ status }: ConntrackEntry): Direction {
  return (status & CONNTRACK_STATUS.seenReply) === 0 ? "original" : "reply";
}

/**
 * Runs garbage collection over a table. Rejects with the table's error; entries deleted before the error stay deleted.
 */
export class GarbageCollector {
  constructor(private readonly options: GcOptions) {}

  async run(request: GcRequest = {}): Promise<GcReport> {
    const started = performance.now();
    const meant = familiesOf(compileFilter(request.filter ?? {}, "gc"));
    const families: GcFamilyReport[] = [];
    for (const family of this.options.families) {
      if (meant.has(family)) families.push(await new FamilyRun(this.options, family, request).run());
    }
    return { families, ms: performance.now() - started, deleteRatio: ratioOf(families) };
  }
}

function ratioOf(families: readonly GcFamilyReport[]): number | undefined {
  const counts = families.flatMap(({ directions }) => DIRECTIONS.map((direction) => directions[direction]));
  const deleted = counts.reduce((sum, count) => sum + count.deleted, 0);
  const all = counts.reduce((sum, count) => sum + count.alive, deleted);
  return all === 0 || families.some(({ interrupted }) => interrupted) ? undefined : deleted / all;
}

class FamilyRun {
  readonly #counts: Record<Direction, MutableCounts> = {
    original: { alive: 0, deleted: 0, orphaned: 0 },
    reply: { alive: 0, deleted: 0, orphaned: 0 },
  };
  readonly #reasons: Partial<Record<GcReason, number>> = {};
  readonly #candidates: Candidate[] = [];

  constructor(
    private readonly options: GcOptions,
    private readonly family: IpFamily,
    private readonly request: GcRequest,
  ) {}

  async run(): Promise<GcFamilyReport> {
    const { table, model, former, nodePortAddresses } = this.options;
    const family = this.family;
    const known = new ServiceKnowledge(model, former, family, await nodePortAddresses(family));
    const prefilter = this.request.onAlive === undefined ? await this.#prefilter(known) : undefined;
    const whole = this.request.filter === undefined;
    const claims = former.claims(family);
    const filter = { ...this.request.filter, family };
    let handedOver = 0;
    let answered = 0;
    const result = await table.dump(
      filter,
      async (entries) => {
        handedOver += entries.length;
        for (const entry of entries) if (directionOf(entry) === "reply") answered++;
        await this.#decideAll(entries, known);
      },
      prefilter,
    );
    // The prefilter skips only entries that are alive.
    const { matched = handedOver, answered: allAnswered = answered, interrupted } = result;
    this.#counts.reply.alive += Math.max(0, allAnswered - answered);
    this.#counts.original.alive += Math.max(0, matched - handedOver - (allAnswered - answered));
    await this.#settleCandidates();
    if (whole && !interrupted) former.passed(claims);
    return { family, directions: this.#counts, reasons: this.#reasons, interrupted };
  }

  async #prefilter(known: ServiceKnowledge): Promise<ConntrackPrefilter> {
    const { model, former } = this.options;
    const prefilter = new PrefilterBuilder(this.family, known.prefilterAddresses, "orphans");
    await prefilter.addAll({ model, former }, [...model.services()], former.claims(this.family));
    return prefilter.build();
  }

  async #decideAll(entries: readonly ConntrackEntry[], known: ServiceKnowledge): Promise<void> {
    const stale: Going[] = [];
    for (const entry of entries) {
      const decision = decide(entry, known);
      if (decision.action === "delete") {
        stale.push({ entry, why: decision.reason });
        this.options.former.meet(entry);
      } else if (!this.#becomesCandidate(entry, known)) {
        this.#stays(entry);
      }
    }
    await this.#remove(stale);
    if (this.#candidates.length >= MOST_CANDIDATES) await this.#settleCandidates();
  }

  #stays(entry: ConntrackEntry): void {
    this.#counts[directionOf(entry)].alive++;
    this.request.onAlive?.(entry);
  }

  async #remove(going: readonly Going[]): Promise<void> {
    if (going.length === 0) return;
    const { dryRun = false, onEntry } = this.request;
    const entries = going.map(({ entry }) => entry);
    const absent = new Set(dryRun ? [] : (await this.options.table.deleteAll(entries)).absentAt);
    for (const [at, { entry, why }] of going.entries()) {
      if (!absent.has(at)) {
        this.#counts[directionOf(entry)].deleted++;
        this.#reasons[why] = (this.#reasons[why] ?? 0) + 1;
      }
      await onEntry?.(entry, why, absent.has(at) ? "absent" : dryRun ? "would-go" : "deleted");
    }
  }

  #becomesCandidate(entry: ConntrackEntry, known: ServiceKnowledge): boolean {
    const owner = orphanOf(entry, known);
    if (owner === undefined) return false;
    if (owner === "former") this.options.former.meet(entry);
    const { source, sourcePort, protocol } = entry.reply;
    // Copy the entry, so that the candidate does not keep its chunk in memory.
    this.#candidates.push({
      entry: plainEntry(entry),
      endpoint: `${source} ${sourcePort} ${serviceProtocol(protocol)}`,
    });
    return true;
  }

  /** Candidates whose endpoint is listed in some slice are not orphans after all. */
  async #settleCandidates(): Promise<void> {
    const { orphans = "none", onEntry } = this.request;
    const candidates = this.#candidates.splice(0);
    const sought = new Set(candidates.map(({ endpoint }) => endpoint));
    const named = this.options.model.endpointsAmong(this.family, sought);
    const purged: Going[] = [];
    for (const { entry, endpoint } of candidates) {
      if (named.has(endpoint)) {
        this.#stays(entry);
        continue;
      }
      if (isPurged(entry, orphans)) {
        purged.push({ entry, why: "orphan" });
        continue;
      }
      const counts = this.#counts[directionOf(entry)];
      counts.alive++;
      counts.orphaned++;
      await onEntry?.(entry, "orphan", "left");
    }
    await this.#remove(purged);
  }
}
