/**
 * What the rules in the kernel do with the first packet of a connection, without sending one: through every base chain of every
 * table on its way, in their order. Where rules draw an endpoint, each number that may be drawn is followed.
 */
import { TimeSlice } from "../../base/time-slice.js";
import { AddressType, Hook } from "../../netlink/constants.js";
import type { TableRef } from "../../netlink/kernel.js";
import { HANDOVER_TABLE, TABLE_NAME } from "../../ruleset/names.js";
import { type Branch, isPlain, type Step } from "./branch.js";
import { runHook } from "./hooks.js";
import type { Final, FinalVerdict } from "./machine.js";
import type { World } from "./world.js";
import { type PacketSpec, PacketState } from "./packet.js";
import { type RoutedKernel, Routing } from "./routing.js";
import { Ruleset } from "./ruleset.js";

/** Where it goes, rewritten. */
export interface ExplainedEndpoint {
  /** Canonical. */
  readonly address: string;
  readonly port: number;
  /** Of new connections, 0 to 1. */
  readonly share: number;
  /** The endpoint sees an address of this node instead of the sender's. */
  readonly masqueraded: boolean;
}

/**
 * endpoint: rewritten; untouched: it goes where it was addressed, to this node or beyond; redirected: to a port of this node; rejected:
 * with an error to the sender; dropped: silently; mixed: it depends on which endpoint is drawn; unknown: it depends on something that cannot
 * be known from outside.
 */
export type ExplainedVerdict = "endpoint" | "untouched" | "redirected" | "rejected" | "dropped" | "mixed" | "unknown";

export interface Explanation {
  readonly verdict: ExplainedVerdict;
  /** Of an unknown one: what it is if no rule matches that cannot be judged. `endpoints`, `draws` and `steps` are then of that. */
  readonly otherwise?: ExplainedVerdict;
  readonly endpoints: readonly ExplainedEndpoint[];
  /** How many numbers one is drawn of; 0: none is drawn, as nothing is to be chosen or the client alone decides (a hash, what is remembered of it). */
  readonly draws: number;
  /** Of the first number that may be drawn. */
  readonly steps: readonly Step[];
  /** What could not be judged, where the verdict depends on it: "inet a f: quota over 25 bytes drop (handle 3)". */
  readonly unknown: readonly string[];
  /** A limit of a service is taken to be not exceeded. Absent: none is met. */
  readonly limited?: boolean;
  /** There is no table of this program's in the family. Absent: there is. */
  readonly noTable?: boolean;
}

/** Numbers that are followed; a list may be longer, its endpoints are alike. Of slots (docs/balance.md) there may be more, too. */
export const MOST_DRAWS = 4096;

/** Tables whose rules are this program's. */
export const OURS: readonly string[] = [TABLE_NAME, HANDOVER_TABLE];

export const isOurs = ({ table }: TableRef): boolean => OURS.includes(table);

type End = Exclude<ExplainedVerdict, "mixed">;

/** A way to its end. */
interface Outcome {
  readonly end: End;
  readonly branch: Branch;
}

/** Of one draw. */
interface Drawn {
  /** Of the way on which nothing matches that cannot be judged. */
  readonly plain: Outcome;
  readonly unknown: readonly string[];
}

/** Rejects with KernelError when the ruleset cannot be read. */
export async function explainPacket(kernel: RoutedKernel, spec: PacketSpec): Promise<Explanation> {
  const routing = new Routing(kernel);
  const ruleset = new Ruleset(kernel, spec.family);
  const unknown = new Set<string>();
  let draws = 0;
  const outcomes: Outcome[] = [];
  const slice = new TimeSlice();
  for (let draw = 0; draw === 0 || draw < Math.min(draws, MOST_DRAWS); draw++) {
    const world: World = {
      ruleset,
      isOurs,
      addressType: (address) => routing.addressType(address),
      interfaceTo: (address) => routing.interfaceTo(spec.family, address),
      draw,
      onDraw: (count) => (draws = Math.max(draws, count)),
      traced: draw === 0,
    };
    const drawn = settled(await walk(spec, world, routing));
    outcomes.push(drawn.plain);
    for (const what of drawn.unknown) unknown.add(what);
    if (slice.spent) await slice.yield();
  }
  const { verdict, endpoints } = summary(outcomes);
  const noTable = !(await kernel.tables(spec.family)).some(isOurs);
  return {
    ...(unknown.size === 0 ? { verdict } : { verdict: "unknown", otherwise: verdict }),
    endpoints,
    draws,
    steps: distinct(outcomes[0]?.branch.steps ?? []),
    unknown: [...unknown],
    ...(outcomes.some(({ branch }) => branch.limited) && { limited: true }),
    ...(noTable && { noTable }),
  };
}

