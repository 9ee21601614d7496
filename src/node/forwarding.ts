/**
 * Finds obstacles on this node to forwarding packets to services that did not affect kube-proxy's iptables mode. That mode
 * put rules that accept its own traffic into the FORWARD chains of other programs. No rule in a separate table can do that:
 * an "accept" only ends the chains of its own table, a "drop" ends the packet.
 */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { ProxyConfig } from "../config/proxy-config.js";
import { Hook, TableFlag } from "../nft/kernel/constants.js";
import type { Kernel, TableRef } from "../nft/kernel/kernel.js";
import type { IpFamily } from "../base/ip.js";
import type { Logger } from "../base/logger.js";
import { readNumber } from "./kernel-number.js";
import type { Shortcoming } from "./packet-settings.js";
import type { LegacyTables } from "../nft/kernel/legacy-tables.js";
import { chainsWithRules } from "./legacy-layout.js";
import { legacyTableNames } from "./proc-file.js";

export interface ForwardingOptions {
  readonly kernel: Pick<Kernel, "tables" | "chains">;
  readonly families: readonly IpFamily[];
  readonly config: Pick<ProxyConfig, "detectLocalMode" | "detectLocal">;
  readonly log: Logger;
  /** The tables of the older iptables. Default: not checked. */
  readonly legacy?: Pick<LegacyTables, "forwardDrops" | "layout">;
  /** Directory that contains /proc and /sys; default "/". */
  readonly root?: string;
}

/** A chain that drops every packet that none of its rules accepts. */
export interface DroppingChain {
  /** "ip", "ip6", "inet". */
  readonly family: string;
  readonly table: string;
  readonly chain: string;
  /** The command that makes the chain accept services' traffic. */
  readonly command: string;
  /** Whether a chain of the older iptables has rules, which cannot be read. Absent for a chain of nf_tables, or if unknown. */
  readonly hasRules?: boolean;
}

const SETTING: Readonly<Record<IpFamily, string>> = { ip: "bridge-nf-call-iptables", ip6: "bridge-nf-call-ip6tables" };
/** Names of the iptables programs. */
export const IPTABLES: Readonly<Record<IpFamily, string>> = { ip: "iptables", ip6: "ip6tables" };

/** A bridge whose ports exchange packets without passing the node's rules. */
export interface SkippingBridge {
  readonly bridge: string;
  /** "net.bridge.bridge-nf-call-iptables". */
  readonly setting: string;
  readonly present: number | string;
  readonly command: string;
}

const FIREWALL_HINT =
  "connections to services fail unless this firewall accepts them. kube-proxy's iptables mode accepted some of them there; its nftables " +
  "mode and this program do not. If services do not work, run the command on this node, and add it to the firewall's configuration";
const BRIDGE_HINT =
  "a pod gets no answer from a service whose endpoint is on the pod's own bridge. If pods use this bridge, run the command on this node";

/** For a chain without rules. */
export function droppingText({ family, table, chain }: DroppingChain): string {
  return `chain ${chain} of table ${family} ${table} drops forwarded packets by policy, and has no rule that accepts any, so packets to services are not forwarded`;
}

export function keptRemedy(command: string): string {
  return `run \`${command}\`, and add it to that firewall's configuration`;
}

/**
 * Logs one warning per chain that drops by policy, and one for bridged pods whose packets bypass the rules. Never
 * throws.
 */
export async function reportForwarding(options: ForwardingOptions): Promise<void> {
  const { log } = options;
  try {
    for (const { hasRules: _, ...chain } of [
      ...(await droppingChains(options)),
      ...(await findLegacyForward(options)),
    ]) {
      log.warn({ ...chain, policy: "drop", hint: FIREWALL_HINT }, "a firewall drops forwarded packets");
    }
    for (const bridge of await findSkippingBridges(options)) {
      log.warn({ ...bridge, hint: BRIDGE_HINT }, "packets on a bridge skip this node's rules");
    }
  } catch (error) {
    log.warn({ err: error }, "checking for firewalls failed");
  }
}

