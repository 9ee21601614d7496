/**
 * How much longer than on hardware everything may take: 1, or what the environment variable NFT_PROXIER_SLOW says, as it
 * does in an emulated machine (test/kernels).
 */
const FACTOR = Number(process.env["NFT_PROXIER_SLOW"] ?? "1");
if (!(FACTOR >= 1)) throw new Error("NFT_PROXIER_SLOW must be a number of at least 1");

/** A time that tests wait for something, as long as this machine needs: `onHardware` is what hardware needs at most. */
export function patience(onHardware: number): number {
  return onHardware * FACTOR;
}
