/** The network interfaces of a namespace in memory, for tests, with their addresses. */
import { addressBytes } from "../../src/base/ip.js";
import { familyOf } from "../../src/base/ip.js";
import { KernelError } from "../../src/nft/kernel/errors.js";
import type { Monitor } from "../../src/nft/kernel/kernel.js";
import type {
  InterfaceAddress,
  InterfaceHandlers,
  NetworkInterfaces,
} from "../../src/nft/kernel/network-interfaces.js";

/** State that all connections to one namespace share. */
interface Shared {
  addresses: readonly InterfaceAddress[];
  readonly listeners: Set<InterfaceHandlers>;
}

export function interfaceAddress(address: string, interfaceName = "eth0", prefixLength = 24): InterfaceAddress {
  const interfaceIndex = interfaceName === "lo" ? 1 : 2;
  return { family: familyOf(address), address: addressBytes(address)!, prefixLength, interfaceIndex, interfaceName };
}

export class FakeInterfaces implements Pick<NetworkInterfaces, "addresses" | "watchAddresses"> {
  readonly #shared: Shared;
  readonly #own = new Set<InterfaceHandlers>();
  #readsToInterrupt = 0;
  #closed = false;

  constructor(addresses: readonly InterfaceAddress[] = [], shared?: Shared) {
    this.#shared = shared ?? { addresses, listeners: new Set() };
  }

  /** Another connection to the same namespace. */
  asOther(): FakeInterfaces {
    return new FakeInterfaces([], this.#shared);
  }

  /** Sets the result of `addresses()` in this namespace and notifies watchers. */
  set(addresses: readonly InterfaceAddress[]): void {
    const { listeners } = this.#shared;
    this.#shared.addresses = addresses;
    for (const handlers of listeners) {
      queueMicrotask(() => {
        if (listeners.has(handlers)) handlers.onChange();
      });
    }
  }
  /** Reports lost events to all watchers. */
  loseEvents(): void {
    for (const handlers of this.#shared.listeners) queueMicrotask(() => handlers.onLost());
  }
  /** Ends all watchers with this error. */
  breakMonitors(error: Error): void {
    for (const handlers of this.#shared.listeners) queueMicrotask(() => handlers.onError(error));
    this.#shared.listeners.clear();
  }
  /** Makes the next `count` reads of this object fail with "interrupted". */
  interruptReads(count = 1): void {
    this.#readsToInterrupt += count;
  }

  async addresses(): Promise<InterfaceAddress[]> {
    this.#checkOpen("dump addresses");
    await Promise.resolve();
    if (this.#readsToInterrupt > 0) {
      this.#readsToInterrupt--;
      const details = { action: "dump addresses", errno: "EINTR" };
      throw new KernelError("interrupted", "the addresses kept changing during the dump", details);
    }
    return [...this.#shared.addresses];
  }

  async watchAddresses(handlers: InterfaceHandlers): Promise<Monitor> {
    this.#checkOpen("watch addresses");
    await Promise.resolve();
    // A new object, because the same handlers may watch twice.
    const listener: InterfaceHandlers = {
      onChange: () => handlers.onChange(),
      onLost: () => handlers.onLost(),
      onError: (error) => handlers.onError(error),
    };
    this.#shared.listeners.add(listener);
    this.#own.add(listener);
    return {
      close: () => {
        this.#shared.listeners.delete(listener);
        return Promise.resolve();
      },
    };
  }

  close(): void {
    this.#closed = true;
    for (const listener of this.#own) this.#shared.listeners.delete(listener);
  }

  #checkOpen(action: string): void {
    if (this.#closed) throw new KernelError("closed", "the kernel connection is closed", { action });
  }
}
