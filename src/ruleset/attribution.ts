/** Which service an operation was about that the kernel refused. */
import type { IpFamily } from "../model/types.js";
import type { ElementSet, FaultyObject } from "../table/index.js";
import { describeServiceKey } from "./keys.js";
import type { OwnObjects } from "./own-chains.js";
import type { Expansion, ServiceExpander, ServicePortState } from "./service.js";

export interface Attribution {
  /** "namespace/name"; absent: no service's own, or not to be told. */
  readonly service?: string;
  /** What was refused and why, in words. */
  readonly what: string;
}

/** Sets whose keys begin with a service's address, protocol and port, or its protocol and node port. */
const SERVICE_KEYED = /^(services|nodeports|endpoints|nodeport-endpoints|no-endpoint|firewall-ips|reset)(-|$)/;

function latin1(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

/** The owners of faulty objects, found in one walk over the services however many faults there are. */
export class FaultOwners {
  readonly #expander: ServiceExpander;
  /** By set, by key: undefined until the owner is found. */
  readonly #elements = new Map<string, Map<string, string | undefined>>();
  readonly #names = new Map<string, string | undefined>();

  constructor(faults: readonly FaultyObject[], expander: ServiceExpander) {
    this.#expander = expander;
    for (const { set, key, chain } of faults) {
      const name = chain ?? set;
      if (name !== undefined) this.#names.set(name, undefined);
      if (set === undefined || key === undefined) continue;
      let keys = this.#elements.get(set);
      if (keys === undefined) this.#elements.set(set, (keys = new Map()));
      keys.set(latin1(key), undefined);
    }
  }

  /** The first service that is found to have an object is its owner. */
  look(service: string, ports: readonly (ServicePortState & { readonly own: OwnObjects })[]): void {
    for (const port of ports) {
      for (const { name } of port.own) {
        if (this.#names.has(name) && this.#names.get(name) === undefined) this.#names.set(name, service);
      }
      if (this.#elements.size > 0) this.#expander.expand(port, this.#lookFor(service));
    }
  }

  of({ set, key, chain }: FaultyObject): string | undefined {
    const byKey = set === undefined || key === undefined ? undefined : this.#elements.get(set)?.get(latin1(key));
    const name = chain ?? set;
    return byKey ?? (name === undefined ? undefined : this.#names.get(name));
  }

  #lookFor(service: string): Expansion {
    const compare = (set: ElementSet, key: Uint8Array): void => {
      const keys = this.#elements.get(set.spec.set);
      if (keys === undefined) return;
      const text = latin1(key);
      if (keys.has(text) && keys.get(text) === undefined) keys.set(text, service);
    };
    return {
      element: compare,
      endpoints: (set, key, base, { length }) => {
        for (let i = 0; i < length; i++) compare(set, key.at(base + i));
      },
      list: () => undefined,
    };
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
