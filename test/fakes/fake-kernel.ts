/** The library's fake of nf_tables, with the namespace's interfaces. */
import {
  FakeKernel as NftFake,
  type FakeKernelOptions,
  type FakeNamespace,
} from "../../src/nft/testing/fake-kernel.js";
import { FakeInterfaces } from "./fake-interfaces.ts";

export type { FakeKernelOptions, InjectedFault } from "../../src/nft/testing/fake-kernel.js";

export class FakeKernel extends NftFake {
  constructor(
    options: FakeKernelOptions = {},
    shared?: FakeNamespace,
    portId?: number,
    readonly interfaces = new FakeInterfaces(),
  ) {
    super(options, shared, portId);
  }

  override asOther(portId?: number, name = "other"): FakeKernel {
    const process = { pid: this.process.pid + 1, name };
    return new FakeKernel({ process }, this.shared, portId, this.interfaces.asOther());
  }

  override async close(): Promise<void> {
    await super.close();
    this.interfaces.close();
  }
}
