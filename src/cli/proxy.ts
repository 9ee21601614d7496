import { createLogger, levelOf } from "../observe/log.js";
import { cleanupTables } from "./cleanup.js";
import { UserError } from "./errors.js";
import { resolveConfig } from "./flag-config.js";
import type { ProxyOptions } from "./options.js";
import { serve } from "./serve.js";
import { programVersion, rawVersion } from "./version.js";

/** No sub-command: what kube-proxy does with the same command line. Returns the exit code. */
export async function proxyCommand(options: ProxyOptions): Promise<number> {
  const { flags, own } = options;
  if (flags.version === "true" || flags.version === "raw") {
    process.stdout.write(`${flags.version === "raw" ? rawVersion() : programVersion()}\n`);
    return 0;
  }
  const { config, warnings, notes } = await resolveConfig(flags);
  const log = await createLogger(levelOf(config.logging.verbosity), config.logging.format);
  for (const warning of warnings) log.warn(warning);
  for (const note of notes) log.info(note);
  if (flags["write-config-to"] !== undefined)
    throw new UserError("--write-config-to: this build writes no configuration");
  if (flags.cleanup === true) return cleanupTables(log);
  return serve(config, { log, own, initOnly: flags["init-only"] ?? false });
}
