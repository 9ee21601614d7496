/** What is read of a ServiceCIDR. */
import { parseCIDR, type Prefix } from "../base/ip.js";
import { clusterName, fieldsOf, type Findings, listOf, show } from "./fields.js";

/** The networks of a ServiceCIDR; those that are none are reported. `name` is absent when the object has none. */
export function readCIDRs(object: unknown, findings: Findings): { name?: string; prefixes: Prefix[] } {
  const fields = fieldsOf(object, "", findings);
  const name = clusterName(fieldsOf(fields["metadata"], "metadata", findings), findings);
  const spec = fieldsOf(fields["spec"], "spec", findings);
  const prefixes = listOf(spec["cidrs"], "spec.cidrs", findings).flatMap((item, i) => {
    const prefix = typeof item === "string" ? parseCIDR(item) : undefined;
    if (prefix === undefined) findings.report(`spec.cidrs[${i}]`, `${show(item)} is not a CIDR`);
    return prefix ?? [];
  });
  return { ...(name !== undefined && { name }), prefixes };
}
