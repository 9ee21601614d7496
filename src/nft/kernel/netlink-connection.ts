import { loadAddon, type NativeAddon } from "./addon.js";
import type { Monitor, StreamHandlers } from "./kernel.js";
import { NativeCalls, rethrowLater } from "./native-calls.js";
import { translate } from "./native-error.js";
import type { NetlinkExchange } from "./netlink-message.js";
import type { NativeConnection, NativeEventCallback, NativeMonitor, NativeOpenOptions } from "./nft-addon.js";

export interface ConnectionOptions {
  /** Path of a network namespace (`/run/netns/NAME`, `/proc/PID/ns/net`). Default: the process's own. */
  readonly netns?: string;
  /** The name that the kernel reports with each commit to listeners of nf_tables events. At most 15 bytes. Default "nft-proxier". */
  readonly programName?: string;
  /** Initial send buffer, bytes. It grows with the batches, up to the kernel's limit. */
  readonly sendBufferBytes?: number;
  /** Receive buffer of a monitor, bytes. Default: 64 MiB (1 MiB to watch addresses), or net.core.rmem_max if that is less. */
  readonly receiveBufferBytes?: number;
}

/** The addon's sockets in one network namespace, which the classes of this directory share. */
export class NetlinkConnection extends NativeCalls<NativeConnection> implements NetlinkExchange {
  /**
   * Opens the namespace's nf_tables. Fails with "addon", "no-permission" (CAP_NET_ADMIN, or CAP_SYS_ADMIN to enter
   * another namespace), "no-nftables" or "system" (no such namespace).
   */
  static async open(options: ConnectionOptions = {}): Promise<NetlinkConnection> {
    const addon = loadAddon();
    const { programName: name, ...rest } = options;
    const native: NativeOpenOptions = name === undefined ? rest : { ...rest, name };
    try {
      return new NetlinkConnection("connection", addon, await addon.open(native));
    } catch (error) {
      throw translate(error, "open");
    }
  }

  /**
   * Subscribes to events, before the promise resolves. Handlers must not throw, because their errors become uncaught exceptions. The event loop
   * stays alive until the monitor is closed.
   * @param onValue receives each value that comes with an event.
   */
  watch(
    action: string,
    handlers: StreamHandlers,
    onValue: (value: unknown) => void,
    subscribe: (addon: NativeAddon, handle: NativeConnection, callback: NativeEventCallback) => Promise<NativeMonitor>,
  ): Promise<Monitor> {
    const callback: NativeEventCallback = (kind, value) =>
      rethrowLater(() => {
        if (kind === "lost") handlers.onLost();
        else if (kind === "error") handlers.onError(translate(value, action) as Error);
        else onValue(value);
      });
    return this.run(action, async (addon, handle) => {
      const monitor = await subscribe(addon, handle, callback);
      return this.stream(() => addon.closeMonitor(monitor));
    });
  }

  /**
   * Sends one netlink message to the kernel and returns the messages of its answer, padded, without the final message of a dump.
   * Returns no bytes for an acknowledgement. `protocol` is one of `NetlinkProtocol`. An interrupted dump is read again.
   * Fails with the kernel's errno, or "invalid" if `request` is not one whole request.
   */
  exchange(protocol: number, request: Uint8Array): Promise<Uint8Array> {
    return this.run("netlink request", (addon, handle) => addon.exchange(handle, protocol, request));
  }

  /**
   * Returns memory that large commits and dumps used to the system, and starts a garbage collection in small steps. Call it in a quiet time
   * after them. Resolves when the memory is returned.
   */
  releaseMemory(): Promise<void> {
    return this.run("release memory", (addon) => addon.releaseMemory());
  }

  /** Waits for running calls, then closes monitors and sockets. Later calls fail with "closed". */
  close(): Promise<void> {
    return this.end(() => this.addon.close(this.handle));
  }
}
