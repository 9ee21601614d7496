/** Remarks on a valid configuration: settings without effect, and settings that mean something else to kube-proxy. */
import { closest } from "../base/closest.js";
import { type Effective, takesLocalhostOver, writtenFor } from "./defaults.js";
import { Invalid } from "./config-fields.js";
import { asksForLocalhost } from "./node-port-addresses.js";
import type { ConfigInput } from "./schema.js";
import { parseClusterCIDR } from "./values.js";

/** Name of a field as the user wrote it: its path in a file, or its flag. */
export type FieldNames = (path: string) => string;

/** A gate that also has an effect here: false ignores spec.externalIPs (Kubernetes 1.36, KEP-5707). */
export const ALLOW_SERVICE_EXTERNAL_IPS = "AllowServiceExternalIPs";

/**
 * A gate of Kubernetes 1.37 (KEP-6032), which requires it for node ports on loopback. Here `nodePortAddresses` is enough, and
 * false forbids them.
 */
export const LOCALHOST_NODE_PORTS = "KubeProxyNFTablesLocalhostNodePorts";

/** Gates of Kubernetes 1.36 and 1.37 that affect kube-proxy; setting them changes nothing here. */
const WITHOUT_EFFECT = [
  "AllAlpha",
  "AllBeta",
  "ComponentFlagz",
  "ComponentStatusz",
  "ContextualLogging",
  "KubeProxyDrainingTerminatingNodes",
  "KubeProxyIPVS",
  "LoggingAlphaOptions",
  "LoggingBetaOptions",
  "MultiCIDRServiceAllocator",
  "NFTablesNetlink",
  "NFTablesProxyMode",
  "NativeHistograms",
  "PreferSameTrafficDistribution",
  "ServiceTrafficDistribution",
  "TopologyAwareHints",
  "WinDSR",
  "WinOverlay",
];

const KNOWN_GATES: readonly string[] = [ALLOW_SERVICE_EXTERNAL_IPS, LOCALHOST_NODE_PORTS, ...WITHOUT_EFFECT];

/**
 * Returns one sentence per unknown gate. kube-proxy stops at one; here it has no effect. @param field name of the setting as
 * the user wrote it.
 */
function gateWarnings(gates: Readonly<Record<string, boolean>>, field: string): string[] {
  return Object.keys(gates)
    .filter((gate) => !KNOWN_GATES.includes(gate))
    .map((gate) => {
      const guess = closest(gate, KNOWN_GATES);
      const hint = guess === undefined ? `Known gates: ${KNOWN_GATES.join(", ")}` : `Did you mean ${guess}?`;
      return `${field}: ${gate} has no effect, because no such feature gate concerns proxying. ${hint}`;
    });
}

/** Complete sentences about settings that probably do not do what was intended. */
export function warningsOf(input: ConfigInput, effective: Effective, name: FieldNames): string[] {
  const { clusterCIDR, detectLocalMode, featureGates, nodePortAddresses } = effective;
  const warnings = [
    ...modeWarnings(input, effective, name),
    ...gateWarnings(featureGates, name("featureGates")),
    ...loopbackWarnings(featureGates, nodePortAddresses, name),
  ];
  const pods = parseClusterCIDR(clusterCIDR);
  if (detectLocalMode === "ClusterCIDR" && clusterCIDR.trim() === "") {
    warnings.push(
      `${name("detectLocalMode")} is ClusterCIDR and ${name("clusterCIDR")} is empty, so traffic from this node's pods cannot be distinguished from other traffic`,
    );
  } else if (detectLocalMode !== "ClusterCIDR" && pods instanceof Invalid) {
    warnings.push(`${name("clusterCIDR")}: ${pods.message}; mode ${detectLocalMode} does not use it`);
  }
  return warnings;
}

/** Loopback addresses that are both requested and forbidden. */
function loopbackWarnings(
  gates: Readonly<Record<string, boolean>>,
  nodePortAddresses: readonly string[],
  name: FieldNames,
): string[] {
  const allowed = gates[LOCALHOST_NODE_PORTS] ?? true;
  if (allowed || !asksForLocalhost(nodePortAddresses)) return [];
  return [
    `${name("nodePortAddresses")} has loopback addresses, but ${name("featureGates")} sets ${LOCALHOST_NODE_PORTS}=false, ` +
      "so node ports are not reachable on them",
  ];
}

