import { NftKernel } from "../../nft/kernel/nft-kernel.js";
import { type EndSignal, exitBy, handleEnd, handleNotices } from "../../base/signals.js";
import type { ConfigDocument } from "../../config/document.js";
import type { ProxyConfig } from "../../config/proxy-config.js";
import { defaultSocketPath } from "../../daemon/control/socket-path.js";
import { openInotify } from "../../netlink/inotify.js";
import { nameProcess } from "../../node/processes.js";
import { applySystemSettings, loadConntrack } from "../../node/system-settings.js";
import { LogTail } from "../../base/log-tail.js";
import { createLogger, type Logger } from "../../base/logger.js";
import { oldKernelWarning } from "../../node/kernel-release.js";
import type { RunOptions } from "./manifest-commands.js";
import type { OwnOptions } from "../flags/own-flags.js";
import { availableFamilies, decoderFor, manifestSource, MONOTONIC_CLOCK, nodeName, readConfig } from "../setup.js";
import { programVersion } from "../version.js";

/**
 * Maximum time from the signal to the end, ms, because a supervisor and the next pod wait for it. Usually tens of ms are enough. Only a large
 * first write, or a request that the API server does not answer, would need more.
 */
const END_LIMIT_MS = 300;

export interface ServeOptions {
  readonly log: Logger;
  /** The log's last lines, for a bug report. */
  readonly logTail?: LogTail;
  readonly own: OwnOptions;
  /** Write both families of the manifests once and return. */
  readonly once?: boolean;
  /** Do only the work that needs full root privileges, and return. */
  readonly initOnly?: boolean;
  /** If it aborts, serving ends, as after SIGTERM. */
  readonly signal?: AbortSignal;
  /**
   * The configuration's pages on the metrics port. Absent for the command `run`: then no server listens, and only the node's tables and stale
   * connections are changed.
   */
  readonly pages?: {
    readonly configz: ConfigDocument;
    /** One line "name=value" per flag. */
    readonly flagz: string;
  };
}

/** `run`: exit code 0 if everything in the manifests is active (--once), or after SIGTERM or SIGINT. */
export async function runCommand(options: RunOptions): Promise<number> {
  const logTail = new LogTail();
  const log = await createLogger(options.logLevel, "", logTail);
  const config = await readConfig(options.config, log);
  return serve(config, { log, logTail, own: options, once: options.once ?? false });
}

/**
 * Serves until SIGTERM, SIGINT or the signal, with exit code 0. Exit code 1 if the configuration cannot serve this node, or the program must
 * be restarted. With `once`, see `writeOnce`.
 */
export async function serve(config: ProxyConfig, options: ServeOptions): Promise<number> {
  const { log, own, once = false, initOnly = false } = options;
  await nameProcess("nft-proxier");
  const kernel = await NftKernel.open();
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
      const { writeOnce } = await import("../../daemon/write-once.js");
      return await writeOnce({ ...shared, ...onTables, source: manifests });
    }
    const { runDaemon } = await import("../../daemon/daemon.js");
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
  } finally {
    await kernel.close();
  }
}

/** Returns undefined (no socket) for "". Default: the path for this network namespace. */
function controlSocketOf(given: string | undefined): string | undefined {
  return given === "" ? undefined : (given ?? defaultSocketPath());
}

/** Requests that a daemon receives through signals. */
interface DaemonSignals {
  /** Resolves at the first SIGTERM or SIGINT, or when `aborted`. */
  readonly ended: Promise<void>;
  /** Makes each SIGUSR1 call `say`. */
  readonly onStatusRequest: (say: () => void) => void;
}

/**
 * The rules stay in place at the end, so that traffic is not affected. Work in progress has END_LIMIT_MS. No transaction is ever left half
 * done, and if a write has several, the next start completes it.
 */
function daemonSignals(log: Logger, aborted: AbortSignal | undefined): DaemonSignals {
  const ended = Promise.withResolvers<void>();
  let say = (): void => log.info("starting: no rules are active yet");
  const end = (signal: EndSignal | "SIGHUP"): void => {
    log.info({ signal }, "ending; the rules stay in place");
    handleEnd(exitBy);
    setTimeout(() => process.exit(0), END_LIMIT_MS).unref();
    ended.resolve();
  };
  handleEnd(end);
  handleNotices((signal) => {
    if (signal === "SIGUSR1") return say();
    // In the foreground of a terminal, the program ends with the terminal, like any other.
    if (signal === "SIGHUP" && process.stdin.isTTY) return end(signal);
    log.warn(
      { signal },
      "signal ignored: changed files are read without a signal, SIGUSR1 logs the status, SIGTERM ends the program",
    );
  });
  if (aborted?.aborted === true) ended.resolve();
  aborted?.addEventListener("abort", () => ended.resolve(), { once: true });
  return { ended: ended.promise, onStatusRequest: (handler) => (say = handler) };
}
