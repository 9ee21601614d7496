/** Finds the service of an operation that the kernel rejected. */
import type { IpFamily } from "../base/ip.js";
import type { ElementSet, FaultyObject } from "../nft/engine-exports.js";
import { addressText } from "../model/service-address.js";
import { unpackServiceKey } from "./key-packer.js";
import { SetName } from "./names.js";
import { ownObjects } from "./own-objects.js";
import type { Expansion } from "./expansion.js";
import type { ServiceExpander } from "./service-expander.js";
import type { ServicePortState } from "./service-port-state.js";

export interface Attribution {
  /** "namespace/name"; absent if it belongs to no single service, or is unknown. */
  readonly service?: string;
  /** The rejected operation and the reason, in words. */
  readonly what: string;
}

/** Sets whose keys begin with a service's address, protocol and port, or with its protocol and node port. */
const SERVICE_KEYED = /^(services|nodeports|endpoints|nodeport-endpoints|no-endpoint|firewall-ips|reset|limited)(-|$)/;

function elementId(set: string, key: Uint8Array): string {
  return `${set} ${Buffer.from(key.buffer, key.byteOffset, key.byteLength).toString("latin1")}`;
}

/** IDs of the element, if the fault is about one, and of the chain or set. */
function idsOf({ set, key, chain }: FaultyObject): string[] {
  const element = set === undefined || key === undefined ? [] : [elementId(set, key)];
  return [...element, chain ?? set ?? ""];
}

/** The first service found with an object is its owner. Walks over the services once, however many faults there are. */
export function attribute(
  faults: readonly FaultyObject[],
  services: Iterable<readonly [service: string, ports: readonly ServicePortState[]]>,
  expander: ServiceExpander,
  family: IpFamily,
): Attribution[] {
  const unowned = new Set(faults.flatMap(idsOf));
  const sets = new Set(faults.flatMap(({ set, key }) => (key === undefined ? [] : [set])));
  const owners = new Map<string, string>();
  for (const [service, ports] of services) {
    const found = (id: string): void => {
      if (unowned.delete(id)) owners.set(id, service);
    };
    const element = ({ spec: { set } }: ElementSet, key: Uint8Array): void => {
      if (sets.has(set)) found(elementId(set, key));
    };
    const to: Expansion = {
      element,
      endpoints: (set, key, base, { length }) => {
        for (let i = 0; i < length; i++) element(set, key.at(base + i));
      },
      list: () => undefined,
      limits: () => undefined,
    };
    for (const port of ports) {
      for (const { name } of ownObjects(port)) found(name);
      if (sets.size > 0) expander.expand(port, to);
    }
  }
  return faults.map((fault) => {
    const owner = idsOf(fault).find((id) => owners.has(id));
    const what = describeFault(fault, family);
    return owner === undefined ? { what } : { service: owners.get(owner)!, what };
  });
}

/** Keys are distinguished by length, and a node port's key with an index is as long as an IPv4 VIP's without one. */
function withoutIndex(set: string, key: Uint8Array): Uint8Array {
  return set === SetName.nodePortEndpoints ? key.subarray(0, -4) : key;
}

/** "element 10.96.0.1:80/TCP of service-ips: ENOMEM (text)". */
function describeFault(fault: FaultyObject, family: IpFamily): string {
  const more = [fault.text, fault.hint].filter((part) => part !== undefined);
  const why = `${fault.errno}${more.length === 0 ? "" : ` (${more.join("; ")})`}`;
  if (fault.set !== undefined && fault.key !== undefined) {
    const address = SERVICE_KEYED.test(fault.set)
      ? unpackServiceKey(withoutIndex(fault.set, fault.key), family)
      : undefined;
    const key = address === undefined ? `0x${Buffer.from(fault.key).toString("hex")}` : addressText(address);
    return `element ${key} of ${fault.set}: ${why}`;
  }
  const name = fault.chain ?? fault.set;
  return `${fault.kind}${name === undefined ? "" : ` ${name}`}: ${why}`;
}
