/** What the codecs of this folder need of the kernel: `NftKernel` has it. */
export interface NetlinkExchange {
  /** The messages of the answer to one request; see `NftKernel.exchange`. */
  exchange(protocol: number, request: Uint8Array): Promise<Uint8Array>;
}
