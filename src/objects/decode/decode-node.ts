/** Decodes a Node into its record: only the fields that this program reads. Images and conditions take most of a Node's memory. */
import { familyOf, parseAddress } from "../../base/ip.js";
import { type Fields, isFields } from "../../base/unknown.js";
import type { NodeRecord } from "../records.js";
import { addressOf, cidrOf, type FieldProblems, fieldsOf, listOf, show, textOf } from "./field-problems.js";

const ZONE_LABEL = "topology.kubernetes.io/zone";
/** Types of the Node's own IPs, the preferred one first. */
const IP_TYPES: readonly unknown[] = ["InternalIP", "ExternalIP"];

/** A field that cannot be read is reported, and counts as absent. */
export function decodeNode(fields: Fields, problems: FieldProblems): NodeRecord {
  const metadata = fieldsOf(fields["metadata"], "metadata", problems);
  const labels = fieldsOf(metadata["labels"], "metadata.labels", problems);
  const spec = fieldsOf(fields["spec"], "spec", problems);
  const taints = listOf(spec["taints"], "spec.taints", problems).map((taint, i) =>
    textOf(fieldsOf(taint, `spec.taints[${i}]`, problems)["key"], `spec.taints[${i}].key`, problems),
  );
  return {
    zone: textOf(labels[ZONE_LABEL], `metadata.labels["${ZONE_LABEL}"]`, problems),
    deleted: (metadata["deletionTimestamp"] ?? undefined) !== undefined,
    taints,
    podCIDRs: podCIDRsOf(spec, problems),
    ...addressesOf(fields["status"], problems),
  };
}

/** The API server has the first of podCIDRs in podCIDR, too. */
function podCIDRsOf(spec: Fields, problems: FieldProblems): NodeRecord["podCIDRs"] {
  const single = textOf(spec["podCIDR"], "spec.podCIDR", problems);
  const listed = spec["podCIDRs"] ?? undefined;
  const fields: [field: string, value: unknown][] =
    listed !== undefined
      ? listOf(listed, "spec.podCIDRs", problems).map((value, i) => [`spec.podCIDRs[${i}]`, value])
      : single === ""
        ? []
        : [["spec.podCIDR", single]];
  return fields.flatMap(([field, value]) => {
    const prefix = cidrOf(value, field, problems);
    return prefix === undefined ? [] : [{ field, prefix }];
  });
}

type Addresses = Pick<NodeRecord, "addresses" | "hostIPs" | "unreadableIP">;

function addressesOf(value: unknown, problems: FieldProblems): Addresses {
  const status = fieldsOf(value, "status", problems);
  const items = listOf(status["addresses"], "status.addresses", problems);
  const addresses: { field: string; type: unknown; address: string }[] = [];
  let unreadableIP = (value ?? status) !== status || (status["addresses"] ?? items) !== items;
  for (const [i, item] of items.entries()) {
    const field = `status.addresses[${i}]`;
    if (!isFields(item)) {
      problems.report(field, `${show(item)} is not an object`);
      unreadableIP = true;
      continue;
    }
    const { type } = item;
    textOf(type, `${field}.type`, problems);
    const isIP = IP_TYPES.includes(type);
    // Other types, such as Hostname, may have an IP as well.
    const text = isIP ? item["address"] : textOf(item["address"], `${field}.address`, problems);
    const address = isIP ? addressOf(text, `${field}.address`, problems) : parseAddress(String(text));
    unreadableIP ||= isIP && address === undefined;
    if (address !== undefined) addresses.push({ field: `${field}.address`, type, address });
  }
  const own = IP_TYPES.flatMap((wanted) => addresses.filter(({ type }) => type === wanted)).map(
    ({ address }) => address,
  );
  const isFirst = (address: string, i: number): boolean =>
    own.findIndex((other) => familyOf(other) === familyOf(address)) === i;
  return { addresses, hostIPs: own.filter(isFirst), unreadableIP };
}
