/**
 * What the rules in the kernel do with the first packet of a connection, without sending one: through every base chain of every
 * table on its way, in their order. Where rules draw an endpoint, each number that may be drawn is followed.
 */
import { TimeSlice } from "../base/time-slice.js";
import { formatAddress } from "../base/ip.js";
import { AddressType, Hook } from "../kernel/constants.js";
import type { Kernel } from "../kernel/types.js";
import { Machine, type Step, type World } from "./machine.js";
import { addressTypeOf, initialState, type PacketSpec, type PacketState } from "./packet.js";
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
 * endpoint: rewritten; untouched: it goes where it was addressed, to this node or beyond; rejected: with an error to the sender;
 * dropped: without a word; mixed: it depends on which endpoint is drawn.
 */
export type ExplainedVerdict = "endpoint" | "untouched" | "rejected" | "dropped" | "mixed";

export interface Explanation {
  readonly verdict: ExplainedVerdict;
  readonly endpoints: readonly ExplainedEndpoint[];
  /** How many numbers one is drawn of; 0: none is drawn, as nothing is to be chosen or the client alone decides (a hash, what is remembered of it). */
  readonly draws: number;
  /** Of the first number that may be drawn. */
  readonly steps: readonly Step[];
  /** Rules that could not be judged from outside, and were taken not to match. */
  readonly unknown: readonly string[];
}

/** Numbers that are followed; a list may be longer, its endpoints are alike. Of slots (docs/balance.md) there may be more, too. */
export const MOST_DRAWS = 4096;

type Outcome =
  { readonly end: "untouched" | "rejected" | "dropped" } | { readonly end: "endpoint"; readonly state: PacketState };

/** Rejects with KernelError when the ruleset cannot be read. */
export async function explainPacket(kernel: Kernel, spec: PacketSpec): Promise<Explanation> {
  const localAddresses = await addressesOf(kernel);
  const ruleset = new Ruleset(kernel, spec.family);
  const steps: Step[] = [];
  const unknown = new Set<string>();
  let draws = 0;
  const outcomes: Outcome[] = [];
  const slice = new TimeSlice();
  for (let draw = 0; draw === 0 || draw < Math.min(draws, MOST_DRAWS); draw++) {
    const world: World = {
      ruleset,
      localAddresses,
      draw,
      onDraw: (count) => (draws = Math.max(draws, count)),
      onStep: (step) => (draw === 0 ? steps.push(step) : undefined),
      onUnknown: (what) => unknown.add(what),
    };
    outcomes.push(await walk(spec, world));
    if (slice.spent) await slice.yield();
  }
  return { ...summary(outcomes), draws, steps, unknown: [...unknown] };
}

async function addressesOf(kernel: Kernel): Promise<ReadonlySet<string>> {
  return new Set((await kernel.addresses()).map(({ address }) => formatAddress(address)));
}

/** ip_rcv → prerouting → routing → input, or forward and postrouting; what this node sends: output → routing → postrouting. */
async function walk(spec: PacketSpec, world: World): Promise<Outcome> {
  const state = initialState(spec);
  const machine = new Machine(spec, state, world);
  const isLocal = (address: string): boolean => addressTypeOf(address, world.localAddresses) === AddressType.local;
  const fromHere = isLocal(spec.source) && spec.inInterface === "";
  const first = fromHere ? Hook.output : Hook.prerouting;
  const hooks = (): readonly number[] => {
    if (fromHere)
      return isLocal(state.destination) ? [Hook.postrouting, Hook.prerouting, Hook.input] : [Hook.postrouting];
    return isLocal(state.destination) ? [Hook.input] : [Hook.forward, Hook.postrouting];
  };
  const early = await runHook(machine, world, first, state);
  if (early !== undefined) return early;
  for (const hook of hooks()) {
    if (fromHere && hook === Hook.prerouting) state.inInterface = "lo";
    const end = await runHook(machine, world, hook, state);
    if (end !== undefined) return end;
  }
  return state.translated ? { end: "endpoint", state } : { end: "untouched" };
}

async function runHook(machine: Machine, world: World, hook: number, state: PacketState): Promise<Outcome | undefined> {
  let bound = false;
  for (const chain of await world.ruleset.at(hook)) {
    // The first NAT chain that rewrites binds the connection; those behind it, and at its second DNAT hook, are passed by (nf_nat_inet_fn).
    const nat = chain.base.type === "nat";
    if (nat && (bound || (state.translated && hook !== Hook.postrouting && hook !== Hook.input))) continue;
    const before = state.translated || state.masqueraded;
    const verdict = await machine.run(chain);
    if (nat && !before && (state.translated || state.masqueraded)) bound = true;
    if (verdict === "drop") return { end: "dropped" };
    if (verdict === "reject") return { end: "rejected" };
  }
  return undefined;
}

function summary(outcomes: readonly Outcome[]): Pick<Explanation, "verdict" | "endpoints"> {
  const counts = new Map<string, ExplainedEndpoint>();
  for (const outcome of outcomes) {
    if (outcome.end !== "endpoint") continue;
    const { destination: address, destinationPort: port, masqueraded } = outcome.state;
    const key = `${address} ${port} ${masqueraded}`;
    const share = (counts.get(key)?.share ?? 0) + 1 / outcomes.length;
    counts.set(key, { address, port, share, masqueraded });
  }
  const ends = new Set(outcomes.map(({ end }) => end));
  const [only = "untouched"] = ends;
  return { verdict: ends.size > 1 ? "mixed" : only, endpoints: [...counts.values()] };
}
