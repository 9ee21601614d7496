import { release } from "node:os";

type Version = readonly [major: number, minor: number];

/** The oldest that the tests were run on: test/kernels/README.md. */
const OLDEST_TESTED: Version = [5, 10];

/** Whether a release as `uname -r` says it is this version or a later one. An unreadable release counts as a recent one. */
export function isKernelAtLeast(kernelRelease: string, [wantMajor, wantMinor]: Version): boolean {
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(kernelRelease) ?? [];
  if (major === undefined || minor === undefined) return true;
  return Number(major) > wantMajor || (Number(major) === wantMajor && Number(minor) >= wantMinor);
}

/** What to tell of a kernel that is older than any that was tried. Not refused: distributions bring much to old releases. */
export function oldKernelWarning(kernelRelease = release()): string | undefined {
  if (isKernelAtLeast(kernelRelease, OLDEST_TESTED)) return undefined;
  return (
    `Linux ${kernelRelease} is older than ${OLDEST_TESTED.join(".")}, the oldest that this program is tested on; ` +
    "where the kernel refuses the table, the log says which part: then this node needs a later kernel"
  );
}
