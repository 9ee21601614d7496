/** Which service an operation was about that the kernel refused. */
import type { IpFamily } from "../model/types.js";
import type { ElementSet, FaultyObject } from "../table/index.js";
import { describeServiceKey } from "./keys.js";
import { ownObjects } from "./own-chains.js";
import type { Expansion, ServiceExpander, ServicePortState } from "./service.js";

export interface Attribution {
  /** "namespace/name"; absent: no service's own, or not to be told. */
  readonly service?: string;
  /** What was refused and why, in words. */
  readonly what: string;
}

/** Sets whose keys begin with a service's address, protocol and port, or its protocol and node port. */
const SERVICE_KEYED = /^(services|nodeports|endpoints|nodeport-endpoints|no-endpoint|firewall-ips|reset|limited)(-|$)/;

function elementId(set: string, key: Uint8Array): string {
  return `${set} ${Buffer.from(key.buffer, key.byteOffset, key.byteLength).toString("latin1")}`;
}

/** The owners of faulty objects, found in one walk over the services however many faults there are. */
export class FaultOwners {
  readonly #expander: ServiceExpander;
  /** By chain or set, and by element: undefined until the owner is found. */
  readonly #owners = new Map<string, string | undefined>();
  readonly #sets = new Set<string>();

  constructor(faults: readonly FaultyObject[], expander: ServiceExpander) {
    this.#expander = expander;
    for (const { set, key, chain } of faults) {
      const name = chain ?? set;
      if (name !== undefined) this.#owners.set(name, undefined);
      if (set === undefined || key === undefined) continue;
      this.#owners.set(elementId(set, key), undefined);
      this.#sets.add(set);
    }
  }

  /** The first service that is found to have an object is its owner. */
  look(service: string, ports: readonly ServicePortState[]): void {
    const found = (id: string): void => {
      if (this.#owners.has(id) && this.#owners.get(id) === undefined) this.#owners.set(id, service);
    };
    const element = ({ spec: { set } }: ElementSet, key: Uint8Array): void => {
      if (this.#sets.has(set)) found(elementId(set, key));
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
      if (this.#sets.size > 0) this.#expander.expand(port, to);
    }
  }

  of({ set, key, chain }: FaultyObject): string | undefined {
    const byKey = set === undefined || key === undefined ? undefined : this.#owners.get(elementId(set, key));
    return byKey ?? this.#owners.get(chain ?? set ?? "");
  }
}

/** "element 10.96.0.1:80/TCP of service-ips: ENOMEM (text)". */
export function describeFault(fault: FaultyObject, family: IpFamily): string {
  const why = `${fault.errno}${fault.text === undefined ? "" : ` (${fault.text})`}`;
  if (fault.set !== undefined && fault.key !== undefined) {
    const key = SERVICE_KEYED.test(fault.set)
      ? describeServiceKey(fault.key, family)
      : `0x${Buffer.from(fault.key).toString("hex")}`;
    return `element ${key} of ${fault.set}: ${why}`;
  }
  const name = fault.chain ?? fault.set;
  return `${fault.kind}${name === undefined ? "" : ` ${name}`}: ${why}`;
}
