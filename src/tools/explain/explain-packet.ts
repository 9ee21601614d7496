/**
 * Computes what the kernel's rules do with the first packet of a connection, without sending one. It evaluates every
 * base chain of every table on the packet's path, in order. If rules choose an endpoint at random, it follows every
 * number that may be drawn.
 */
import { TimeSlice } from "../../base/time-slice.js";
import { AddressType } from "../../nft/kernel/constants.js";
import type { TableRef } from "../../nft/kernel/kernel.js";
import { HANDOVER_TABLE, TABLE_NAME } from "../../ruleset/names.js";
import { branchOf, distinct, isPlain, type Step } from "./machine/branch.js";
import { Journey, type JourneyEnd, type Origin } from "./machine/journey.js";
import type { World } from "./machine/machine-world.js";
import { PacketState } from "./machine/packet-state.js";
import { endText } from "./machine/hooks.js";
import type { PacketSpec } from "./machine/packet-spec.js";
import { worldOf } from "./world/node-world.js";
import { type RoutedKernel, Routing } from "./world/routing.js";

/** A destination to which the packet is translated. */
export interface ExplainedEndpoint {
  /** Canonical. */
  readonly address: string;
  readonly port: number;
  /** Share of new connections, 0 to 1. */
  readonly share: number;
  /** Whether the endpoint sees an address of this node instead of the sender's. */
  readonly masqueraded: boolean;
  /** The rule of another program because of which it is not masqueraded, although our rules ask for that. */
  readonly unmasqueradedBy?: string;
  /** End of the packets to this endpoint. Absent if they arrive. */
  readonly verdict?: "dropped" | "rejected";
  /** The rule that drops or rejects them. */
  readonly by?: string;
  /** End of the endpoint's reply. Absent if the sender receives it. */
  readonly reply?: ExplainedReply;
}

/** A reply that the sender does not receive, or perhaps not. */
export interface ExplainedReply {
  /** lost: the sender does not recognize it. */
  readonly verdict: "dropped" | "rejected" | "lost" | "unknown";
  /** The rule that drops it, or on which its fate depends: "inet a f: tcp sport 80 drop (handle 3)". */
  readonly by: string;
}

/**
 * - endpoint: translated.
 * - untouched: goes where it was addressed, to this node or beyond.
 * - redirected: to a port of this node.
 * - rejected: with an error to the sender.
 * - dropped: silently.
 * - mixed: depends on the endpoint.
 * - unknown: depends on something that cannot be evaluated from outside.
 */
export type ExplainedVerdict = "endpoint" | "untouched" | "redirected" | "rejected" | "dropped" | "mixed" | "unknown";

export interface Explanation {
  readonly verdict: ExplainedVerdict;
  /**
   * If the verdict is unknown: the verdict if no rule that cannot be evaluated matches. `endpoints`, `draws` and
   * `steps` then belong to it.
   */
  readonly otherwise?: ExplainedVerdict;
  readonly endpoints: readonly ExplainedEndpoint[];
  /** If no reply reaches the sender for sure, whatever the endpoint: the end of the first one. */
  readonly reply?: ExplainedReply;
  /**
   * How many numbers the draw chooses from. 0 if none is drawn, because there is no choice or the client alone decides
   * (a hash, affinity).
   */
  readonly draws: number;
  /** Steps for the first number. */
  readonly steps: readonly Step[];
  /**
   * Rules that could not be evaluated, if the verdict depends on them: "inet a f: quota over 25 bytes drop (handle 3)".
   */
  readonly unknown: readonly string[];
  /** A service's limit is assumed not to be exceeded. Absent if no limit applies. */
  readonly limited?: boolean;
  /** This program has no table in the family. Absent if it has one. */
  readonly noTable?: boolean;
  /** The incoming interface, if it was not given and the explanation depends on it. */
  readonly assumedInterface?: string;
}

/**
 * Maximum number of draws to follow. There may be more numbers or slots (docs/balance.md), but their endpoints are
 * alike.
 */
export const MOST_DRAWS = 4096;

/** Names of this program's tables. */
export const OURS: readonly string[] = [TABLE_NAME, HANDOVER_TABLE];

const isOurs = ({ table }: TableRef): boolean => OURS.includes(table);

/** The result of one draw. */
interface Drawn {
  /** The end if nothing that cannot be evaluated matches. */
  readonly plain: JourneyEnd;
  readonly reply: ExplainedReply | undefined;
}

/**
 * Explains a packet whose incoming interface may not have been given: it comes by the interface of the route to its
 * source. Rejects with KernelError if the ruleset cannot be read.
 */
