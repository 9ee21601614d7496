import { createLogger } from "../observe/log.js";
import type { CommonOptions } from "./options.js";
import { serve } from "./serve.js";
import { readConfig } from "./setup.js";

/** `run`: exit code 0 when the kernel took everything (--once), or after SIGTERM or SIGINT. */
export async function runCommand(
  options: CommonOptions & { readonly once?: boolean; readonly ownTable?: boolean },
): Promise<number> {
  const log = await createLogger(options.logLevel);
  const config = await readConfig(options.config, log);
  const own = { manifests: options.manifests, ownTable: options.ownTable ?? false };
  return serve(config, { log, own, once: options.once ?? false });
}
