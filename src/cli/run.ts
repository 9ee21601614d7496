import { setTimeout as sleep } from "node:timers/promises";
import { createLogger, type Logger } from "../observe/log.js";
import { Proxier } from "../proxier/proxier.js";
import type { CommonOptions } from "./program.js";
import {
  availableFamilies,
  manifestSource,
  MONOTONIC_CLOCK,
  nodeName,
  openKernel,
  readConfig,
  startSource,
} from "./setup.js";

/** Writes that follow the first of `--once`: the tail of a list that shrank, and not endlessly. */
const ONCE_FOLLOW_UPS = 5;

/** `run`: exit code 0 when the kernel took everything (--once), or after SIGTERM or SIGINT. */
export async function runCommand(options: CommonOptions & { readonly once?: boolean }): Promise<number> {
  const log = await createLogger(options.logLevel);
  const config = await readConfig(options.config, log);
  const kernel = await openKernel();
  const proxier = new Proxier({
    config,
    nodeName: nodeName(config),
    families: availableFamilies(log),
    kernel,
    log,
    clock: MONOTONIC_CLOCK,
  });
  const source = manifestSource(options.manifests, options.once !== true, log);
  try {
    if (options.once === true) {
      await startSource(source, { ...sinkOf(proxier), flush: () => undefined });
      return await writeOnce(proxier);
    }
    const ended = endSignal(log);
    await startSource(source, proxier);
    const refresh = setInterval(() => proxier.refreshNode(), config.nftables.syncPeriodMs);
    await ended;
    clearInterval(refresh);
    return 0;
  } finally {
    await source.stop();
    await proxier.stop();
    await kernel.close();
  }
}

/** The proxier as a sink whose methods can be taken apart. */
function sinkOf(proxier: Proxier): Pick<Proxier, "upsert" | "remove" | "synced"> {
  return {
    upsert: (object) => proxier.upsert(object),
    remove: (kind, name) => proxier.remove(kind, name),
    synced: () => proxier.synced(),
  };
}

async function writeOnce(proxier: Proxier): Promise<number> {
  for (let round = 0; ; round++) {
    const { ok, families } = await proxier.sync();
    if (!ok) return 1;
    const waits = families.flatMap(({ outcome }) => (outcome.ok ? [outcome.result.applyAgainMs ?? []] : [])).flat();
    if (waits.length === 0 || round === ONCE_FOLLOW_UPS) return 0;
    await sleep(Math.min(...waits));
  }
}

/** Resolves at the first SIGTERM or SIGINT. The rules stay in place: traffic must not notice that we end. */
function endSignal(log: Logger): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      process.once(signal, () => {
        log.info({ signal }, "ending; the rules stay in place");
        resolve();
      });
    }
  });
}
