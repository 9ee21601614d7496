/**
 * Differences between versions of Linux in behaviour that the suite tests. The suite expects the behaviour of 6.18. A test that older
 * kernels do not pass states their behaviour with `before`, and that of newer ones with `since`. All were seen with `npm run test:kernels`.
 * Stable releases backport some of these, so the version is the first tested one with the behaviour, or mainline's.
 */

const SINCE = {
  /** `destroy` messages; before, they are rejected with EINVAL for any object. */
  destroy: [6, 3],
  /** NFT_TABLE_F_OWNER. Before, an unknown flag gives EINVAL, later EOPNOTSUPP. */
  owner: [5, 12],
  /** An element that packets add to a set with counters counts them; before, it does not. */
  countsAdded: [5, 12],
  /** An element that matches all keys without an element (NFT_SET_ELEM_CATCHALL); before, EINVAL. */
  catchAll: [5, 13],
  /** The expression `last`. */
  last: [5, 14],
  /** An element with more remaining time than its timeout is rejected; before, it is accepted. */
  moreLeftRefused: [6, 1],
  /** An error names the element; before, only the operation. */
  namesElements: [6, 1],
  /** Loops of jumps are searched from the hooks, and give EMLINK; before, at each jump, and give ELOOP. */
  loopsFromHooks: [6, 1],
  /**
   * Adding an existing set with another key, flags or data is rejected; before, it succeeds and changes nothing, as with another timeout.
   */
  otherSetRefused: [6, 1],
  /** NFT_TABLE_F_PERSIST. */
  persist: [6, 9],
  /** Adding an existing set with another size changes it; before, it succeeds and changes nothing. */
  sizeUpdate: [6, 5],
  /** Adding an existing base chain with another hook or priority gives EOPNOTSUPP; before, EEXIST as for another type. */
  otherHookUnsupported: [6, 4],
  /** The size of a set of ranges counts ranges; before, both ends of each. */
  sizeCountsRanges: [6, 12],
  /** Expressions that read unloaded registers are rejected (ENODATA); before, they are accepted. */
  unloadedRegisters: [6, 12],
  /** In a deletion of ranges, an end must follow its start (nft_set_rbtree); before, any order works. */
  endsFollowStarts: [6, 18],
  /** Trace messages name the packet's conntrack entry. */
  traceConntrack: [6, 16],
  /** Results of random batches: the fake models this version. */
  asTheFake: [6, 18],
  /** Unknown flags of tables and sets give EINVAL, because of the attribute's policy; before, EOPNOTSUPP. */
  flagsByPolicy: [7, 2],
  /** Adding an existing element with another timeout renews it; before, it succeeds and changes nothing. */
  elementTimeoutUpdate: [6, 12],
} as const satisfies Record<string, readonly [number, number]>;

export type Fact = keyof typeof SINCE;
export type KernelFacts = Readonly<Record<Fact, boolean>>;

/** Whether a release in the form of `uname -r` ("6.1.0-50-cloud-amd64") is that version or a later one. */
export function isAtLeast(release: string, [major, minor]: readonly [number, number]): boolean {
  const [isMajor = 0, isMinor = 0] = release.split(/[.+-]/).map(Number);
  return isMajor > major || (isMajor === major && isMinor >= minor);
}

export function factsOf(release: string): KernelFacts {
  const facts = Object.entries(SINCE).map(([fact, version]) => [fact, isAtLeast(release, version)]);
  return Object.fromEntries(facts) as KernelFacts;
}

/** Facts of the kernel that the fake models. */
export const OF_THE_FAKE: KernelFacts = factsOf("6.18");
