/**
 * Computes what the kernel's rules do with the first packet of a connection, without sending one. It evaluates every
 * base chain of every table on the packet's path, in order. If rules choose an endpoint at random, it follows every
 * number that may be drawn.
 */
import { isDeepStrictEqual } from "node:util";
import { TimeSlice } from "../../base/time-slice.js";
import { AddressType, Hook } from "../../netlink/constants.js";
import type { TableRef } from "../../netlink/kernel.js";
import { HANDOVER_TABLE, TABLE_NAME } from "../../ruleset/names.js";
import { type Branch, isPlain, type Step } from "./branch.js";
import { runHook } from "./run-hook.js";
import type { Final, FinalVerdict } from "./run-chain.js";
import type { World } from "./world.js";
import { type PacketSpec, PacketState } from "./packet.js";
import { type RoutedKernel, Routing } from "./routing.js";
import { Ruleset } from "./ruleset.js";

/** A destination to which the packet is translated. */
export interface ExplainedEndpoint {
  /** Canonical. */
  readonly address: string;
  readonly port: number;
  /** Share of new connections, 0 to 1. */
  readonly share: number;
  /** Whether the endpoint sees an address of this node instead of the sender's. */
  readonly masqueraded: boolean;
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
}

/**
 * Maximum number of draws to follow. There may be more numbers or slots (docs/balance.md), but their endpoints are
 * alike.
 */
export const MOST_DRAWS = 4096;

/** Names of this program's tables. */
export const OURS: readonly string[] = [TABLE_NAME, HANDOVER_TABLE];

const isOurs = ({ table }: TableRef): boolean => OURS.includes(table);

type End = Exclude<ExplainedVerdict, "mixed">;

/** The end of one branch. */
interface Outcome {
  readonly end: End;
  readonly branch: Branch;
}

/** The result of one draw. */
interface Drawn {
  /** The outcome if nothing that cannot be evaluated matches. */
  readonly plain: Outcome;
  readonly unknown: readonly string[];
}

/** Rejects with KernelError if the ruleset cannot be read. */
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

/**
 * The path is ip_rcv → prerouting → routing → input, or forward and postrouting. For packets from this node: output →
 * routing → postrouting.
 */
async function walk(spec: PacketSpec, world: World, routing: Routing): Promise<Outcome[]> {
  const state = new PacketState(spec);
  const isHere = (await world.addressType(spec.source)) === AddressType.local && spec.inInterface === "";
  // The interface of a packet from elsewhere may not have been given.
  state.inInterface = isHere ? "" : spec.inInterface === "" ? undefined : spec.inInterface;
  state.outInterface = isHere ? await routing.interfaceTo(spec.family, spec.destination) : "";
  const first = isHere ? Hook.output : Hook.prerouting;
  const begin: Branch = { state, steps: [], guesses: new Map(), limited: false };
  const { passed, finals } = await runHook(world, first, [begin]);
  const outcomes = finals.map(outcomeOf);
  for (const branch of passed) outcomes.push(...(await goOn(branch, isHere, world, routing)));
  return outcomes;
}

/** Continues after routing. */
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

/**
 * Outcomes that look the same to a reader count as one. If several remain, the guesses that led to them are reported as
 * unknown.
 */
function settled(outcomes: readonly Outcome[]): Drawn {
  const plain = outcomes.find(({ branch, end }) => isPlain(branch) && end !== "unknown") ?? outcomes[0];
  const same = new Set(outcomes.map(keyOf));
  const isSure = same.size === 1 && plain.end !== "unknown";
  if (isSure) return { plain, unknown: [] };
  const guesses = [...new Set(outcomes.flatMap(({ branch }) => [...branch.guesses.keys()]))];
  const deciding = guesses.filter((what) => decides(what, outcomes));
  const unknown = deciding.length > 0 ? deciding : guesses;
  return { plain, unknown: [...new Set(unknown.map((what) => what.replace(/'+$/, "")))] };
}

/** Whether another value of this guess leads to other outcomes, given the same other guesses. */
function decides(what: string, outcomes: readonly Outcome[]): boolean {
  const byValue = new Map<string, Set<string>>();
  for (const outcome of outcomes) {
    const { guesses } = outcome.branch;
    const taken = guesses.get(what);
    if (taken === undefined) continue;
    const others = [...guesses].filter(([other]) => other !== what).map(([other, value]) => `${other}: ${value}`);
    const same = byValue.get(taken) ?? new Set();
    byValue.set(taken, same.add(`${others.toSorted().join("\n")} ${keyOf(outcome)}`));
  }
  const [first, ...rest] = byValue.values();
  return rest.length === 0 || first === undefined || rest.some((one) => !isDeepStrictEqual(one, first));
}

function keyOf({ end, branch: { state } }: Outcome): string {
  if (end === "redirected") return `${end} ${state.destinationPort}`;
  return end === "endpoint" ? `${end} ${state.destination} ${state.destinationPort} ${state.masqueraded}` : end;
}

/** Removes duplicates: rules of one chain often look up the same key. */
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
