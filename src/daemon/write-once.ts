import { setTimeout as sleep } from "node:timers/promises";
import type { NodeRecord } from "../objects/records.js";
import { endFormerHandover } from "../migration/handover/handover-removal.js";
import type { NodeError } from "../node/kernel-families.js";
import { NodeGate } from "../node/node-gate.js";
import type { ObjectSink } from "../objects/object-sink.js";
import { Proxier } from "../proxier/proxier.js";
import type { ManifestSource } from "../objects/manifests/manifest-source.js";
import { reconcileOnce } from "./conntrack-follower.js";
import type { DaemonOptions } from "./daemon-options.js";
import { SizeWatch } from "./size-watch.js";
import { ServiceCIDRCheck } from "./service-cidr-check.js";
import { countIgnored, isTableActive, shortfallOf } from "./complete-reading.js";

/**
 * Maximum number of writes after the first: the rest of a list that shrank, and services that the kernel rejected (31 s
 * in all).
 */
const FOLLOW_UPS = 5;

/** Wait after a write that the kernel rejected, ms. The table may then be written from scratch. */
const RETRY_MS = 100;

const NOTHING_WRITTEN = "nothing written; manifests incomplete, keeping the active tables";
const HINT = "correct the named files and objects, or use `--allow-incomplete`";

type OnceOptions = Pick<
  DaemonOptions,
  "config" | "nodeName" | "kernel" | "families" | "clock" | "log" | "ownTable" | "allowIncomplete" | "serviceCounters"
> & {
  readonly source: ManifestSource;
};

/**
 * Writes both families once. Returns 0 if everything in the manifests is active. Returns 1 in these cases:
 *
 * - the kernel rejected something;
 * - something in the manifests could not be served (unless `allowIncomplete`);
 * - the configuration cannot serve this node.
 *
 * Writes nothing after an incomplete reading if a table is active. Rejects if the source cannot be read.
 */
export async function writeOnce(options: OnceOptions): Promise<number> {
  const { source, families, ...rest } = options;
  const proxier = new Proxier({
    ...rest,
    interfaces: rest.kernel.interfaces,
    families: families.families,
    trackRemovals: true,
  });
  proxier.observe(new SizeWatch(proxier.model));
  const reconciled = await reconcileOnce({ proxier, families: families.families, log: rest.log });
  const fatal = Promise.withResolvers<NodeError>();
  // Write nothing until everything has been read.
  const sink: ObjectSink = {
    upsert: (object) => proxier.upsert(object),
    remove: (kind, name) => proxier.remove(kind, name),
    synced: (pending) => proxier.synced(pending),
    listed: (kind) => proxier.listed(kind),
    flush: () => undefined,
  };
  const overlaps = new ServiceCIDRCheck({ ...rest, families: families.families, proxier });
  const onNode = (node: NodeRecord): void => void (overlaps.node = node);
  const gate = new NodeGate(sink, { ...rest, kernel: families, cluster: false, onNode, onFatal: fatal.resolve });
  let end: OnceEnd;
  try {
    proxier.readAhead();
    await source.start(gate);
    const failure = await Promise.race([gate.opened, fatal.promise]);
    if (failure === undefined) {
      end = await writeReading(proxier, options);
      await overlaps.check();
    } else end = { code: 1, say: () => options.log.error({ code: failure.code }, failure.message) };
  } finally {
    await reconciled();
    gate.stop();
    await source.stop();
    await proxier.stop();
  }
  end.say();
  return end.code;
}

interface OnceEnd {
  readonly code: number;
  say(): void;
}

async function writeReading(proxier: Proxier, options: OnceOptions): Promise<OnceEnd> {
  const { source, kernel, log, allowIncomplete } = options;
  const { families } = options.families;
  const reading = { source, model: proxier.model };
  const shortfall = allowIncomplete ? undefined : shortfallOf(reading, false);
  if (shortfall !== undefined && (await isTableActive(kernel, families))) {
    const ignored = countIgnored(reading);
    return { code: 1, say: () => log.error({ ...shortfall, ignored, hint: HINT }, NOTHING_WRITTEN) };
  }
  const { ok, quarantined } = await write(proxier);
  // The kernel's rejections have already been logged.
  if (!ok) return { code: 1, say: () => undefined };
  for (const family of families) await endFormerHandover({ kernel, log }, family);
  const ignored = countIgnored(reading) + quarantined;
  const counts = families.map((family) => [family, proxier.model.counts(family)] as const);
  const fields = { ...Object.fromEntries(counts), ignored, ...(quarantined > 0 && { quarantined }) };
  const code = quarantined > 0 || (ignored > 0 && !allowIncomplete) ? 1 : 0;
  return { code, say: () => log.info(fields, "rules active") };
}

/** @returns `quarantined`: number of services that the kernel rejects in some family. */
async function write(proxier: Proxier): Promise<{ readonly ok: boolean; readonly quarantined: number }> {
  for (let round = 0; ; round++) {
    const { ok, families } = await proxier.sync();
    const refused = new Set(families.flatMap(({ outcome }) => (outcome.ok ? outcome.quarantined : [])));
    if (!ok) {
      const pending = families.some(({ outcome }) => !outcome.ok && outcome.rebuildPending === true);
      if (!pending || round === FOLLOW_UPS) return { ok, quarantined: refused.size };
      await sleep(RETRY_MS);
      continue;
    }
    const waits = families.flatMap(({ outcome }) => outcome.againMs ?? []);
    if (waits.length === 0 || round === FOLLOW_UPS) return { ok, quarantined: refused.size };
    await sleep(Math.min(...waits));
  }
}
