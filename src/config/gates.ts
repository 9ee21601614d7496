/** kube-proxy stops at an unknown feature gate. Here one that is not known has no effect, and is a warning. */
import { closest } from "./closest.js";

/** The gate that decides something here too: false ignores spec.externalIPs (Kubernetes 1.36, KEP-5707). */
export const ALLOW_SERVICE_EXTERNAL_IPS = "AllowServiceExternalIPs";

/** Gates of Kubernetes 1.36 that bear on kube-proxy; that they are set says nothing that is not so here anyway. */
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

/** A sentence for each gate that is not known; `field` is what the setting is called where it was written. */
export function gateWarnings(gates: Readonly<Record<string, boolean>>, field: string): string[] {
  return Object.keys(gates)
    .filter((gate) => !KNOWN_GATES.includes(gate))
    .map((gate) => {
      const guess = closest(gate, KNOWN_GATES);
      const hint = guess === undefined ? `known are ${KNOWN_GATES.join(", ")}` : `did you mean ${guess}?`;
      return `${field}: ${gate} is no feature gate that bears on proxying, it has no effect: ${hint}`;
    });
}
