/**
 * Settings, apart from rules, that the proxier makes on its node when it starts: limits and timeouts of the connection
 * tracker, and this process's OOM score. The former follow kube-proxy 1.36 (pkg/proxy/conntrack/sysctls.go), with two
 * differences: a `min` above the cap counts, and failures do not keep the proxier from starting.
 */
import os from "node:os";
import type { Logger } from "../base/logger.js";
import type { ProxyConfig } from "../config/proxy-config.js";
import { CtKey, Hook, Priority } from "../nft/kernel/constants.js";
import type { Kernel } from "../nft/kernel/kernel.js";
import { type DesiredNumber, type KernelFiles, readNumber, setNumber } from "./kernel-number.js";

interface SystemSettingsOptions {
  readonly log: Logger;
  /** Directory that contains /proc and /sys; default "/". */
  readonly root?: string;
  /** Called if the kernel has no connection tracker yet; see `loadConntrack`. Errors that it throws are logged. */
  readonly loadConntrack?: () => Promise<void>;
}

/**
 * Brings the connection tracker's limits and timeouts and this process's OOM score to the configured values. If the kernel
 * forbids a change, a warning names the file, the values and the remedy. Never throws.
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

/** Tells the kernel how willingly it may kill this process when memory runs out, from -1000 (never) to 1000. */
async function applyOomScore(score: number, files: KernelFiles): Promise<void> {
  await setNumber(files, {
    file: "proc/self/oom_score_adj",
    desired: score,
    remedy: "give the process CAP_SYS_RESOURCE, or set oomScoreAdj to the current value",
  });
}

type ConntrackConfig = ProxyConfig["conntrack"];

/** On machines with many cores, a larger table would take gigabytes. `min` can ask for more. */
const MOST_SCALED = 1_048_576;
/** Entries per bucket of the hash table. */
const ENTRIES_PER_BUCKET = 4;

const DIRECTORY = "proc/sys/net/netfilter";
const MAX_FILE = `${DIRECTORY}/nf_conntrack_max`;
const HASH_SIZE_FILE = "sys/module/nf_conntrack/parameters/hashsize";

/** All of them, even if this process may use fewer: the table serves the whole node. */
const onlineCPUs = (): number => Math.max(1, os.cpus().length);

/** Desired number of entries in the table; 0: keep the current number. */
export function conntrackMax({ maxPerCore, min }: ConntrackConfig, cpuCount: number): number {
  if (maxPerCore <= 0) return 0;
  return Math.max(min, Math.min(maxPerCore * cpuCount, MOST_SCALED));
}

/** Name and value of each sysctl that is not 0, except the maximum. Whole seconds, as in kube-proxy, but at least 1. */
function sysctls(config: ConntrackConfig): [name: string, value: number][] {
  const timeouts: [string, number][] = [
    ["nf_conntrack_tcp_timeout_established", config.tcpEstablishedTimeout],
    ["nf_conntrack_tcp_timeout_close_wait", config.tcpCloseWaitTimeout],
    ["nf_conntrack_udp_timeout", config.udpTimeout],
    ["nf_conntrack_udp_timeout_stream", config.udpStreamTimeout],
  ];
  return [
    ...timeouts
      .filter(([, ms]) => ms > 0)
      .map(([name, ms]): [string, number] => [name, Math.max(1, Math.floor(ms / 1000))]),
    ...(config.tcpBeLiberal ? [["nf_conntrack_tcp_be_liberal", 1] as [string, number]] : []),
  ];
}

function remedy(command: string): string {
  return `run \`${command}\` on the node, or run this program once as root with \`--init-only\`, with /proc/sys and /sys writable`;
}

/** Applies the settings that differ. Calls `loadConntrack` if the kernel has no connection tracker yet. */
async function applyConntrack(
  config: ConntrackConfig,
  files: KernelFiles,
  loadConntrack?: () => Promise<void>,
): Promise<void> {
  const max = conntrackMax(config, onlineCPUs());
  const others = sysctls(config);
  if (max === 0 && others.length === 0) return;
  if (loadConntrack !== undefined && (await readNumber(files, MAX_FILE)) === undefined) await loadConntrack();
  if (max > 0) await applyMax(max, files);
  for (const setting of others) await setNumber(files, sysctlSetting(setting));
}

async function applyMax(max: number, files: KernelFiles): Promise<void> {
  const actual = await setNumber(files, maxSetting(max));
  // If the table stays smaller than desired, its hash may be smaller too.
  await setNumber(files, hashSetting(Math.min(max, actual ?? max)));
}

function maxSetting(max: number): DesiredNumber {
  const command = `sysctl -w net.netfilter.nf_conntrack_max=${max}`;
  return { file: MAX_FILE, desired: max, onlyUpwards: true, remedy: remedy(command) };
}

function hashSetting(max: number): DesiredNumber {
  const buckets = Math.floor(max / ENTRIES_PER_BUCKET);
  const command = `echo ${buckets} > /${HASH_SIZE_FILE}`;
  return { file: HASH_SIZE_FILE, desired: buckets, onlyUpwards: true, remedy: remedy(command) };
}

function sysctlSetting([name, desired]: readonly [name: string, value: number]): DesiredNumber {
  return { file: `${DIRECTORY}/${name}`, desired, remedy: remedy(`sysctl -w net.netfilter.${name}=${desired}`) };
}

/** The values to which `applySystemSettings` would set the connection tracker. Writes nothing, and never throws. */
export function conntrackSettings(config: ConntrackConfig): DesiredNumber[] {
  const max = conntrackMax(config, onlineCPUs());
  return [...(max > 0 ? [maxSetting(max), hashSetting(max)] : []), ...sysctls(config).map(sysctlSetting)];
}

/**
 * Makes the kernel load its connection tracker; its sysctls do not exist before. To do so, it checks a rule that tests a
 * connection's state, and rolls it back. Throws KernelError.
 */
export async function loadConntrack(kernel: Kernel): Promise<void> {
  const ref = { family: "ip", table: "conntrack-probe" } as const;
  await kernel.commit(
    [
      { op: "add", kind: "table", ...ref },
      {
        op: "add",
        kind: "chain",
        ...ref,
        chain: "probe",
        base: { type: "filter", hook: Hook.output, priority: Priority.filter },
      },
      { op: "add", kind: "rule", ...ref, chain: "probe", exprs: [{ type: "ct", key: CtKey.state, dreg: 1 }] },
    ],
    { dryRun: true },
  );
}
