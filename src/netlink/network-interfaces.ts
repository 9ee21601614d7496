import type { Monitor } from "./kernel.js";
import type { NetlinkConnection } from "./netlink-connection.js";
import type { InterfaceAddress } from "./nft-addon.js";

export type { InterfaceAddress };

export interface InterfaceHandlers {
  /** Something changed: read it again. Several changes may be one call. */
  onChange(): void;
  /** The kernel dropped events (ENOBUFS): read everything again. */
  onLost(): void;
  /** The stream ended for good. */
  onError(error: Error): void;
}

/** The network interfaces of one network namespace (rtnetlink). All methods reject with KernelError. */
export class NetworkInterfaces {
  readonly #connection: NetlinkConnection;

  constructor(connection: NetlinkConnection) {
    this.#connection = connection;
  }

  /** All addresses, whatever their state: tentative and deprecated ones, and those of links that are down. */
  addresses(): Promise<InterfaceAddress[]> {
    return this.#connection.run("dump addresses", (addon, handle) => addon.addresses(handle));
  }

  /**
   * Watches for addresses that come, go or change their state; a link's new name is not reported. Subscribed when the promise resolves: a
   * change that a later call of `addresses()` misses is reported.
   */
  watchAddresses(handlers: InterfaceHandlers): Promise<Monitor> {
    const onChange = (): void => handlers.onChange();
    return this.#connection.watch("watch addresses", handlers, onChange, (addon, handle, callback) =>
      addon.watchAddresses(handle, callback),
    );
  }

  /** Names of all interfaces by their index. */
  async names(): Promise<ReadonlyMap<number, string>> {
    const links = await this.#connection.run("dump interfaces", (addon, handle) => addon.links(handle));
    return new Map(links.map(({ index, name }) => [index, name]));
  }

  /** Watches for links that come, go or change their name or state. Subscribed when the promise resolves. */
  watchLinks(handlers: InterfaceHandlers): Promise<Monitor> {
    const onChange = (): void => handlers.onChange();
    return this.#connection.watch("watch interfaces", handlers, onChange, (addon, handle, callback) =>
      addon.watchLinks(handle, callback),
    );
  }
}