export async function explainArriving(
  kernel: RoutedKernel,
  spec: PacketSpec,
  routing = new Routing(kernel),
): Promise<Explanation> {
  const asGiven = await explainPacket(kernel, spec, routing);
  if (spec.inInterface !== "" || (await routing.hasAddress(spec.source))) return asGiven;
  const route = await routing.route(spec.source);
  if (typeof route === "string") return asGiven;
  const assumedInterface = route.interfaceName;
  const explanation = await explainPacket(kernel, { ...spec, inInterface: assumedInterface }, routing);
  const fates = [explanation, asGiven].map(({ verdict, endpoints, reply, unknown }) =>
    JSON.stringify([verdict, endpoints, reply, unknown]),
  );
  return { ...explanation, ...(fates[0] !== fates[1] && { assumedInterface }) };
}

/** Rejects with KernelError if the ruleset cannot be read. */
export async function explainPacket(
  kernel: RoutedKernel,
  spec: PacketSpec,
  routing = new Routing(kernel),
): Promise<Explanation> {
  const node = worldOf(kernel, spec.family, routing, isOurs);
  const isHere = spec.inInterface === "" && (await routing.addressType(spec.source)) === AddressType.local;
  // The interface of a packet from elsewhere may not have been given.
  const origin: Origin = { isHere, in: spec.inInterface === "" ? undefined : spec.inInterface };
  const unknown = new Set<string>();
  let draws = 0;
  const onDraw = (count: number): void => void (draws = Math.max(draws, count));
  const all: Drawn[] = [];
  const replies = new Map<string, Promise<ExplainedReply | undefined>>();
  const slice = new TimeSlice();
  for (let draw = 0; draw === 0 || draw < Math.min(draws, MOST_DRAWS); draw++) {
    const journey = new Journey({ ...node, draw, onDraw });
    const drawn = settled(await journey.follow(branchOf(new PacketState(spec)), origin));
    for (const what of drawn.unknown) unknown.add(what);
    const key = drawn.same.map(({ branch, out, isHere: here }) => `${branch.state.key} ${out} ${here}`).join();
    const reply = replies.get(key) ?? replyOf(spec, drawn.same, node);
    replies.set(key, reply);
    all.push({ plain: drawn.plain, reply: await reply });
    if (slice.spent) await slice.yield();
  }
  const { verdict, ...known } = summary(all, isHere);
  const noTable = !(await kernel.tables(spec.family)).some(isOurs);
  return {
    ...(unknown.size === 0 ? { verdict } : { verdict: "unknown", otherwise: verdict }),
    ...known,
    draws,
    // Rules of one chain often look up the same key.
    steps: distinct(all[0]?.plain.branch.steps ?? []),
    unknown: [...unknown],
    ...(all.some(({ plain }) => plain.branch.limited) && { limited: true }),
    ...(noTable && { noTable }),
  };
}

function verdictOf({ end, branch: { state } }: JourneyEnd): Exclude<ExplainedVerdict, "mixed"> {
  if (end !== "arrived") return end;
  return state.redirected ? "redirected" : state.translated ? "endpoint" : "untouched";
}

/**
 * Follows the reply to a packet that arrived. Returns undefined if the sender receives it.
 * @param arrived all branches in which the packet arrived there.
 */
async function replyOf(
  { source, destination, destinationPort }: PacketSpec,
  arrived: readonly JourneyEnd[],
  world: World,
): Promise<ExplainedReply | undefined> {
  const ends: (Pick<JourneyEnd, "branch" | "by"> & { readonly verdict: ExplainedReply["verdict"] | "answered" })[] = [];
  for (const { branch, isHere, out } of arrived) {
    const { masqueraded, source: seen } = branch.state;
    if (!isHere && seen !== undefined && seen === branch.state.destination) return { verdict: "lost", by: TO_ITSELF };
    const isOther = masqueraded && seen !== undefined && seen !== source;
    if (isOther && !isHere && (await world.routes.addressType(seen)) !== AddressType.local)
      return { verdict: "unknown", by: `the route of replies to ${seen}, which is not an address of this node` };
    const origin = { isHere, in: isHere ? undefined : out };
    const answer = { ...branch, state: branch.state.answer("reply") };
    for (const { end, ...rest } of await new Journey(world).follow(answer, origin)) {
      const isRight = rest.branch.state.goes({ address: destination, port: destinationPort }, source);
      const arrival = isRight === undefined ? "unknown" : isRight ? "answered" : "lost";
      ends.push({ ...rest, verdict: end === "arrived" ? arrival : end });
    }
  }
  const [first] = ends;
  if (first === undefined) return undefined;
  const { verdict, by } = first;
  if (ends.some((each) => each.verdict !== verdict) || verdict === "unknown")
    return { verdict: "unknown", by: guessesOf(ends)[0] };
  return verdict === "answered" ? undefined : { verdict, by: by === undefined ? NOT_TRANSLATED : endText(by) };
}

