/**
 * Decides which address families are served on this node, and finds conflicts between them, the configuration and the Node
 * object. The rules are kube-proxy's (cmd/kube-proxy/app: platformCheckSupported, checkBadConfig, checkBadIPConfig,
 * getLocalDetectors).
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { FAMILY_NAMES, IP_FAMILIES } from "../base/ip-families.js";
import { expandNodePortAddresses } from "../config/node-port-addresses.js";
import { type ProxyConfig } from "../config/proxy-config.js";
import { familyOf, hostAndPort, type IpFamily } from "../base/ip.js";
import { isUnspecified, localDetector, type NodeFacts } from "./node-facts.js";

/** Errors that end the program, or keep it from starting, with exit code 1 and the message. */
type NodeErrorCode =
  /** The kernel lacks the family of the node's first address. */
  | "primary-family"
  /** Single stack, detectLocalMode ClusterCIDR, and clusterCIDR only has the other family. */
  | "cluster-cidr"
  /** detectLocalMode NodeCIDR, and the Node's podCIDRs only have the other family. */
  | "pod-cidrs"
  /** detectLocalMode NodeCIDR, and the Node never got podCIDRs, or never appeared. */
  | "pod-cidrs-timeout"
  /** detectLocalMode NodeCIDR, and the Node's podCIDRs differ from those at the start. */
  | "pod-cidrs-changed";

export class NodeError extends Error {
  readonly code: NodeErrorCode;

  constructor(code: NodeErrorCode, message: string) {
    super(message);
    this.name = "NodeError";
    this.code = code;
  }
}

export interface KernelFamilies {
  /** Always contains IPv4. */
  readonly families: readonly IpFamily[];
  /** Why IPv6 is missing; absent if it is not. */
  readonly noIPv6?: string;
}

/**
 * The families that the kernel has in this network namespace. A setting that cannot be read disables nothing. @param proc
 * root of procfs.
 */
export function kernelFamilies(proc = "/proc"): KernelFamilies {
  const interfaces = join(proc, "net/if_inet6");
  if (!existsSync(interfaces)) return { families: ["ip"], noIPv6: `${interfaces} does not exist` };
  try {
    const disabled = readFileSync(join(proc, "sys/net/ipv6/conf/all/disable_ipv6"), "utf8").trim();
    // Any value but 0 disables IPv6.
    if (/^-?\d*[1-9]\d*$/.test(disabled)) {
      return { families: ["ip"], noIPv6: `net.ipv6.conf.all.disable_ipv6 is ${disabled}` };
    }
  } catch {
    // The setting is hidden or missing, so if_inet6 decides.
  }
  return { families: IP_FAMILIES };
}

/** Conflicts found. All is well if it contains neither warnings nor a fatal error. */
export interface FamilyCheck {
  /** The program cannot continue. */
  readonly fatal?: NodeError;
  /** Probably a mistake. */
  readonly warnings: readonly string[];
  /** Worth knowing. */
  readonly notes: readonly string[];
}

/** True if there is at least one entry, and all are of this family. */
function only(family: IpFamily, cidrs: readonly string[]): boolean {
  return cidrs.length > 0 && cidrs.every((cidr) => familyOf(cidr) === family);
}

const isDual = (cidrs: readonly string[]): boolean =>
  cidrs.some((cidr) => familyOf(cidr) === "ip") && cidrs.some((cidr) => familyOf(cidr) === "ip6");

/** Checks configuration and Node against the kernel's families. */
export function checkFamilies(config: ProxyConfig, facts: NodeFacts, kernel: KernelFamilies): FamilyCheck {
  const { primary, podCIDRs } = facts;
  if (!kernel.families.includes(primary)) {
    const reason = `this node's primary address family is ${FAMILY_NAMES[primary]}, which its kernel does not support`;
    const why = kernel.noIPv6 === undefined ? "" : ` (${kernel.noIPv6})`;
    return { fatal: new NodeError("primary-family", reason + why), warnings: [], notes: [] };
  }
  const other: IpFamily = primary === "ip" ? "ip6" : "ip";
  const single = kernel.families.length === 1;
  const node = `this node is ${FAMILY_NAMES[primary]}-${single ? "only" : "primary"}`;
  const warnings: string[] = [];
  let fatal: NodeError | undefined;
  if (only(other, config.clusterCIDRs)) {
    const problem = `${node}, but clusterCIDR has only ${FAMILY_NAMES[other]}: ${config.clusterCIDRs.join(", ")}`;
    if (config.detectLocalMode === "ClusterCIDR" && single) fatal = new NodeError("cluster-cidr", problem);
    else warnings.push(problem);
  }
  if (only(other, podCIDRs)) {
    const problem = `${node}, but its podCIDRs have only ${FAMILY_NAMES[other]}: ${podCIDRs.join(", ")}`;
    if (config.detectLocalMode === "NodeCIDR") fatal ??= new NodeError("pod-cidrs", problem);
    else warnings.push(problem);
  }
  if (single) {
    for (const field of ["healthzBindAddress", "metricsBindAddress"] as const) {
      const { host } = hostAndPort(config[field]);
      if (host !== "" && !isUnspecified(host) && familyOf(host) === other) {
        warnings.push(`${node}, but ${field} is ${FAMILY_NAMES[other]}: ${config[field]}`);
      }
    }
  }
  warnings.push(...nodePortWarnings(config, facts));
  return { fatal, warnings, notes: detectorNotes(config, facts) };
}

/**
 * Warns of node ports on more addresses than probably intended. (`primary` without a node IP is reported where it is
 * resolved.)
 */
function nodePortWarnings(config: ProxyConfig, { primary, podCIDRs }: NodeFacts): string[] {
  const cidrs = expandNodePortAddresses(config.nodePortAddresses);
  if (cidrs.includes("primary")) return [];
  const other: IpFamily = primary === "ip" ? "ip6" : "ip";
  const dual = [config.clusterCIDRs, cidrs, podCIDRs].some(isDual);
  const everywhere = (family: IpFamily): string =>
    `node ports are reachable on all local ${FAMILY_NAMES[family]} addresses, because nodePortAddresses has none of that family`;
  if (cidrs.length === 0) return ["nodePortAddresses is empty, so node ports are reachable on all local addresses"];
  if (dual && only(primary, cidrs)) return [`the cluster appears to be dual-stack, but ${everywhere(other)}`];
  if (only(other, cidrs)) return [`this node's primary family is ${FAMILY_NAMES[primary]}, but ${everywhere(primary)}`];
  return [];
}

function detectorNotes(config: ProxyConfig, facts: NodeFacts): string[] {
  const { detectLocalMode } = config;
  if (localDetector(config, facts, facts.primary).kind !== "none") return [];
  const missing = detectLocalMode === "NodeCIDR" ? "the Node's podCIDRs have" : "clusterCIDR has";
  const family = FAMILY_NAMES[facts.primary];
  return [
    `detectLocalMode is ${detectLocalMode}, but ${missing} no ${family} network, so no ${family} traffic is recognized as traffic from pods`,
  ];
}
