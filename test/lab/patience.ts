/**
 * How much longer than on hardware anything may take: 1, or the value of the environment variable NFT_PROXIER_SLOW,
 * which emulated machines set (test/kernels).
 */
const FACTOR = Number(process.env["NFT_PROXIER_SLOW"] ?? "1");
if (!(FACTOR >= 1)) throw new Error("NFT_PROXIER_SLOW must be a number of at least 1");

/** Scales a waiting time to this machine: `onHardware` is the maximum on hardware. */
export function patience(onHardware: number): number {
  return onHardware * FACTOR;
}
