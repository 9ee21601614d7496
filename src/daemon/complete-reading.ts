/**
 * Keeps an incomplete reading of manifests from changing an active table. Otherwise, a file that does not parse or an
 * object with an unusable field would stop services that the last start's tables still serve.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Kernel } from "../nft/kernel/kernel.js";
import type { ServiceModel } from "../model/service-model.js";
import type { IpFamily } from "../base/ip.js";
import type { Logger } from "../base/logger.js";
import { TABLE_NAME } from "../ruleset/names.js";
import type { ManifestSource } from "../objects/manifests/manifest-source.js";

/** Maximum number of missing items to name. Every problem also has its own line in the log. */
const MAX_NAMED = 5;
/** Interval between checks of the reading, and that there still is a table to wait for, ms. */
const CHECK_MS = 500;
/** Number of checks in a row that must find the reading complete, because copied files arrive one after the other. */
const SETTLED_CHECKS = 2;

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
 * either, because one of them has it. Of a Node, everything that can be read is used.
 * @param mayBeEmpty whether a directory without objects is complete.
 */
export function shortfallOf({ source, model }: Reading, mayBeEmpty: boolean): Shortfall | undefined {
  const { files, empty } = source.gaps();
  const lacking = [...model.problems()].filter(({ kind, refused }) => kind !== "Node" && refused === undefined);
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

interface CompleteReadingOptions {
  readonly reading: Reading;
  /** Whether an active table exists that an incomplete reading must not change. */
  readonly mustBeComplete: boolean;
  /** Whether the table is still active. A rejection counts as yes. */
  readonly tableActive: () => Promise<boolean>;
  readonly log: Logger;
  readonly signal: AbortSignal;
}

/**
 * Resolves when the tables may be written: the reading is complete, or need not be. Logs the missing parts. Rejects if the
 * signal is aborted before.
 */
export async function completeReading(options: CompleteReadingOptions): Promise<void> {
  const { reading, mustBeComplete, tableActive, log, signal } = options;
  let shortfall = shortfallOf(reading, !mustBeComplete);
  if (shortfall === undefined) return;
  if (!mustBeComplete) return log.warn(shortfall, INCOMPLETE);
  let said = "";
  for (let complete = 0; complete < SETTLED_CHECKS; shortfall = shortfallOf(reading, false)) {
    complete = shortfall === undefined ? complete + 1 : 0;
    const text = JSON.stringify(shortfall);
    if (shortfall !== undefined && text !== said) {
      log.error({ ...shortfall, hint: HINT }, WAITING);
      said = text;
    }
    await sleep(CHECK_MS, undefined, { signal, ref: false });
    // If another process deletes the tables meanwhile, serving a part is better than nothing.
    if (!(await tableActive().catch(() => true))) return log.warn(TABLES_DELETED);
  }
  log.info("manifests completed; updating the tables");
}

const INCOMPLETE = "manifests incomplete; serving what can be read";
const WAITING = "manifests incomplete; keeping the active tables";
const TABLES_DELETED = "another process deleted the tables; serving what can be read of the manifests";
const HINT = "correct the named files and objects, or start with `--allow-incomplete`";
