/** What the proxier sets on its node when it starts, apart from rules. */
import type { ProxyConfig } from "../config/index.js";
import type { Logger } from "../base/logger.js";
import { applyConntrack } from "./conntrack.js";
import { applyOomScore } from "./oom.js";

export { reportForwarding } from "./forwarding.js";
export { loadConntrack } from "./load-conntrack.js";
export { nameProcess } from "./process-name.js";

export interface SystemSettingsOptions {
  readonly log: Logger;
  /** Where /proc and /sys are; default "/". */
  readonly root?: string;
  /** Called when the kernel has no connection tracker yet; see `loadConntrack`. What it throws is logged. */
  readonly loadConntrack?: () => Promise<void>;
}

/**
 * Brings the connection tracker's limits and timeouts and this process's OOM score to what the configuration says. What the
 * kernel does not allow is a warning that names the file, the values and what to do. Never throws.
 */
export async function applySystemSettings(
  config: Pick<ProxyConfig, "conntrack" | "oomScoreAdj">,
  options: SystemSettingsOptions,
): Promise<void> {
  const { log, root = "/" } = options;
  const load = async (): Promise<void> => {
    try {
      await options.loadConntrack?.();
    } catch (error) {
      log.warn({ err: error }, "loading the kernel's connection tracker failed");
    }
  };
  await applyOomScore(config.oomScoreAdj, { root, log });
  await applyConntrack(config.conntrack, { root, log }, load);
}
