/** The endpoints of one service port, to be asked about one reply source at a time. */
import type { Endpoint } from "../model/types.js";

/** serving: takes traffic. present: some slice names it, but it takes none. absent: no slice of the service names it. */
export type EndpointState = "serving" | "present" | "absent";

export class EndpointStates {
  /** "address port" → takes traffic. */
  readonly #states = new Map<string, boolean>();
  readonly #servingAddresses = new Set<string>();

  /** `serving` goes with `endpoints`. */
  constructor(endpoints: readonly Endpoint[], serving: readonly boolean[]) {
    endpoints.forEach(({ address, port }, i) => {
      const serves = serving[i] ?? false;
      this.#states.set(`${address} ${port}`, serves);
      if (serves) this.#servingAddresses.add(address);
    });
  }

  get anyServing(): boolean {
    return this.#servingAddresses.size > 0;
  }

  state(address: string, port: number): EndpointState {
    const serves = this.#states.get(`${address} ${port}`);
    return serves === undefined ? "absent" : serves ? "serving" : "present";
  }

  /** Some endpoint at this address takes traffic, at whatever port. */
  servesAt(address: string): boolean {
    return this.#servingAddresses.has(address);
  }
}
