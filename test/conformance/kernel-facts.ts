/**
 * Where versions of Linux differ in what the suite asks. The suite says what the newest does; a case that older ones do not
 * pass says with `before` what those do instead. Seen with `npm run test:kernels`; Linux's stable releases bring some of
 * these to older versions, so the version is where a fact was first seen among the ones that are tested, or mainline's.
 */

const SINCE = {
  /** `destroy` messages; before, they are refused with EINVAL whatever they name. */
  destroy: [6, 3],
  /** NFT_TABLE_F_OWNER. */
  owner: [5, 12],
  /** NFT_TABLE_F_PERSIST. */
  persist: [6, 9],
  /** An add of a set that is there with another size changes it; before, it passes and changes nothing. */
  sizeUpdate: [6, 5],
  /** An add of an element that is there with another timeout renews it; before, it passes and changes nothing. */
  elementTimeoutUpdate: [6, 12],
} as const satisfies Record<string, readonly [number, number]>;

export type Fact = keyof typeof SINCE;
export type KernelFacts = Readonly<Record<Fact, boolean>>;

/** Whether a release as `uname -r` says it ("6.1.0-50-cloud-amd64") is that version or a later one. */
export function isAtLeast(release: string, [major, minor]: readonly [number, number]): boolean {
  const [isMajor = 0, isMinor = 0] = release.split(/[.+-]/).map(Number);
  return isMajor > major || (isMajor === major && isMinor >= minor);
}

export function factsOf(release: string): KernelFacts {
  const facts = Object.entries(SINCE).map(([fact, version]) => [fact, isAtLeast(release, version)]);
  return Object.fromEntries(facts) as KernelFacts;
}

/** What the suite says of the newest kernel, and the fake of all. */
export const NEWEST: KernelFacts = factsOf("999.0");
