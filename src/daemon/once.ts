import { setTimeout as sleep } from "node:timers/promises";
import type { NodeError } from "../node/families.js";
import { NodeGate } from "../node/node-gate.js";
import { Proxier } from "../proxier/proxier.js";
import type { ObjectSource } from "../source/types.js";
import { reconcileOnce } from "./conntrack.js";
import type { DaemonOptions } from "./daemon.js";

/** Writes that follow the first: the tail of a list that shrank, services that the kernel refused (31 s in all), and not endlessly. */
const FOLLOW_UPS = 5;

export type OnceOptions = Pick<
  DaemonOptions,
  "config" | "nodeName" | "kernel" | "families" | "clock" | "log" | "ownTable"
> & {
  readonly source: ObjectSource;
};

/**
 * Writes both families once. Returns the exit code: 0 when the kernel took everything, 1 when it did not, or when the node
 * is none that the configuration can serve. Rejects when the source cannot be read.
 */
export async function writeOnce(options: OnceOptions): Promise<number> {
  const { source, families, ...rest } = options;
  const proxier = new Proxier({ ...rest, families: families.families, trackReleased: true });
  const reconciled = await reconcileOnce({ proxier, families: families.families, log: rest.log });
  const fatal = Promise.withResolvers<NodeError>();
  const sink = {
    upsert: proxier.upsert.bind(proxier),
    remove: proxier.remove.bind(proxier),
    synced: () => proxier.synced(),
    // Nothing is written until everything is in.
    flush: () => undefined,
  };
  const gate = new NodeGate(sink, { ...rest, kernel: families, cluster: false, onFatal: fatal.resolve });
  try {
    await source.start(gate);
    const failure = await Promise.race([gate.opened, fatal.promise]);
    if (failure === undefined) return await write(proxier);
    options.log.error({ code: failure.code }, failure.message);
    return 1;
  } finally {
    await reconciled();
    gate.stop();
    await source.stop();
    await proxier.stop();
  }
}

async function write(proxier: Proxier): Promise<number> {
  for (let round = 0; ; round++) {
    const { ok, families } = await proxier.sync();
    if (!ok) return 1;
    const refused = families.some(({ outcome }) => outcome.ok && outcome.setAside.length > 0);
    const waits = families.flatMap(({ outcome }) => (outcome.ok ? [outcome.result.applyAgainMs ?? []] : [])).flat();
    if (waits.length === 0 || round === FOLLOW_UPS) return refused ? 1 : 0;
    await sleep(Math.min(...waits));
  }
}
