/**
 * Settings of the connection tracker, as kube-proxy 1.36 makes them (pkg/proxy/conntrack/sysctls.go), save that a `min`
 * above the cap counts, and that nothing here keeps the proxier from starting.
 */
import type { ProxyConfig } from "../config/index.js";
import { onlineCPUs } from "./cpus.js";
import { type KernelFiles, readNumber, setNumber } from "./kernel-number.js";

type ConntrackConfig = ProxyConfig["conntrack"];

/** More is a table of gigabytes on machines with many cores; who wants it says so with `min`. */
const MOST_SCALED = 1_048_576;
/** Entries for each bucket of the hash table. */
const ENTRIES_PER_BUCKET = 4;

const DIRECTORY = "proc/sys/net/netfilter";
const MAX_FILE = `${DIRECTORY}/nf_conntrack_max`;
const HASH_SIZE_FILE = "sys/module/nf_conntrack/parameters/hashsize";

/** Entries that the table is to have room for; 0: leave it as it is. */
export function conntrackMax({ maxPerCore, min }: ConntrackConfig, cpuCount: number): number {
  if (maxPerCore <= 0) return 0;
  return Math.max(min, Math.min(maxPerCore * cpuCount, MOST_SCALED));
}

/** Name and value of each sysctl that is not 0, save the maximum. Whole seconds, as kube-proxy; but never none. */
function sysctls(config: ConntrackConfig): [name: string, value: number][] {
  const timeouts: [string, number][] = [
    ["nf_conntrack_tcp_timeout_established", config.tcpEstablishedTimeoutMs],
    ["nf_conntrack_tcp_timeout_close_wait", config.tcpCloseWaitTimeoutMs],
    ["nf_conntrack_udp_timeout", config.udpTimeoutMs],
    ["nf_conntrack_udp_timeout_stream", config.udpStreamTimeoutMs],
  ];
  return [
    ...timeouts
      .filter(([, ms]) => ms > 0)
      .map(([name, ms]): [string, number] => [name, Math.max(1, Math.floor(ms / 1000))]),
    ...(config.tcpBeLiberal ? [["nf_conntrack_tcp_be_liberal", 1] as [string, number]] : []),
  ];
}

function remedy(command: string): string {
  return `run \`${command}\` on the node, or this program once as root with --init-only and /proc/sys and /sys writable`;
}

/** Makes the settings that differ. `loadConntrack` is called where the kernel has no connection tracker yet. */
export async function applyConntrack(
  config: ConntrackConfig,
  files: KernelFiles,
  loadConntrack?: () => Promise<void>,
): Promise<void> {
  const max = conntrackMax(config, await onlineCPUs(files.root));
  const others = sysctls(config);
  if (max === 0 && others.length === 0) return;
  if (loadConntrack !== undefined && (await readNumber(files, MAX_FILE)) === undefined) await loadConntrack();
  if (max > 0) await applyMax(max, files);
  for (const [name, wanted] of others) {
    const file = `${DIRECTORY}/${name}`;
    await setNumber(files, { file, wanted, remedy: remedy(`sysctl -w net.netfilter.${name}=${wanted}`) });
  }
}

async function applyMax(max: number, files: KernelFiles): Promise<void> {
  const inForce = await setNumber(files, {
    file: MAX_FILE,
    wanted: max,
    onlyUpwards: true,
    remedy: remedy(`sysctl -w net.netfilter.nf_conntrack_max=${max}`),
  });
  // Where the table stays smaller than it should be, so may its hash.
  const buckets = Math.floor(Math.min(max, inForce ?? max) / ENTRIES_PER_BUCKET);
  await setNumber(files, {
    file: HASH_SIZE_FILE,
    wanted: buckets,
    onlyUpwards: true,
    remedy: remedy(`echo ${buckets} > /${HASH_SIZE_FILE}`),
  });
}
