import type { ConfigDocument, ProxyConfig } from "../config/index.js";
import { runDaemon } from "../daemon/daemon.js";
import { writeOnce } from "../daemon/once.js";
import { applySystemSettings, loadConntrack, nameProcess } from "../host/index.js";
import { ListenError } from "../observe/http-listener.js";
import type { Logger } from "../observe/log.js";
import { oldKernelWarning } from "../proxier/kernel-release.js";
import { ConnectionSettingsError } from "../source/kubernetes/errors.js";
import { ManifestDirectoryError } from "../source/manifests.js";
import { UserError } from "./errors.js";
import type { OwnOptions } from "./options.js";
import { availableFamilies, manifestSource, MONOTONIC_CLOCK, nodeName, openKernel } from "./setup.js";
import { programVersion } from "./version.js";

export interface ServeOptions {
  readonly log: Logger;
  readonly own: OwnOptions;
  /** Write both families of the manifests once and return. */
  readonly once?: boolean;
  /** Do only what needs all of root's rights, and return. */
  readonly initOnly?: boolean;
  /** Serving ends when it aborts, as after a SIGTERM. */
  readonly signal?: AbortSignal;
  /**
   * What the metrics port shows of the configuration. Absent (the command `run`): nothing listens, and nothing of the
   * node but its tables is touched.
   */
  readonly pages?: {
    readonly configz: ConfigDocument;
    /** A line "name=value" for each flag. */
    readonly flagz: string;
  };
}

/**
 * Serves until SIGTERM, SIGINT or the signal: exit code 0; 1 when the node is none that the configuration can serve, or
 * needs a new start. With `once`: 0 when the kernel took everything, else 1.
 */
export async function serve(config: ProxyConfig, options: ServeOptions): Promise<number> {
  const { log, own, once = false, initOnly = false } = options;
  await nameProcess("nft-proxier");
  const kernel = await openKernel();
  try {
    if (initOnly) {
      await applySystemSettings(config, { log, loadConntrack: () => loadConntrack(kernel) });
      return 0;
    }
    const old = oldKernelWarning();
    if (old !== undefined) log.warn(old);
    const families = availableFamilies(log);
    const shared = { config, nodeName: nodeName(config), kernel, families, log, clock: MONOTONIC_CLOCK };
    const manifests = own.manifests === undefined ? undefined : manifestSource(own.manifests, !once, log);
    if (once && manifests !== undefined)
      return await writeOnce({ ...shared, source: manifests, ownTable: own.ownTable });
    return await runDaemon({
      ...shared,
      version: programVersion(),
      manifests,
      node: options.pages,
      ownTable: own.ownTable,
      ended: endSignal(log, options.signal),
    });
  } catch (error) {
    throw isSettings(error) ? new UserError(error.message, { cause: error }) : error;
  } finally {
    await kernel.close();
  }
}

/** What the user can mend. */
function isSettings(error: unknown): error is Error {
  return [ManifestDirectoryError, ListenError, ConnectionSettingsError].some((kind) => error instanceof kind);
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
