import { type EndSignal, exitBy, handleEnd, handleNotices } from "../base/signals.js";
import type { ConfigDocument } from "../config/document.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import { defaultSocketPath } from "../daemon/control/socket-path.js";
import { openInotify } from "../netlink/inotify.js";
import { nameProcess } from "../node/processes.js";
import { applySystemSettings, loadConntrack } from "../node/system-settings.js";
import { ListenError } from "../observe/http-server.js";
import { LogTail } from "../base/log-tail.js";
import { createLogger, type Logger } from "../base/logger.js";
import { oldKernelWarning } from "../node/kernel-release.js";
import { ConnectionSettingsError } from "../objects/kubernetes/errors.js";
import { ManifestDirectoryError } from "../objects/manifests/source.js";
import { openKernel } from "./open-kernel.js";
import { UserError } from "./stdio.js";
import type { ManifestOptions } from "./options.js";
import type { OwnOptions } from "./own-flags.js";
import { availableFamilies, decoderFor, manifestSource, MONOTONIC_CLOCK, nodeName, readConfig } from "./setup.js";
import { programVersion } from "./version.js";

/**
 * The end takes no longer than this after its signal, ms: a supervisor waits, and so does the pod that comes next. Most is over in
 * tens of ms; what may take longer is a large first write, or a request that the API server does not answer.
 */
const END_LIMIT_MS = 300;

export interface ServeOptions {
  readonly log: Logger;
  /** The log's last lines, for a bug report. */
  readonly logTail?: LogTail;
  readonly own: OwnOptions;
  /** Write both families of the manifests once and return. */
  readonly once?: boolean;
  /** Do only what needs all of root's rights, and return. */
  readonly initOnly?: boolean;
  /** Serving ends when it aborts, as after a SIGTERM. */
  readonly signal?: AbortSignal;
  /**
   * What the metrics port shows of the configuration. Absent (the command `run`): nothing listens, and nothing of the
   * node is touched but its tables and stale connections.
   */
  readonly pages?: {
    readonly configz: ConfigDocument;
    /** A line "name=value" for each flag. */
    readonly flagz: string;
  };
}

/** `run`: exit code 0 when everything that the manifests say is in force (--once), or after SIGTERM or SIGINT. */
export async function runCommand(options: ManifestOptions & OwnOptions & { readonly once?: boolean }): Promise<number> {
  const logTail = new LogTail();
  const log = await createLogger(options.logLevel, "", logTail);
  const config = await readConfig(options.config, log);
  return serve(config, { log, logTail, own: options, once: options.once ?? false });
}

/**
 * Serves until SIGTERM, SIGINT or the signal: exit code 0; 1 when the node is none that the configuration can serve, or
 * needs a new start. With `once`: as `writeOnce`.
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
    const manifests =
      own.manifests === undefined
        ? undefined
        : manifestSource(own.manifests, decoderFor(config), once ? undefined : openInotify, log);
    const { ownTable = false, allowIncomplete = false, serviceCounters = "service", connectionSeries } = own;
    const onTables = { ownTable, allowIncomplete, serviceCounters };
    if (once && manifests !== undefined) {
      const { writeOnce } = await import("../daemon/once.js");
      return await writeOnce({ ...shared, ...onTables, source: manifests });
    }
    const { runDaemon } = await import("../daemon/daemon.js");
    return await runDaemon({
      ...shared,
      version: programVersion(),
      manifests,
      node: options.pages,
      statusPage: own.statusPage,
      ...onTables,
      gcInterval: own.conntrackGcInterval ?? "adaptive",
      connectionSeries,
      flowtable: own.flowtable,
      controlSocket: controlSocketOf(own.controlSocket),
      logTail: options.logTail,
      ...daemonSignals(log, options.signal),
    });
  } catch (error) {
    throw isSettings(error) ? new UserError(error.message, { cause: error }) : error;
  } finally {
    await kernel.close();
  }
}

/** "": none; not given: that of this network namespace. */
function controlSocketOf(given: string | undefined): string | undefined {
  return given === "" ? undefined : (given ?? defaultSocketPath());
}

/** What the user can correct. */
function isSettings(error: unknown): error is Error {
  return [ManifestDirectoryError, ListenError, ConnectionSettingsError].some((kind) => error instanceof kind);
}

/** What signals ask of a daemon. */
interface DaemonSignals {
  /** Resolves at the first SIGTERM or SIGINT, or when `aborted`. */
  readonly ended: Promise<void>;
  /** Has `say` called at each SIGUSR1. */
  readonly onStatusRequest: (say: () => void) => void;
}

/**
 * The rules stay in place at the end: traffic must not notice it. Whatever is under way then has END_LIMIT_MS: no transaction
 * is ever half done, and a write of several is completed by the next start.
 */
function daemonSignals(log: Logger, aborted: AbortSignal | undefined): DaemonSignals {
  const ended = Promise.withResolvers<void>();
  let say = (): void => log.info("starting: no rules are in force yet");
  const end = (signal: EndSignal | "SIGHUP"): void => {
    log.info({ signal }, "ending; the rules stay in place");
    handleEnd(exitBy);
    setTimeout(() => process.exit(0), END_LIMIT_MS).unref();
    ended.resolve();
  };
  handleEnd(end);
  handleNotices((signal) => {
    if (signal === "SIGUSR1") return say();
    // In the foreground of a terminal it ends with the terminal, as any program does.
    if (signal === "SIGHUP" && process.stdin.isTTY) return end(signal);
    log.warn({ signal }, "signal ignored: edits are followed without one, SIGUSR1 logs the status, SIGTERM ends");
  });
  if (aborted?.aborted === true) ended.resolve();
  aborted?.addEventListener("abort", () => ended.resolve(), { once: true });
  return { ended: ended.promise, onStatusRequest: (handler) => (say = handler) };
}
