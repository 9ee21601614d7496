import type { Monitor, StreamHandlers } from "./kernel.js";
import type { NetlinkConnection } from "./netlink-connection.js";
import type { InterfaceAddress } from "./nft-addon.js";

export type { InterfaceAddress };

/** After `onLost`, read everything again. */
export interface InterfaceHandlers extends StreamHandlers {
  /** Something changed, so read again. One call may report several changes. */
  onChange(): void;
}

/** The network interfaces of one network namespace (rtnetlink). All methods reject with KernelError. */
export class NetworkInterfaces {
  readonly #connection: NetlinkConnection;

  constructor(connection: NetlinkConnection) {
    this.#connection = connection;
  }

  /** Returns all addresses in any state, also tentative and deprecated ones, and addresses of links that are down. */
  addresses(): Promise<InterfaceAddress[]> {
    return this.#connection.run("dump addresses", (addon, handle) => addon.addresses(handle));
  }

  /**
   * Watches for addresses that come, go or change their state. A link's new name is not reported. Subscribes before the promise resolves, so
   * a change that a later call of `addresses()` misses is reported.
   */
  watchAddresses(handlers: InterfaceHandlers): Promise<Monitor> {
    const onChange = (): void => handlers.onChange();
    return this.#connection.watch("watch addresses", handlers, onChange, (addon, handle, callback) =>
      addon.watchAddresses(handle, callback),
    );
  }

  /** Returns the names of all interfaces, by index. */
  async names(): Promise<ReadonlyMap<number, string>> {
    const links = await this.#connection.run("dump interfaces", (addon, handle) => addon.links(handle));
    return new Map(links.map(({ index, name }) => [index, name]));
  }

  /** Watches for links that come, go or change their name or state. Subscribes before the promise resolves. */
  watchLinks(handlers: InterfaceHandlers): Promise<Monitor> {
    const onChange = (): void => handlers.onChange();
    return this.#connection.watch("watch interfaces", handlers, onChange, (addon, handle, callback) =>
      addon.watchLinks(handle, callback),
    );
  }
}
