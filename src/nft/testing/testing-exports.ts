/**
 * `@nft-proxier/nft/testing`: a kernel in memory, for the tests of programs that use `@nft-proxier/nft`.
 *
 * @module
 */
export { FakeKernel, type FakeKernelOptions, type InjectedFault } from "./fake-kernel.js";
