/** A kernel for one test, fake or real (real-kernel.ts), and its environment. */
import { FakeKernel, type FakeKernelOptions } from "../fakes/fake-kernel.ts";
import type { Kernel } from "../../src/nft/kernel/kernel.js";
import type { InterfaceAddress, NetworkInterfaces } from "../../src/nft/kernel/network-interfaces.js";
import { interfaceAddress } from "../fakes/fake-interfaces.ts";
import { OF_THE_FAKE, type KernelFacts } from "./kernel-facts.ts";

/** nf_tables of a namespace, with its interfaces, on one connection. */
export interface ConnectedKernel extends Kernel {
  readonly interfaces: Pick<NetworkInterfaces, "addresses" | "watchAddresses">;
}

export interface KernelWorld {
  readonly kernel: ConnectedKernel;
  readonly facts: KernelFacts;
  /** Another socket in the same namespace, closed with the world. */
  other(): Promise<ConnectedKernel>;
  /** Adds or deletes an address of the namespace's loopback interface ("192.0.2.7/24"), as another program would. */
  changeAddress(action: "add" | "delete", cidr: string): Promise<void>;
  /** Lets time pass for the kernel. */
  wait(ms: number): Promise<void>;
  close(): Promise<void>;
}

/** Opens an empty kernel for one test. */
export type OpenKernelWorld = () => Promise<KernelWorld>;

export const fakeOpener =
  (options: FakeKernelOptions): OpenKernelWorld =>
  () => {
    let now = 1_000;
    const kernel = new FakeKernel({ now: () => now, ...options });
    const others: FakeKernel[] = [];
    let addresses: InterfaceAddress[] = [];
    return Promise.resolve({
      kernel,
      facts: OF_THE_FAKE,
      other: () => {
        const other = kernel.asOther();
        others.push(other);
        return Promise.resolve(other);
      },
      changeAddress: (action, cidr) => {
        const [address, length] = cidr.split("/");
        const changed = interfaceAddress(address, "lo", Number(length));
        const others = addresses.filter((other) => !Buffer.from(other.address).equals(changed.address));
        addresses = action === "add" ? [...others, changed] : others;
        kernel.interfaces.set(addresses);
        return Promise.resolve();
      },
      wait: (ms) => {
        now += ms;
        return Promise.resolve();
      },
      close: async () => {
        for (const open of [...others, kernel]) await open.close();
      },
    });
  };

export const openFake = fakeOpener({});