/** Complete sentences about settings that mean something else to kube-proxy, once each. */
export function notesOf(input: ConfigInput, effective: Effective, name: FieldNames): string[] {
  const notes = loggingNotes(input, name);
  if (input.mode !== "ipvs") notes.push(...ipvsNotes(input, name));
  const differences = (input.mode ?? "") === "" ? differencesOf(input, effective, name) : [];
  if (differences.length > 0) {
    notes.push([`${name("mode")} is not set, and the default is nftables`, ...differences].join(". "));
  }
  return notes;
}

/** The meaning of a configuration for another mode, in one text. */
function modeWarnings(input: ConfigInput, effective: Effective, name: FieldNames): string[] {
  const { mode = "" } = input;
  if (mode === "" || mode === "nftables") return [];
  const intro = `${name("mode")} is ${mode}, but this program always uses nftables rules`;
  return [[intro, ...differencesOf(input, effective, name), "`preflight` shows what changes on a node"].join(". ")];
}

/** Sentences about differences from the mode for which the configuration was written. */
function differencesOf(input: ConfigInput, { nodePortAddresses, iptables }: Effective, name: FieldNames): string[] {
  const mode = writtenFor(input);
  if (mode === "nftables") return [];
  const differences: string[] = [];
  const unset = (input.nodePortAddresses ?? []).length === 0;
  if (unset) {
    differences.push(
      `Node ports are reachable only on the node's own IPs. In kube-proxy's ${mode} mode they were reachable on all addresses. ` +
        `To keep that, set ${name("nodePortAddresses")} to 0.0.0.0/0 and ::/0`,
    );
  }
  if (mode === "ipvs") return [...differences, ...ipvsNotes(input, name)];
  const localhost = name("iptables.localhostNodePorts");
  const asked = asksForLocalhost(nodePortAddresses);
  if (takesLocalhostOver(input)) {
    differences.push(
      `${localhost} is true, so node ports are also reachable on 127.0.0.0/8, as in kube-proxy's iptables mode. To prevent that, set it to false`,
    );
  } else if (iptables.localhostNodePorts && !asked && (unset || nodePortAddresses.includes("0.0.0.0/0"))) {
    differences.push(
      "Node ports are not reachable on 127.0.0.1 as they were in kube-proxy's iptables mode. " +
        `To keep that, add primary and localhost to ${name("nodePortAddresses")}`,
    );
  }
  return differences;
}

/** kube-proxy's defaults of the `ipvs` section, which kubeadm writes. The others are empty. */
const IPVS_DEFAULTS: Readonly<Record<string, unknown>> = { syncPeriod: 30_000 };
/** Used when virtual servers of kube-proxy's IPVS mode are removed. */
const IPVS_USED = "excludeCIDRs";

function ipvsNotes({ mode, ipvs = {} }: ConfigInput, name: FieldNames): string[] {
  const { scheduler = "", ...others } = ipvs;
  const used = mode === "ipvs" ? ["syncPeriod", "minSyncPeriod", IPVS_USED] : [IPVS_USED];
  const ignored = Object.entries(others)
    .filter(([field, value]) => value && value !== IPVS_DEFAULTS[field] && !used.includes(field))
    .map(([field]) => name(`ipvs.${field}`));
  const notes: string[] = [];
  if (scheduler !== "") {
    notes.push(
      `${name("ipvs.scheduler")} ${scheduler}: not available, so each connection goes to a random endpoint. ` +
        "docs/migration-ipvs.md names the nearest Service annotation",
    );
  }
  if (ignored.length > 0) {
    notes.push(
      `${ignored.join(", ")}: no effect outside kube-proxy's IPVS mode. docs/migration-ipvs.md names the replacements`,
    );
  }
  return notes;
}

function loggingNotes({ logging }: ConfigInput, name: FieldNames): string[] {
  if ((logging?.vmodule ?? []).length === 0) return [];
  return [
    `${name("logging.vmodule")} names source files of kube-proxy, which this program does not have, so only ${name("logging.verbosity")} is used`,
  ];
}
