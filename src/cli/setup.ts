import { hostname, networkInterfaces } from "node:os";
import type { OpenInotify } from "../base/directory-watch.js";
import { reasonOf } from "../base/unknown.js";
import { ConfigError, type ProxyConfig } from "../config/proxy-config.js";
import { defaultConfig, loadConfig } from "../config/load.js";
import { familyOf, parseAddress } from "../base/ip.js";
import type { LocalAddress } from "../node/facts.js";
import { type KernelFamilies, kernelFamilies } from "../node/families.js";
import type { Logger } from "../base/logger.js";
import { type DecoderOptions, ObjectDecoder } from "../objects/decode/decoder.js";
import { type ManifestProblem, type ManifestRemainder, ManifestSource } from "../objects/manifests/source.js";
import type { ObjectSink, ObjectSource } from "../objects/object-sink.js";
import type { Clock } from "../table/table-exports.js";
import { UserError } from "./stdio.js";

export const MONOTONIC_CLOCK: Clock = { now: () => performance.now() };

/** The configuration file, or the defaults; its warnings and notes are logged. */
export async function readConfig(path: string | undefined, log: Logger): Promise<ProxyConfig> {
  if (path === undefined) return defaultConfig();
  try {
    const { config, warnings, notes } = await loadConfig(path);
    for (const warning of warnings) log.warn({ config: path }, warning);
    for (const note of notes) log.info({ config: path }, note);
    return config;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new UserError(error.message, { cause: error });
  }
}

/** The node's name as the API server knows it: hostnameOverride, or the host's own. */
export function nodeName(config: ProxyConfig): string {
  return config.hostnameOverride === "" ? hostname().trim().toLowerCase() : config.hostnameOverride;
}

/** IPv6 is skipped where the kernel has none. */
export function availableFamilies(log: Logger): KernelFamilies {
  const kernel = kernelFamilies();
  if (kernel.noIPv6 !== undefined) {
    log.info({ reason: kernel.noIPv6 }, "this kernel has no IPv6: only the IPv4 table is written");
  }
  return kernel;
}

/** Addresses of this machine's interfaces, without netlink: it needs neither rights nor the addon. */
export function interfaceAddresses(): Promise<LocalAddress[]> {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return Promise.resolve(
    addresses.flatMap(({ address }): LocalAddress[] => {
      const canonical = parseAddress(address);
      return canonical === undefined ? [] : [{ family: familyOf(canonical), address: canonical }];
    }),
  );
}

const MANIFEST_PROBLEMS: Readonly<Record<ManifestRemainder, string>> = {
  rest: "ignored",
  last: "manifest not readable; keeping its last good version",
  nothing: "manifest not readable; ignored",
};

/** What decodes objects for this node. */
export function decoderFor(config: ProxyConfig, onPod?: DecoderOptions["onPod"]): ObjectDecoder {
  const { allowExternalIPs } = config;
  return new ObjectDecoder({ nodeName: nodeName(config), allowExternalIPs, onPod });
}

/**
 * The directory as a source; what it cannot read is logged.
 * @param watch see ManifestSourceOptions.
 * @param onProblem called for each problem.
 */
export function manifestSource(
  directory: string,
  decoder: ObjectDecoder,
  watch: OpenInotify | undefined,
  log: Logger,
  onProblem: (problem: ManifestProblem) => void = () => undefined,
): ManifestSource {
  return new ManifestSource({
    directory,
    decoder,
    watch,
    onProblem: (problem) => {
      const { served, file, line, column, reason, remedy, unknown } = problem;
      log.warn({ file, line, column, ...unknown, reason, remedy }, MANIFEST_PROBLEMS[served]);
      onProblem(problem);
    },
    onNote: (note) => log.info(note),
  });
}

/** Delivers the first full list, or says why there is none. */
export async function startSource(source: ObjectSource, sink: ObjectSink): Promise<void> {
  try {
    await source.start(sink);
  } catch (error) {
    throw new UserError(reasonOf(error), { cause: error });
  }
}