/** ip_rcv → prerouting → routing → input, or forward and postrouting; what this node sends: output → routing → postrouting. */
async function walk(spec: PacketSpec, world: World, routing: Routing): Promise<Outcome[]> {
  const state = new PacketState(spec);
  const isHere = (await world.addressType(spec.source)) === AddressType.local && spec.inInterface === "";
  // Of a packet from elsewhere it may not be said.
  state.inInterface = isHere ? "" : spec.inInterface === "" ? undefined : spec.inInterface;
  state.outInterface = isHere ? await routing.interfaceTo(spec.family, spec.destination) : "";
  const first = isHere ? Hook.output : Hook.prerouting;
  const begin: Branch = { state, steps: [], guesses: new Map(), limited: false };
  const { passed, finals } = await runHook(world, first, [begin]);
  const outcomes = finals.map(outcomeOf);
  for (const branch of passed) outcomes.push(...(await goOn(branch, isHere, world, routing)));
  return outcomes;
}

/** Behind the routing. */
async function goOn(branch: Branch, fromHere: boolean, world: World, routing: Routing): Promise<Outcome[]> {
  const { destination, redirected, family } = branch.state;
  const isLocal =
    redirected || (destination !== undefined && (await world.addressType(destination)) === AddressType.local);
  const out = isLocal ? (fromHere ? "lo" : "") : destination && (await routing.interfaceTo(family, destination));
  const hooks = fromHere
    ? isLocal
      ? [Hook.postrouting, Hook.prerouting, Hook.input]
      : [Hook.postrouting]
    : isLocal
      ? [Hook.input]
      : [Hook.forward, Hook.postrouting];
  const outcomes: Outcome[] = [];
  let here: readonly Branch[] = [branch];
  for (const hook of hooks) {
    const isOut = hook === Hook.forward || hook === Hook.postrouting;
    here = here.map((each) => {
      const state = each.state.clone();
      state.outInterface = isOut ? out : "";
      if (fromHere && hook !== Hook.postrouting) state.inInterface = "lo";
      return { ...each, state };
    });
    const ends = await runHook(world, hook, here);
    outcomes.push(...ends.finals.map(outcomeOf));
    here = ends.passed;
  }
  const arrived = redirected ? "redirected" : branch.state.translated ? "endpoint" : "untouched";
  return [...outcomes, ...here.map((each): Outcome => ({ end: arrived, branch: each }))];
}

const ENDS: Readonly<Record<FinalVerdict, End>> = { drop: "dropped", reject: "rejected", unknown: "unknown" };

function outcomeOf({ branch, verdict }: Final): Outcome {
  return { end: ENDS[verdict], branch };
}

/** What is the same for a reader is one outcome; what led to several of them is unknown. */
function settled(outcomes: readonly Outcome[]): Drawn {
  const plain = outcomes.find(({ branch, end }) => isPlain(branch) && end !== "unknown") ?? outcomes[0];
  const same = new Set(outcomes.map(keyOf));
  const isSure = same.size === 1 && plain.end !== "unknown";
  const guesses = outcomes.flatMap(({ branch }) => [...branch.guesses.keys()]);
  return { plain, unknown: isSure ? [] : [...new Set(guesses.map((what) => what.replace(/'+$/, "")))] };
}

function keyOf({ end, branch: { state } }: Outcome): string {
  if (end === "redirected") return `${end} ${state.destinationPort}`;
  return end === "endpoint" ? `${end} ${state.destination} ${state.destinationPort} ${state.masqueraded}` : end;
}

/** Rules of one chain look the same up again and again. */
function distinct(steps: readonly Step[]): Step[] {
  return [...new Map(steps.map((step) => [JSON.stringify(step), step])).values()];
}

function summary(outcomes: readonly Outcome[]): Pick<Explanation, "verdict" | "endpoints"> {
  const counts = new Map<string, ExplainedEndpoint>();
  for (const { end, branch } of outcomes) {
    const { destination: address, destinationPort: port, masqueraded } = branch.state;
    if (end !== "endpoint" || address === undefined || port === undefined) continue;
    const key = `${address} ${port} ${masqueraded}`;
    const share = (counts.get(key)?.share ?? 0) + 1 / outcomes.length;
    counts.set(key, { address, port, share, masqueraded });
  }
  const ends = new Set(outcomes.map(({ end }) => end));
  const [only = "untouched"] = ends;
  return { verdict: ends.size > 1 ? "mixed" : only, endpoints: [...counts.values()] };
}
