import { setTimeout as sleep } from "node:timers/promises";
import type { ConfigDocument, ProxyConfig } from "../config/index.js";
import type { Logger } from "../observe/log.js";
import { Proxier } from "../proxier/proxier.js";
import { UserError } from "./errors.js";
import type { OwnOptions } from "./options.js";
import { availableFamilies, manifestSource, MONOTONIC_CLOCK, nodeName, openKernel, startSource } from "./setup.js";

/** Writes that follow the first of `once`: the tail of a list that shrank, and not endlessly. */
const ONCE_FOLLOW_UPS = 5;

export interface ServeOptions {
  readonly log: Logger;
  readonly own: OwnOptions;
  /** Write both families once and return. */
  readonly once?: boolean;
  /** Do only what needs all of root's rights, and return. */
  readonly initOnly?: boolean;
  /** Serving ends when it aborts, as after a SIGTERM. */
  readonly signal?: AbortSignal;
  /** What the metrics port shows of the configuration. */
  readonly pages?: {
    readonly configz: ConfigDocument;
    /** A line "name=value" for each flag. */
    readonly flagz: string;
  };
}

/** Serves until SIGTERM, SIGINT or the signal: exit code 0. With `once`: 0 when the kernel took everything, else 1. */
export async function serve(config: ProxyConfig, options: ServeOptions): Promise<number> {
  const { log, own, once = false } = options;
  if (own.manifests === undefined) {
    throw new UserError(
      "there is nothing to serve: this build reads manifests only, say where they are (--manifests DIR)",
    );
  }
  if (options.initOnly === true) {
    throw new UserError("--init-only: this build changes no system settings, so there is nothing to initialise");
  }
  if (own.ownTable) throw new UserError("--own-table: this build cannot own its tables");
  const kernel = await openKernel();
  const proxier = new Proxier({
    config,
    nodeName: nodeName(config),
    families: availableFamilies(log),
    kernel,
    log,
    clock: MONOTONIC_CLOCK,
    watch: !once,
  });
  const source = manifestSource(own.manifests, !once, log);
  try {
    if (once) {
      await startSource(source, { ...sinkOf(proxier), flush: () => undefined });
      return await writeOnce(proxier);
    }
    const ended = endSignal(log, options.signal);
    await startSource(source, proxier);
    await ended;
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

/** Resolves at the first SIGTERM or SIGINT, or when aborted. The rules stay in place: traffic must not notice that we end. */
function endSignal(log: Logger, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    for (const name of ["SIGTERM", "SIGINT"] as const) {
      process.once(name, () => {
        log.info({ signal: name }, "ending; the rules stay in place");
        resolve();
      });
    }
    if (signal?.aborted === true) resolve();
    signal?.addEventListener("abort", () => resolve(), { once: true });
  });
}
