/**
 * Where versions of Linux differ in what the suite asks. The suite says what 6.18 does; a case that older ones do not
 * pass says with `before` what those do instead, and with `since` what newer ones do. Seen with `npm run test:kernels`; Linux's stable releases bring some of
 * these to older versions, so the version is where a fact was first seen among the ones that are tested, or mainline's.
 */

const SINCE = {
  /** `destroy` messages; before, they are refused with EINVAL whatever they name. */
  destroy: [6, 3],
  /** NFT_TABLE_F_OWNER. Before, each flag that is not known is EINVAL, later EOPNOTSUPP. */
  owner: [5, 12],
  /** An element for all that is in no other (NFT_SET_ELEM_CATCHALL); before, EINVAL. */
  catchAll: [5, 13],
  /** The expression `last`. */
  last: [5, 14],
  /** An element that has more time left than its timeout is refused; before, it passes. */
  moreLeftRefused: [6, 1],
  /** A refusal names the element; before, the operation alone. */
  namesElements: [6, 1],
  /** A loop of jumps is looked for where packets come from, and is EMLINK; before, at each jump, and ELOOP. */
  loopsFromHooks: [6, 1],
  /** An add of a set that is there with another key, flags or data is refused; before, that passes and changes nothing, as a timeout does. */
  otherSetRefused: [6, 1],
  /** NFT_TABLE_F_PERSIST. */
  persist: [6, 9],
  /** An add of a set that is there with another size changes it; before, it passes and changes nothing. */
  sizeUpdate: [6, 5],
  /** An add of a base chain that is there, at another hook or priority, is EOPNOTSUPP; before, EEXIST as for another type. */
  otherHookUnsupported: [6, 4],
  /** The size of a set of ranges counts ranges; before, both ends of each. */
  sizeCountsRanges: [6, 12],
  /** Expressions that read registers into which nothing was loaded are refused (ENODATA); before, they pass. */
  unloadedRegisters: [6, 12],
  /** In a deletion of ranges an end must follow its start (nft_set_rbtree); before, any order will do. */
  endsFollowStarts: [6, 18],
  /** Trace messages name the packet's conntrack entry. */
  traceConntrack: [6, 16],
  /** What random batches come to: the fake is a model of this one. */
  asTheFake: [6, 18],
  /** Flags of tables and sets that are not known are EINVAL, by the attribute's policy; before, EOPNOTSUPP. */
  flagsByPolicy: [7, 2],
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

/** Of the kernel that the fake is a model of. */
export const OF_THE_FAKE: KernelFacts = factsOf("6.18");
