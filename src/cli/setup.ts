import { hostname, networkInterfaces } from "node:os";
import type { OpenInotify } from "../base/directory-watch.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import { defaultConfig, loadConfig } from "../config/load.js";
import { familyOf, parseAddress } from "../base/ip.js";
import type { LocalAddress } from "../node/node-facts.js";
import { type KernelFamilies, kernelFamilies } from "../node/kernel-families.js";
import type { Logger } from "../base/logger.js";
import { type DecoderOptions, ObjectDecoder } from "../objects/decode/object-decoder.js";
import { type ManifestProblem, type ManifestRemainder, ManifestSource } from "../objects/manifests/manifest-source.js";
import type { Clock } from "../nft/engine-exports.js";

export const MONOTONIC_CLOCK: Clock = { now: () => performance.now() };

/** Reads the configuration file, and logs its warnings and notes. Returns the defaults if there is no file. */
export async function readConfig(path: string | undefined, log: Logger): Promise<ProxyConfig> {
  if (path === undefined) return defaultConfig();
  const { config, warnings, notes } = await loadConfig(path);
  for (const warning of warnings) log.warn({ config: path }, warning);
  for (const note of notes) log.info({ config: path }, note);
  return config;
}

/** Returns the node's name in the API server: hostnameOverride, or the host's own. */
export function nodeName(config: ProxyConfig): string {
  return config.hostnameOverride === "" ? hostname().trim().toLowerCase() : config.hostnameOverride;
}

/** Omits IPv6 if the kernel does not have it. */
export function availableFamilies(log: Logger): KernelFamilies {
  const kernel = kernelFamilies();
  if (kernel.noIPv6 !== undefined) {
    log.info({ reason: kernel.noIPv6 }, "this kernel has no IPv6: only the IPv4 table is written");
  }
  return kernel;
}

/** Returns the addresses of this machine's interfaces, without netlink, so it needs neither permission nor the addon. */
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

/** Returns the decoder of objects for this node. */
export function decoderFor(config: ProxyConfig, onPod?: DecoderOptions["onPod"]): ObjectDecoder {
  const { allowExternalIPs } = config;
  return new ObjectDecoder({ nodeName: nodeName(config), allowExternalIPs, onPod });
}

/**
 * Returns a source that reads a directory, and logs problems.
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