async function droppingChains({
  kernel,
  families,
}: Pick<ForwardingOptions, "kernel" | "families">): Promise<DroppingChain[]> {
  const found: DroppingChain[] = [];
  for (const { family, table, flags } of await kernel.tables()) {
    const concerned = family === "inet" || ((family === "ip" || family === "ip6") && families.includes(family));
    if (!concerned || (flags & TableFlag.dormant) !== 0) continue;
    for (const { chain, base } of await kernel.chains({ family, table })) {
      if (base?.hook !== Hook.forward || base.policy !== "drop") continue;
      found.push({ family, table, chain, command: acceptCommand({ family, table }, chain) });
    }
  }
  return found;
}

export type LegacyForwardOptions = Pick<ForwardingOptions, "families" | "legacy" | "root">;

/** Only chains of the older iptables. Rejects with KernelError. */
export async function findLegacyForward(options: LegacyForwardOptions): Promise<DroppingChain[]> {
  const { families, legacy, root = "/" } = options;
  if (legacy === undefined) return [];
  const found: DroppingChain[] = [];
  for (const family of families) {
    const present = await legacyTableNames(family, root);
    const command = iptablesCommand(`${IPTABLES[family]}-legacy`);
    for (const table of ["filter", "mangle"]) {
      if (!present.includes(table) || !(await legacy.forwardDrops(family, table))) continue;
      const inTable = table === "filter" ? command : command.replace(" -I", ` -t ${table} -I`);
      const hasRules = chainsWithRules(await legacy.layout(family, table)).includes("FORWARD");
      const where = { family, table: `${table} of iptables-legacy`, chain: "FORWARD" };
      found.push({ ...where, command: inTable, hasRules });
    }
  }
  return found;
}

/** The command that makes a chain accept services' packets. iptables refuses to show a table that contains nft's own rules. */
export function acceptCommand({ family, table }: TableRef, chain: string): string {
  return (family === "ip" || family === "ip6") && table === "filter" && chain === "FORWARD"
    ? iptablesCommand(IPTABLES[family])
    : `nft insert rule ${family} ${table} ${chain} ct status dnat accept`;
}

const iptablesCommand = (program: string): string => `${program} -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT`;

/**
 * Pods on one bridge answer each other directly, unless the bridge is set to call the node's rules. An answer from an
 * endpoint then comes from an address that the client has never called.
 */
export async function findSkippingBridges({
  config,
  families,
  root = "/",
}: Pick<ForwardingOptions, "config" | "families" | "root">): Promise<SkippingBridge[]> {
  const found: SkippingBridge[] = [];
  for (const bridge of await bridges(root, config)) {
    for (const family of families) {
      const setting = SETTING[family];
      const present = await readNumber({ root }, `proc/sys/net/bridge/${setting}`);
      const own = await readNumber(
        { root },
        `sys/class/net/${bridge}/bridge/${setting.slice("bridge-".length).replaceAll("-", "_")}`,
      );
      // These settings belong to br_netfilter. Without it, a bridge's own setting has no effect.
      if (present !== undefined && (present !== 0 || (own ?? 0) !== 0)) continue;
      found.push({
        bridge,
        setting: `net.bridge.${setting}`,
        present: present ?? "br_netfilter is not loaded",
        command: `modprobe br_netfilter && sysctl -w net.bridge.${setting}=1`,
      });
    }
  }
  return found;
}

/** The bridge by which pods are identified (detectLocalMode BridgeInterface), if it is not among this node's interfaces. */
export function missingPodBridge(
  { detectLocalMode, detectLocal }: ForwardingOptions["config"],
  interfaces: readonly string[],
): Shortcoming | undefined {
  const { bridgeInterface } = detectLocal;
  if (detectLocalMode !== "BridgeInterface" || interfaces.includes(bridgeInterface)) return undefined;
  return {
    what: `there is no interface ${bridgeInterface} (detectLocal.bridgeInterface), so no traffic is recognized as a pod's`,
    remedy: `set the name of the pods' bridge; this node has ${interfaces.slice(0, 10).join(", ")}`,
  };
}

/** Names of the bridges that pods may be on: bridges with a port, or configured as the pods' bridge. */
async function bridges(root: string, config: ForwardingOptions["config"]): Promise<string[]> {
  const interfaces = await list(join(root, "sys/class/net"));
  const named = config.detectLocalMode === "BridgeInterface" ? config.detectLocal.bridgeInterface : undefined;
  const found: string[] = [];
  for (const name of interfaces) {
    const ports = await list(join(root, "sys/class/net", name, "brif"));
    if (ports.length > 0 || name === named) found.push(name);
  }
  return found;
}

async function list(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch {
    return [];
  }
}
