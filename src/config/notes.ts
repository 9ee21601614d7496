/** What is worth saying about a configuration that is right: what has no effect, and where kube-proxy would differ. */
import { closest } from "./closest.js";
import type { Effective } from "./defaults.js";
import { formatDuration } from "./duration.js";
import type { ConfigInput } from "./schema.js";
import { parseClusterCIDR } from "./values.js";

/** The gate that decides something here too: false ignores spec.externalIPs (Kubernetes 1.36, KEP-5707). */
export const ALLOW_SERVICE_EXTERNAL_IPS = "AllowServiceExternalIPs";

/** Gates of Kubernetes 1.36 that bear on kube-proxy; setting them changes nothing here. */
const WITHOUT_EFFECT = [
  "AllAlpha",
  "AllBeta",
  "ComponentFlagz",
  "ComponentStatusz",
  "ContextualLogging",
  "KubeProxyDrainingTerminatingNodes",
  "LoggingAlphaOptions",
  "LoggingBetaOptions",
  "MultiCIDRServiceAllocator",
  "NFTablesProxyMode",
  "NativeHistograms",
  "PreferSameTrafficDistribution",
  "ServiceTrafficDistribution",
  "TopologyAwareHints",
  "WinDSR",
  "WinOverlay",
];

const KNOWN_GATES: readonly string[] = [ALLOW_SERVICE_EXTERNAL_IPS, ...WITHOUT_EFFECT];

/** A sentence for each gate that is not known (kube-proxy stops at one; here it has no effect); `field` is what the setting is called where it was written. */
function gateWarnings(gates: Readonly<Record<string, boolean>>, field: string): string[] {
  return Object.keys(gates)
    .filter((gate) => !KNOWN_GATES.includes(gate))
    .map((gate) => {
      const guess = closest(gate, KNOWN_GATES);
      const hint = guess === undefined ? `known are ${KNOWN_GATES.join(", ")}` : `did you mean ${guess}?`;
      return `${field}: ${gate} is no feature gate that bears on proxying, it has no effect: ${hint}`;
    });
}

/** What a field is called where it was written: its path in a file, or its flag. */
export type FieldNames = (path: string) => string;

/** Whole sentences, of settings that probably do not do what was meant. */
export function warningsOf(effective: Effective, name: FieldNames): string[] {
  const { clusterCIDR, detectLocalMode, featureGates, nodePortAddresses } = effective;
  const warnings = [
    ...gateWarnings(featureGates, name("featureGates")),
    ...loopbackWarnings(nodePortAddresses, name("nodePortAddresses")),
  ];
  const pods = parseClusterCIDR(clusterCIDR);
  if (detectLocalMode === "ClusterCIDR" && clusterCIDR.trim() === "") {
    warnings.push(
      `${name("detectLocalMode")} is ClusterCIDR and ${name("clusterCIDR")} is empty: traffic of this node's pods cannot be told from other traffic`,
    );
  } else if (detectLocalMode !== "ClusterCIDR" && "problem" in pods) {
    warnings.push(`${name("clusterCIDR")}: ${pods.problem}; in mode ${detectLocalMode} it is not used`);
  }
  return warnings;
}

/** CIDRs of loopback addresses, where node ports never answer. */
function loopbackWarnings(nodePortAddresses: readonly string[], name: string): string[] {
  const loopback = nodePortAddresses.filter(isLoopbackCIDR);
  if (loopback.length === 0) return [];
  const iptables = loopback.some((cidr) => cidr.startsWith("127."))
    ? "; kube-proxy's iptables mode answered on 127.0.0.1, with iptables.localhostNodePorts"
    : "";
  return [
    `${name}: ${loopback.join(", ")} is ignored: node ports never answer on loopback, as in kube-proxy's nftables mode${iptables}. ` +
      "From the node itself use the service's ClusterIP and port, or one of the node's own IPs and the node port",
  ];
}

/** Whole sentences: what the same configuration means to kube-proxy and not here, once each. */
export function notesOf(input: ConfigInput, effective: Effective, name: FieldNames): string[] {
  const notes = loggingNotes(input, name);
  if ((input.mode ?? "") !== "") return notes;
  const { iptables, nftables, nodePortAddresses } = effective;
  const unset = (input.nodePortAddresses ?? []).length === 0;
  if (unset) {
    notes.push(
      `${name("mode")} is not set and means nftables: node ports answer on the node's own IPs; in kube-proxy's iptables mode ` +
        `they answered on all addresses (${name("nodePortAddresses")}: 0.0.0.0/0 and ::/0 for that)`,
    );
  }
  if (iptables.localhostNodePorts && (unset || nodePortAddresses.includes("0.0.0.0/0"))) {
    notes.push(
      `${name("mode")} is not set and means nftables: node ports do not answer on 127.0.0.1, as they did in kube-proxy's ` +
        `iptables mode (${name("iptables.localhostNodePorts")})`,
    );
  }
  if (iptables.masqueradeAll && !nftables.masqueradeAll) {
    notes.push(
      `${name("iptables.masqueradeAll")} is true, and is another mode's: set nftables.masqueradeAll to masquerade all traffic to ClusterIPs`,
    );
  }
  return [...notes, ...iptablesNotes(input, effective, name)];
}

/** Settings of the iptables mode that were changed, and whose counterparts for nftables were not. */
function iptablesNotes(input: ConfigInput, { iptables, nftables }: Effective, name: FieldNames): string[] {
  const notes: string[] = [];
  const differ = (field: "masqueradeBit" | "syncPeriod" | "minSyncPeriod", show: (value: number) => string) => {
    const written = input.iptables?.[field];
    if (written === undefined || (written === 0 && field !== "masqueradeBit")) return;
    if (iptables[field] === nftables[field]) return;
    notes.push(
      `${name(`iptables.${field}`)} is ${show(iptables[field])}, and is another mode's: nftables.${field} is ${show(nftables[field])}`,
    );
  };
  differ("masqueradeBit", String);
  differ("syncPeriod", formatDuration);
  differ("minSyncPeriod", formatDuration);
  return notes;
}

function loggingNotes({ logging }: ConfigInput, name: FieldNames): string[] {
  if ((logging?.vmodule ?? []).length === 0) return [];
  return [
    `${name("logging.vmodule")} names source files of kube-proxy, which this program has not: ${name("logging.verbosity")} counts alone`,
  ];
}

/** Of a CIDR in canonical form. */
const isLoopbackCIDR = (cidr: string): boolean => cidr.startsWith("127.") || cidr === "::1/128";
