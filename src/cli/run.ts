import type { GcInterval } from "../conntrack/service.js";
import { createLogger } from "../base/logger.js";
import type { ManifestOptions } from "./options.js";
import { serve } from "./serve.js";
import { readConfig } from "./setup.js";

/** `run`: exit code 0 when everything that the manifests say is in force (--once), or after SIGTERM or SIGINT. */
export async function runCommand(
  options: ManifestOptions & {
    readonly once?: boolean;
    readonly ownTable?: boolean;
    readonly conntrackGcInterval?: GcInterval;
  },
): Promise<number> {
  const log = await createLogger(options.logLevel);
  const config = await readConfig(options.config, log);
  const { manifests, ownTable = false, allowIncomplete = false, conntrackGcInterval: gcInterval } = options;
  const own = { manifests, ownTable, allowIncomplete, ...(gcInterval !== undefined && { gcInterval }) };
  return serve(config, { log, own, once: options.once ?? false });
}
