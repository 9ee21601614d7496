import { writeFile } from "node:fs/promises";
import { reasonOf } from "../../base/unknown.js";
import { type LoadedConfig, parseConfig } from "../../config/load.js";
import { toYAML } from "../../config/document.js";
import { watchConfig } from "../../config/watch-config.js";
import { LogTail } from "../../base/log-tail.js";
import { createLogger, levelOf, type Logger } from "../../base/logger.js";
import { UserError } from "../stdio.js";
import { configFile, resolveConfig } from "../flags/flag-config.js";
import { toFlagz } from "../flags/flagz.js";
import type { FlagValues } from "../flags/kube-proxy-flags.js";
import type { OwnOptions } from "../flags/own-flags.js";
import type { serve } from "./serve.js";

/** A command line without a command, whose values have been checked one by one. */
interface ProxyOptions {
  readonly flags: FlagValues;
  readonly own: OwnOptions;
}

/** Serving needs most of the program's modules, and other tasks need none of them. */
const serveLazily: typeof serve = async (...args) => (await import("./serve.js")).serve(...args);

/**
 * Runs a command line without a command, like kube-proxy.
 * @param start the function that serves.
 * @returns the exit code, which is 1 after a change of the configuration file, so that a supervisor restarts the program.
 */
export async function proxyCommand(options: ProxyOptions, start: typeof serve = serveLazily): Promise<number> {
  const { flags, own } = options;
  const loaded = await resolveConfig(flags);
  const { config, document, warnings, notes } = loaded;
  const logTail = new LogTail();
  const log = await createLogger(levelOf(config.logging.verbosity), config.logging.format, logTail);
  for (const warning of warnings) log.warn(warning);
  for (const note of notes) log.info(note);
  const { "write-config-to": written = "", cleanup = false, "init-only": initOnly = false } = flags;
  if (written !== "") return writeConfig(written, loaded, log);
  if (cleanup) {
    const { cleanupTables } = await import("./cleanup.js");
    return cleanupTables(log, config.ipvs.excludeCIDRs);
  }

  const pages = { configz: document, flagz: toFlagz(flags) };
  if (initOnly) return start(config, { log, own, pages, initOnly });
  const changed = new AbortController();
  const stop = watchFile(options, loaded, log, () => changed.abort());
  try {
    const code = await start(config, { log, logTail, own, pages, signal: changed.signal });
    return changed.signal.aborted ? 1 : code;
  } finally {
    stop();
  }
}

/** Calls `changed` once, when the configuration file has a different meaning and is valid. Returns a function that stops watching. */
function watchFile({ flags }: ProxyOptions, loaded: LoadedConfig, log: Logger, changed: () => void): () => void {
  const file = configFile(flags);
  if (file === undefined || loaded.text === undefined) return () => undefined;
  const { path, overrides } = file;
  return watchConfig({
    path,
    text: loaded.text,
    document: loaded.document,
    parse: (text) => parseConfig(text, path, overrides),
    onChange: () => {
      log.info({ config: path }, "configuration file changed; exiting to be restarted with it");
      changed();
    },
    onInvalid: (error) =>
      log.error(
        { config: path },
        `configuration file changed but is invalid; keeping the one in use: ${error.message}`,
      ),
    onNote: (note) => log.info({ config: path }, note),
  });
}

async function writeConfig(path: string, { document }: LoadedConfig, log: Logger): Promise<number> {
  try {
    await writeFile(path, toYAML(document));
  } catch (error) {
    const reason = reasonOf(error);
    throw new UserError(`--write-config-to: ${reason}`, { cause: error });
  }
  log.info({ file: path }, "configuration written");
  return 0;
}
