/**
 * `nft-proxier/testing`: a kernel in memory, for the tests of programs that use `nft-proxier/table`.
 *
 * @module
 */
export { FakeKernel, type FakeKernelOptions, type InjectedFault } from "./fake-kernel.js";
