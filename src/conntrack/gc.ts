/**
 * Garbage collection of the connection tracking table, as Cilium's ctmap has it, with netfilter's meaning: entries end by
 * themselves when their time is over (that is the kernel's work), so what is collected is what has lost its service. One run
 * counts what there is, deletes what the reconciler would (decide.ts), and finds orphans.
 *
 * An orphan is an entry that was translated, whose original destination is or was a VIP or node port of ours, and whose reply
 * source no slice of any service names. What somebody else translated has another destination, and never is one.
 */
import type { IpFamily, Protocol } from "../model/types.js";
import { Breather } from "../base/turns.js";
import {
  decide,
  type DeleteReason,
  isInDefaultZone,
  isTranslated,
  ownerOf,
  protocolName,
  type Switches,
} from "./decide.js";
import type { Claim, FormerTargets } from "./former.js";
import { ServiceKnowledge, type TargetSource } from "./knowledge.js";
import { ScreenBuilder } from "./screen.js";
import { CONNTRACK_STATUS, type ConntrackEntry, type ConntrackFilter, type ConntrackTable } from "./types.js";

/**
 * How far a connection has come, by netfilter's directions: `original`, only the first direction was ever seen (one-way, or
 * nobody answers); `reply`, the other one too (IPS_SEEN_REPLY).
 */
export type Direction = "original" | "reply";
export const DIRECTIONS: readonly Direction[] = ["original", "reply"];

export interface GcCounts {
  /** Entries that stay, orphans that were left among them. */
  readonly alive: number;
  readonly deleted: number;
  /** Orphans that were found and left. */
  readonly orphaned: number;
}

export interface GcFamilyReport {
  readonly family: IpFamily;
  readonly directions: Readonly<Record<Direction, GcCounts>>;
  /** The kernel's table changed under the dump: the counts are near. */
  readonly interrupted: boolean;
}

export interface GcReport {
  readonly families: readonly GcFamilyReport[];
  /** How long it took, ms. */
  readonly ms: number;
  /** Deleted entries of all there were, 0 to 1; undefined when there was none, or a dump was interrupted. */
  readonly deleteRatio: number | undefined;
}

export interface GcRequest {
  /** Which entries are looked at; all by default. */
  readonly filter?: ConntrackFilter;
  /** Orphans go too; those of TCP only when `filter` names the protocol. Default false: they are counted. */
  readonly orphans?: boolean;
  /** Nothing is deleted; what would be counts as deleted. Default false. */
  readonly dryRun?: boolean;
  /** Each entry that goes, and each orphan that is left. Must not throw. */
  readonly onEntry?: (entry: ConntrackEntry, why: DeleteReason | "orphan", goes: boolean) => void;
}

export interface GcOptions {
  readonly table: Pick<ConntrackTable, "dump" | "deleteAll">;
  readonly model: TargetSource;
  readonly former: FormerTargets;
  readonly families: readonly IpFamily[];
  readonly nodePortAddresses: (family: IpFamily) => Promise<Iterable<string>>;
  readonly switches: Switches;
  /** ms, monotonic. Default performance.now. */
  readonly now?: () => number;
}

/** Cilium's pkg/defaults: the interval to begin with, and its bounds, ms. */
export const GC_START_MS = 5 * 60_000;
export const GC_MIN_MS = 10_000;
export const GC_MAX_MS = 30 * 60_000;

/**
 * The interval to the next run, by the rule of Cilium's `ctmap.GetInterval`: when more than a quarter of all entries was
 * deleted, the interval shrinks by that share (by nine tenths at most); when less than a twentieth, it grows by half; in
 * between, and when the ratio is not known, it stays. Whole seconds, from GC_MIN_MS (10 s) to GC_MAX_MS (30 min).
 * A run that came early had less time to find garbage: its ratio is scaled up to a whole interval.
 * Unlike Cilium's, a run that deletes nothing counts as one that deletes little: here that is the usual case.
 *
 * @param previousMs the interval that was planned.
 * @param deleteRatio deleted entries of all, 0 to 1.
 * @param actualMs the time that passed since the run before, when that was less.
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

/** Orphans that one run remembers until it knows whose their endpoints are; further ones are left to the next run. */
const MOST_CANDIDATES = 10_000;
const SLICE_MS = 1;

interface MutableCounts {
  alive: number;
  deleted: number;
  orphaned: number;
}

interface Candidate {
  readonly entry: ConntrackEntry;
  /** "address port PROTOCOL". */
  readonly endpoint: string;
  /** It goes when it is an orphan and orphans are to go. */
  readonly purge: boolean;
}

function directionOf({ status }: ConntrackEntry): Direction {
  return (status & CONNTRACK_STATUS.seenReply) === 0 ? "original" : "reply";
}

/** Runs garbage collection over a table. Rejects with the table's error; what was deleted before stays deleted. */
export class GarbageCollector {
  readonly #options: GcOptions;
  readonly #now: () => number;