const TO_ITSELF = "the sender is the endpoint itself, and sees its own address as the source";
/** A reply whose addresses do not belong to the connection. */
const NOT_TRANSLATED = "it does not come from the address that the packet was sent to";

/**
 * Ends that look the same to a reader count as one. If several remain, the guesses that led to them are reported as
 * unknown.
 */
function settled(ends: readonly JourneyEnd[]): {
  readonly plain: JourneyEnd;
  readonly unknown: readonly string[];
  /** Ends with the same arrival as the plain one. Empty if the packet does not arrive. */
  readonly same: readonly JourneyEnd[];
} {
  const plain = ends.find((each) => isPlain(each.branch) && each.end !== "unknown") ?? ends[0];
  const isSure = ends.every((each) => keyOf(each) === keyOf(plain)) && plain.end !== "unknown";
  const same = ends.filter((each) => each.end === "arrived" && keyOf(each) === keyOf(plain));
  return { plain, unknown: isSure ? [] : decidingGuesses(ends), same };
}

/** The assumptions that alone change the end; if there are none, those in which the ends differ. */
function decidingGuesses(ends: readonly JourneyEnd[]): string[] {
  const guesses = new Set(ends.flatMap(({ branch }) => [...branch.guesses.keys()]));
  const deciding = [...guesses].filter((what) => decides(what, ends));
  return deciding.length > 0 ? textsOf(deciding) : guessesOf(ends);
}

/** Whether another value of this guess leads to other ends, given the same other guesses. */
function decides(what: string, ends: readonly JourneyEnd[]): boolean {
  const byValue = Map.groupBy(ends, ({ branch }) => branch.guesses.get(what));
  byValue.delete(undefined);
  const results = Array.from(byValue.values(), (some) => {
    const texts = some.map((end) => {
      const others = [...end.branch.guesses].filter(([other]) => other !== what).map((other) => other.join(": "));
      return JSON.stringify([others.toSorted(), keyOf(end)]);
    });
    return [...new Set(texts)].sort().join("\n");
  });
  return results.length === 1 || new Set(results).size > 1;
}

const UNSEEN = "facts that are not visible here";

/** The assumptions in which branches differ. */
function guessesOf(ends: readonly Pick<JourneyEnd, "branch">[]): string[] {
  const guesses = ends.flatMap(({ branch }) => [...branch.guesses.keys()]);
  const differ = [...new Set(guesses)].filter((what) => {
    return new Set(ends.map(({ branch }) => branch.guesses.get(what))).size > 1;
  });
  const reasons = textsOf(differ.length > 0 ? differ : guesses);
  return reasons.length > 0 ? reasons : [UNSEEN];
}

/** A rule that is met again, on another path, has a mark in its name. */
function textsOf(guesses: readonly string[]): string[] {
  return [...new Set(guesses.map((what) => what.replace(/'+$/, "")))];
}

function keyOf(end: JourneyEnd): string {
  const verdict = verdictOf(end);
  const { state } = end.branch;
  if (verdict === "redirected") return `${verdict} ${state.destinationPort}`;
  return verdict === "endpoint"
    ? `${verdict} ${state.destination} ${state.destinationPort} ${state.masqueraded}`
    : verdict;
}

/** @param isOfNode the node sends the packet, so the answer comes back to it without masquerading. */
function summary(all: readonly Drawn[], isOfNode: boolean): Pick<Explanation, "verdict" | "endpoints" | "reply"> {
  const verdicts = new Set(all.map(({ plain }) => verdictOf(plain)));
  const [only = "untouched"] = verdicts;
  const verdict = verdicts.size > 1 ? "mixed" : only;
  const counts = new Map<string, ExplainedEndpoint>();
  for (const { plain, reply } of all) {
    const { isHere, branch, by, end } = plain;
    const { destination: address, destinationPort: port, masqueraded, translated, markClearedBy } = branch.state;
    const arrives = verdictOf(plain) === "endpoint";
    // If all packets end alike, the verdict says it.
    if (!(arrives || (verdict === "mixed" && translated)) || address === undefined || port === undefined) continue;
    const isLost = arrives && !isHere && !isOfNode && !masqueraded && markClearedBy !== undefined;
    const details = {
      ...(isLost && { unmasqueradedBy: endText(markClearedBy) }),
      ...((end === "dropped" || end === "rejected") && { verdict: end }),
      ...(!arrives && by && { by: endText(by) }),
      ...(reply && { reply }),
    };
    const key = JSON.stringify([address, port, masqueraded, details]);
    const share = (counts.get(key)?.share ?? 0) + 1 / all.length;
    counts.set(key, { address, port, share, masqueraded, ...details });
  }
  const isLost = all.every(({ reply }) => reply !== undefined);
  return { verdict, endpoints: [...counts.values()], ...(isLost && { reply: all[0]?.reply }) };
}
