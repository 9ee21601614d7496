import { release } from "node:os";

type Version = readonly [major: number, minor: number];

/** The oldest version covered by the tests: test/kernels/README.md. */
const OLDEST_TESTED: Version = [5, 10];

/** Whether a release, as printed by `uname -r`, is this version or later. An unreadable release counts as recent. */
export function isKernelAtLeast(kernelRelease: string, [wantMajor, wantMinor]: Version): boolean {
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(kernelRelease) ?? [];
  if (major === undefined || minor === undefined) return true;
  return Number(major) > wantMajor || (Number(major) === wantMajor && Number(minor) >= wantMinor);
}

/** Warning about a kernel older than any tested one. It is not refused: distributions backport much to old releases. */
export function oldKernelWarning(kernelRelease = release()): string | undefined {
  if (isKernelAtLeast(kernelRelease, OLDEST_TESTED)) return undefined;
  return (
    `Linux ${kernelRelease} is older than ${OLDEST_TESTED.join(".")}, the oldest tested release. ` +
    "If the kernel refuses the table, the log names the refused part, and this node needs a later kernel"
  );
}