  constructor(options: GcOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  async run(request: GcRequest = {}): Promise<GcReport> {
    const started = this.#now();
    const only = request.filter?.family;
    const families: GcFamilyReport[] = [];
    for (const family of this.#options.families) {
      if (only === undefined || only === family)
        families.push(await new FamilyRun(this.#options, family, request).run());
    }
    return { families, ms: this.#now() - started, deleteRatio: ratioOf(families) };
  }
}

function ratioOf(families: readonly GcFamilyReport[]): number | undefined {
  const counts = families.flatMap(({ directions }) => DIRECTIONS.map((direction) => directions[direction]));
  const deleted = counts.reduce((sum, count) => sum + count.deleted, 0);
  const all = counts.reduce((sum, count) => sum + count.alive, deleted);
  return all === 0 || families.some(({ interrupted }) => interrupted) ? undefined : deleted / all;
}

/** One run over one family. */
class FamilyRun {
  readonly #options: GcOptions;
  readonly #family: IpFamily;
  readonly #request: GcRequest;
  readonly #counts: Record<Direction, MutableCounts> = {
    original: { alive: 0, deleted: 0, orphaned: 0 },
    reply: { alive: 0, deleted: 0, orphaned: 0 },
  };
  readonly #candidates: Candidate[] = [];

  constructor(options: GcOptions, family: IpFamily, request: GcRequest) {
    this.#options = options;
    this.#family = family;
    this.#request = request;
  }

  async run(): Promise<GcFamilyReport> {
    const { table, model, former, nodePortAddresses, switches } = this.#options;
    const family = this.#family;
    const known = new ServiceKnowledge(model, former, family, await nodePortAddresses(family));
    const screen = new ScreenBuilder(family, switches, known.nodePortAddresses, "orphans");
    await this.#fill(screen);
    const whole = this.#request.filter === undefined;
    const claims = former.claims(family);
    const filter = { ...this.#request.filter, family };
    let handedOver = 0;
    let answered = 0;
    const result = await table.dump(
      filter,
      async (entries) => {
        handedOver += entries.length;
        for (const entry of entries) if (directionOf(entry) === "reply") answered++;
        await this.#look(entries, known);
      },
      screen.build(),
    );
    // What the screen left out is alive.
    const { matched = handedOver, answered: allAnswered = answered, interrupted } = result;
    this.#counts.reply.alive += Math.max(0, allAnswered - answered);
    this.#counts.original.alive += Math.max(0, matched - handedOver - (allAnswered - answered));
    await this.#settleCandidates();
    if (whole && !interrupted) former.passed(claims);
    return { family, directions: this.#counts, interrupted };
  }

  async #fill(screen: ScreenBuilder): Promise<void> {
    const { model, former } = this.#options;
    const breather = new Breather(SLICE_MS);
    for (const service of [...model.services()]) {
      for (const target of model.targets(this.#family, service)) screen.addTarget(target);
      if (breather.due) await breather.rest();
    }
    for (const claim of former.claims(this.#family)) {
      const { address, protocol, port } = claim;
      if (model.ownerOf(this.#family, address, protocol, port) === undefined) screen.addFormer(claim);
    }
  }

  async #look(entries: readonly ConntrackEntry[], known: ServiceKnowledge): Promise<void> {
    const stale: ConntrackEntry[] = [];
    for (const entry of entries) {
      const decision = decide(entry, known, this.#options.switches);
      if (decision.action === "delete") {
        this.#request.onEntry?.(entry, decision.reason, true);
        stale.push(entry);
        this.#meetFormer(entry);
      } else if (!this.#becomesCandidate(entry, known)) {
        this.#counts[directionOf(entry)].alive++;
      }
    }
    await this.#remove(stale);
  }

  async #remove(entries: readonly ConntrackEntry[]): Promise<void> {
    for (const entry of entries) this.#counts[directionOf(entry)].deleted++;
    if (this.#request.dryRun !== true && entries.length > 0) await this.#options.table.deleteAll(entries);
  }

  #becomesCandidate(entry: ConntrackEntry, known: ServiceKnowledge): boolean {
    const protocol = protocolName(entry.original.protocol);
    if (protocol === undefined || !isInDefaultZone(entry) || !isTranslated(entry)) return false;
    const owner = ownerOf(entry, protocol, known, false);
    if (owner.kind !== "now" && owner.kind !== "former") return false;
    const { source, sourcePort } = entry.reply;
    if (owner.kind === "now") {
      if (owner.target.endpoints.state(source, sourcePort) !== "absent") return false;
    } else {
      if (owner.target.endpoints?.has(`${source} ${sourcePort}`) === false) return false;
      this.#meetFormer(entry);
    }
    if (this.#candidates.length >= MOST_CANDIDATES) return false;
    const asked = protocol !== "TCP" || this.#request.filter?.protocol === entry.original.protocol;
    this.#candidates.push({
      entry: plain(entry),
      endpoint: `${source} ${sourcePort} ${protocol}`,
      purge: this.#request.orphans === true && asked,
    });
    return true;
  }

  /** Those whose endpoint some slice names are no orphans after all. */
  async #settleCandidates(): Promise<void> {
    const wanted = new Set(this.#candidates.map(({ endpoint }) => endpoint));
    const named = this.#options.model.endpointsAmong(this.#family, wanted);
    const purged: ConntrackEntry[] = [];
    for (const { entry, endpoint, purge } of this.#candidates) {
      const counts = this.#counts[directionOf(entry)];
      if (named.has(endpoint)) {
        counts.alive++;
        continue;
      }
      this.#request.onEntry?.(entry, "orphan", purge);
      if (purge) {
        purged.push(entry);
        continue;
      }
      counts.alive++;
      counts.orphaned++;
    }
    await this.#remove(purged);
  }

  #meetFormer({ original }: ConntrackEntry): void {
    const protocol = protocolName(original.protocol);
    if (protocol === undefined) return;
    const at = (address: string): Claim => ({
      family: this.#family,
      address,
      protocol: protocol satisfies Protocol,
      port: original.destinationPort,
    });
    this.#options.former.meet(at(original.destination));
    this.#options.former.meet(at(""));
  }
}

/** A copy that keeps nothing of its chunk alive. */
function plain({ family, original, reply, id, status, mark, zone, state }: ConntrackEntry): ConntrackEntry {
  return {
    family,
    original: { ...original },
    reply: { ...reply },
    id,
    status,
    mark,
    zone,
    ...(state === undefined ? {} : { state }),
  };
}
