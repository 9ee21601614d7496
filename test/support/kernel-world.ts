/** A kernel for one test, fake or real (real-kernel.ts), and its environment. */
import { FakeKernel, type FakeKernelOptions } from "../fakes/fake-kernel.ts";
import type { InterfaceAddress, Kernel } from "../../src/netlink/kernel.js";
import { familyOf } from "../../src/base/ip.js";
import { addressBytes } from "../../src/base/ip-ranges.js";
import { OF_THE_FAKE, type KernelFacts } from "./kernel-facts.ts";

export interface KernelWorld {
  readonly kernel: Kernel;
  readonly facts: KernelFacts;
  /** Another socket in the same namespace, closed with the world. */
  other(): Promise<Kernel>;
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
        const changed = loopbackAddress(cidr);
        const others = addresses.filter(({ address }) => !Buffer.from(address).equals(changed.address));
        addresses = action === "add" ? [...others, changed] : others;
        kernel.setAddresses(addresses);
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

function loopbackAddress(cidr: string): InterfaceAddress {
  const [address, length] = cidr.split("/");
  return {
    family: familyOf(address),
    address: addressBytes(address),
    prefixLength: Number(length),
    interfaceIndex: 1,
    interfaceName: "lo",
  };
}
