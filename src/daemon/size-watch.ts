import { MANY_SERVICES, setUpForManyServices } from "../base/runtime.js";
import type { ServiceModel } from "../model/service-model.js";
import type { ProxierObserver } from "../proxier/observer.js";

/**
 * Configures V8 for many services once there are many. Each port of a service counts, because it is as much work as a
 * service.
 */
export class SizeWatch implements ProxierObserver {
  #many = false;

  constructor(
    private readonly model: Pick<ServiceModel, "size">,
    private readonly setUpForMany = setUpForManyServices,
  ) {}

  received(_kind: "Service" | "EndpointSlice", ports = 0): void {
    if (this.#many || Math.max(ports, this.model.size) <= MANY_SERVICES) return;
    this.#many = true;
    this.setUpForMany();
  }
}
