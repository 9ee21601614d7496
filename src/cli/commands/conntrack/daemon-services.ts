/** Services from the daemon, with the part of a model's interface that the conntrack commands use. */
import type { TargetSource } from "../../../conntrack/reconcile/service-knowledge.js";
import type { ServicePortStatus } from "../../../observe/status-report.js";
import { addressesOf, type AddressKey, keyOf, type ServiceAddress, vipsOf } from "../../../model/service-address.js";
import type { IpFamily } from "../../../base/ip.js";
import { portId, type RemovedAddress, type ServiceTarget } from "../../../model/service-port-view.js";

export class DaemonServices implements TargetSource {
  /** Address → "namespace/name". */
  readonly pods = new Map<string, string>();
  readonly #services = new Set<string>();
  readonly #targets = new Map<string, ServiceTarget[]>();
  readonly #byPort = new Map<string, ServiceTarget>();
  readonly #owners = new Map<AddressKey, string>();
  readonly #endpoints = new Set<string>();

  /** `items` with their endpoints. */
  constructor(items: readonly ServicePortStatus[]) {
    for (const item of items) this.#add(item);
  }

  services(): Iterable<string> {
    return this.#services;
  }

  targets(family: IpFamily, service: string): ServiceTarget[] {
    return this.#targets.get(`${family} ${service}`) ?? [];
  }

  target(...[family, service, by, protocol, port]: Parameters<TargetSource["target"]>): ServiceTarget | undefined {
    return this.#byPort.get(`${family} ${service} ${by} ${protocol} ${port}`);
  }

  ownerOf(address: ServiceAddress): string | undefined {
    return this.#owners.get(keyOf(address));
  }

  endpointsAmong(family: IpFamily, endpoints: ReadonlySet<string>): Set<string> {
    return new Set([...endpoints].filter((endpoint) => this.#endpoints.has(`${family} ${endpoint}`)));
  }

  /** The list does not change, so nothing is ever removed. */
  takeRemovals(): RemovedAddress[] {
    return [];
  }

  #add(item: ServicePortStatus): void {
    const { namespace, name, portName, protocol, port, family, nodePort, drainSeconds = 0, endpoints = [] } = item;
    const { resetRemovedEndpoints = false } = item;
    const service = `${namespace}/${name}`;
    const addresses = vipsOf(item);
    const serving = endpoints.map((endpoint) => endpoint.ready || endpoint.serving || endpoint.draining === true);
    const target: ServiceTarget = {
      ...{ service, id: portId({ service, portName, protocol }), protocol, port, addresses, nodePort },
      ...{ resetRemovedEndpoints, drainSeconds, draining: undefined, endpoints, serving },
    };
    this.#services.add(service);
    const key = `${family} ${service}`;
    const known = this.#targets.get(key);
    if (known === undefined) this.#targets.set(key, [target]);
    else known.push(target);
    this.#byPort.set(`${key} port ${protocol} ${port}`, target);
    if (nodePort !== 0) this.#byPort.set(`${key} nodePort ${protocol} ${nodePort}`, target);
    for (const address of addressesOf(family, item)) this.#owners.set(keyOf(address), service);
    for (const { address, port: own, pod } of endpoints) {
      this.#endpoints.add(`${family} ${address} ${own} ${protocol}`);
      if (pod !== undefined) this.pods.set(address, pod.includes("/") ? pod : `${namespace}/${pod}`);
    }
  }
}
