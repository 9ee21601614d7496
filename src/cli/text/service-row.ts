/** The cells of a service port in the output of `services`. */
import { vipsOf } from "../../model/service-address.js";
import { annotationWords } from "../../daemon/control/annotation-text.js";
import { type ServicePortStatus, serviceText } from "../../observe/status-report.js";

export function titleOf(wide: boolean): string[] {
  const title = ["SERVICE", "PORT", "ADDRESS", "NODE PORT", "POLICY", "READY", "CONNECTIONS", "RATE", "STATE"];
  return wide ? [...title, "ANNOTATIONS", "REASON"] : title;
}

export function rowOf(item: ServicePortStatus, wide: boolean): string[] {
  const addresses = vipsOf(item);
  return [
    serviceText(item),
    `${item.port}/${item.protocol}`,
    addresses.length > 0 ? addresses.join(",") : "-",
    item.nodePort === 0 ? "-" : String(item.nodePort),
    policyText(item),
    `${item.ready}/${item.total}`,
    item.connections === undefined ? "-" : String(item.connections),
    rateText(item.connectionsPerSecond),
    item.state,
    ...(wide ? [annotationWords(item), item.reason ?? "-"] : []),
  ];
}

/** Returns "Cluster", or which of the two policies is Local. */
function policyText({ internalTrafficPolicy, externalTrafficPolicy }: ServicePortStatus): string {
  const [inside, outside] = [internalTrafficPolicy === "Local", externalTrafficPolicy === "Local"];
  if (inside && outside) return "Local";
  if (inside) return "internal Local";
  return outside ? "external Local" : "Cluster";
}

/** Formats a rate of new connections: "12/s". */
export function rateText(perSecond: number | undefined): string {
  if (perSecond === undefined) return "-";
  return `${perSecond.toFixed(perSecond > 0 && perSecond < 10 ? 1 : 0)}/s`;
}
