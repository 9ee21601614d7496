import { release } from "node:os";

/** nft_reject may be used in prerouting since this release. */
const REJECT_IN_PREROUTING = [5, 9] as const;

/**
 * Whether the kernel knows `reject` in prerouting. Told from its release: a rule that it does not know would make it refuse
 * the whole table. An unreadable release counts as a recent one.
 */
export function rejectsInPrerouting(kernelRelease = release()): boolean {
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(kernelRelease) ?? [];
  if (major === undefined || minor === undefined) return true;
  const [wantMajor, wantMinor] = REJECT_IN_PREROUTING;
  return Number(major) > wantMajor || (Number(major) === wantMajor && Number(minor) >= wantMinor);
}
