/**
 * What an incomplete reading of manifests may do to a table that is in force: nothing. A file that does not parse, or an object with a
 * field that cannot be served, would otherwise take out of service what the tables of the last start still serve.
 */
import type { Kernel } from "../netlink/kernel.js";
import type { ServiceModel } from "../model/service-model.js";
import type { IpFamily } from "../base/ip.js";
import type { Logger } from "../base/logger.js";
import { TABLE_NAME } from "../ruleset/names.js";
import type { ManifestSource } from "../objects/manifests/source.js";
import type { KubeKind, KubeObject, ObjectSink } from "../objects/object-sink.js";

/** Of what is missing, this much is named: every problem has a line of its own in the log. */
const MAX_NAMED = 5;
/** A reading that became complete must stay complete for so long, ms: files that are copied in come one after the other. */
const SETTLE_MS = 500;

/** While it waits for a complete reading: between two looks whether there still is a table to wait for, ms. */
const LOOK_MS = 1000;

/** Manifests and what was understood of them. */
export interface Reading {
  readonly source: Pick<ManifestSource, "gaps" | "problems">;
  readonly model: Pick<ServiceModel, "problems" | "lostClaims">;
}

/** What a reading lacks, for the log. */
export interface Shortfall {
  /** Files of which something cannot be read. */
  readonly files?: readonly string[];
  /** Objects of which something cannot be served: "Service default/web: spec.clusterIP". */
  readonly objects?: readonly string[];
  /** "no manifest": the directory holds no object at all. */
  readonly empty?: string;
}

/**
 * What a reading lacks; undefined when it is complete. What is skipped by rule (other kinds, ExternalName, headless services, addresses that none can have) and what
 * two objects claim, so that one of them has it, is not missing.
 * @param mayBeEmpty a directory without any object lacks nothing.
 */
export function shortfallOf({ source, model }: Reading, mayBeEmpty: boolean): Shortfall | undefined {
  const { files, empty } = source.gaps();
  const lacking = [...model.problems()].filter(({ refused }) => refused === undefined);
  const objects = lacking.map(({ kind, object, field }) => `${kind} ${object}: ${field}`);
  const missing = empty && !mayBeEmpty;
  if (files.length === 0 && objects.length === 0 && !missing) return undefined;
  return {
    ...(files.length > 0 && { files: named(files) }),
    ...(objects.length > 0 && { objects: named(objects) }),
    ...(missing && { empty: "no manifest" }),
  };
}

function named(all: readonly string[]): readonly string[] {
  return all.length <= MAX_NAMED ? all : [...all.slice(0, MAX_NAMED), `and ${all.length - MAX_NAMED} more`];
}

/** How many things of the manifests are not served as they are written, duplicates and lost claims included. */
export function countIgnored({ source, model }: Reading): number {
  return source.problems().length + [...model.problems()].length + [...model.lostClaims()].length;
}

/** Whether the kernel holds a table of ours, or of kube-proxy's. */
export async function tableInForce(kernel: Pick<Kernel, "tables">, families: readonly IpFamily[]): Promise<boolean> {
  const tables = await Promise.all(families.map((family) => kernel.tables(family)));
  return tables.flat().some(({ table }) => table === TABLE_NAME);
}

export interface ReadingGateOptions {
  readonly reading: Reading;
  /** A table is in force that an incomplete reading must not change. */
  readonly mustBeComplete: boolean;
  /** Whether that is still so. May reject: then it is taken to be. */
  readonly inForce: () => Promise<boolean>;
  readonly log: Logger;
  /** How long a reading that became complete must stay so, ms. Default 500. */
  readonly settleMs?: number;
}

/**
 * Between a manifest source and the rest: passes on objects, but `synced`, which lets the first write happen, only with a complete
 * reading, where that is asked for. Edits are followed meanwhile.
 */
export class ReadingGate implements ObjectSink {
  readonly #sink: ObjectSink;
  readonly #options: ReadingGateOptions;
  #state: "reading" | "waiting" | "open" | "stopped" = "reading";
  #settled: NodeJS.Timeout | undefined;
  #look: NodeJS.Timeout | undefined;
  /** What was last said to be missing. */
  #said = "";

  constructor(sink: ObjectSink, options: ReadingGateOptions) {
    this.#sink = sink;
    this.#options = options;
  }

  upsert(object: KubeObject): void {
    this.#sink.upsert(object);
  }

  remove(kind: KubeKind, name: string): void {
    this.#sink.remove(kind, name);
  }

  synced(): void {
    if (this.#state !== "reading") return;
    if (!this.#waits()) return this.#open();
    this.#state = "waiting";
    this.#lookLater();
  }

  flush(): void {
    if (this.#state === "open") return this.#sink.flush();
    if (this.#state !== "waiting") return;
    clearTimeout(this.#settled);
    if (this.#waits()) return;
    this.#settled = setTimeout(() => {
      if (this.#state !== "waiting" || this.#waits()) return;
      this.#options.log.info("manifests completed; updating the tables");
      this.#open();
      this.#sink.flush();
    }, this.#options.settleMs ?? SETTLE_MS);
  }

  /** Ends the waiting; nothing is let through by it any more. */
  stop(): void {
    if (this.#state !== "open") this.#state = "stopped";
    clearTimeout(this.#settled);
    clearTimeout(this.#look);
  }

  #lookLater(): void {
    this.#look = setTimeout(() => void this.#lookForTables(), LOOK_MS);
    this.#look.unref();
  }

  /** Tables that another process deletes meanwhile are nothing to wait for: then something is better than nothing. */
  async #lookForTables(): Promise<void> {
    const inForce = await this.#options.inForce().catch(() => true);
    if (this.#state !== "waiting") return;
    if (inForce) return this.#lookLater();
    this.#options.log.warn("tables deleted by another process; serving what can be read of the manifests");
    this.#open();
    this.#sink.flush();
  }

  #open(): void {
    clearTimeout(this.#settled);
    clearTimeout(this.#look);
    this.#state = "open";
    this.#sink.synced();
  }

  /** Whether something is missing that must not be; says what, when that is something else than last. */
  #waits(): boolean {
    const { reading, mustBeComplete, log } = this.#options;
    const shortfall = shortfallOf(reading, !mustBeComplete);
    if (shortfall === undefined) return false;
    const text = JSON.stringify(shortfall);
    if (!mustBeComplete) log.warn(shortfall, INCOMPLETE);
    else if (text !== this.#said) log.error({ ...shortfall, hint: HINT }, WAITING);
    this.#said = text;
    return mustBeComplete;
  }
}

const INCOMPLETE = "manifests incomplete; serving what can be read";
const WAITING = "manifests incomplete; keeping the tables in force";
const HINT = "complete what is named, or start with --allow-incomplete";
