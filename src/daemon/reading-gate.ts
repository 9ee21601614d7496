/**
 * Keeps an incomplete reading of manifests from changing an active table. Otherwise, a file that does not parse or an
 * object with an unusable field would stop services that the last start's tables still serve.
 */
import type { Kernel } from "../netlink/kernel.js";
import type { ServiceModel } from "../model/service-model.js";
import type { IpFamily } from "../base/ip.js";
import type { Logger } from "../base/logger.js";
import { TABLE_NAME } from "../ruleset/names.js";
import type { ManifestSource } from "../objects/manifests/manifest-source.js";
import type { KubeKind, KubeObject, ObjectSink } from "../objects/object-sink.js";

/** Maximum number of missing items to name. Every problem also has its own line in the log. */
const MAX_NAMED = 5;
/** How long a complete reading must stay complete, ms, because copied files arrive one after the other. */
const SETTLE_MS = 500;

/** Interval between checks that there still is a table to wait for, ms. */
const CHECK_MS = 1000;

/** Manifests, and the model that was read from them. */
interface Reading {
  readonly source: Pick<ManifestSource, "gaps" | "problems">;
  readonly model: Pick<ServiceModel, "problems" | "lostClaims">;
}

/** The incomplete parts of a reading, for the log. */
interface Shortfall {
  /** Files with parts that cannot be read. */
  readonly files?: readonly string[];
  /** Objects with parts that cannot be served: "Service default/web: spec.clusterIP". */
  readonly objects?: readonly string[];
  /** "no manifest": the directory contains no objects. */
  readonly empty?: string;
}

/**
 * Returns the missing parts of a reading, or undefined if it is complete. Objects skipped by rule are not missing: other kinds,
 * ExternalName, headless services, addresses that no service can have. An address that two objects claim is not missing
 * either, because one of them has it.
 * @param mayBeEmpty whether a directory without objects is complete.
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

/** Returns how many parts of the manifests are not served as written, including duplicates and lost claims. */
export function countIgnored({ source, model }: Reading): number {
  return source.problems().length + [...model.problems()].length + [...model.lostClaims()].length;
}

/** Whether the kernel has a table of ours or of kube-proxy. */
export async function isTableActive(kernel: Pick<Kernel, "tables">, families: readonly IpFamily[]): Promise<boolean> {
  const tables = await Promise.all(families.map((family) => kernel.tables(family)));
  return tables.flat().some(({ table }) => table === TABLE_NAME);
}

interface ReadingGateOptions {
  readonly reading: Reading;
  /** Whether an active table exists that an incomplete reading must not change. */
  readonly mustBeComplete: boolean;
  /** Whether the table is still active. A rejection counts as yes. */
  readonly tableActive: () => Promise<boolean>;
  readonly log: Logger;
}

/**
 * Sits between a manifest source and the rest, and passes on objects. If required, it holds back `synced`, which allows
 * the first write, until the reading is complete. Edits are still followed meanwhile.
 */
export class ReadingGate implements ObjectSink {
  readonly #sink: ObjectSink;
  readonly #options: ReadingGateOptions;
  #state: "reading" | "waiting" | "open" | "stopped" = "reading";
  #settled: NodeJS.Timeout | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** The missing items that were last logged. */
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
    this.#checkLater();
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
    }, SETTLE_MS);
  }

  /** Stops waiting. Nothing is let through after that. */
  stop(): void {
    if (this.#state !== "open") this.#state = "stopped";
    clearTimeout(this.#settled);
    clearTimeout(this.#timer);
  }

  #checkLater(): void {
    this.#timer = setTimeout(() => void this.#checkTables(), CHECK_MS);
    this.#timer.unref();
  }

  /**
   * If another process deletes the tables meanwhile, there is no reason to wait: serving a part is better than nothing.
   */
  async #checkTables(): Promise<void> {
    const tableActive = await this.#options.tableActive().catch(() => true);
    if (this.#state !== "waiting") return;
    if (tableActive) return this.#checkLater();
    this.#options.log.warn("another process deleted the tables; serving what can be read of the manifests");
    this.#open();
    this.#sink.flush();
  }

  #open(): void {
    clearTimeout(this.#settled);
    clearTimeout(this.#timer);
    this.#state = "open";
    this.#sink.synced();
  }

  /** Whether required parts are missing. Logs them if they differ from the last time. */
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
const WAITING = "manifests incomplete; keeping the active tables";
const HINT = "correct the named files and objects, or start with `--allow-incomplete`";
