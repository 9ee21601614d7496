/** All base chains of a hook, in the order in which packets meet them, with the kernel's own parts among them: the connection tracker and NAT. */
import { Hook } from "../../netlink/constants.js";
import { type Branch, guessed, merged } from "./branch.js";
import { type ChainEnds, type Final, HOOKS, runChain } from "./machine.js";
import { type World } from "./world.js";
import { type HookedChain, placeOf } from "./ruleset.js";

/** NF_IP_PRI_CONNTRACK */
const CONNTRACK = -200;
/** Tables with chains of one priority that are tried in every order. */
const MOST_ORDERED = 3;

export interface HookOptions {
  /** Chains that are not to be run. Default: none. */
  readonly skips?: (chain: HookedChain) => boolean;
}

export async function runHook(
  world: World,
  hook: number,
  branches: readonly Branch[],
  { skips }: HookOptions = {},
): Promise<ChainEnds> {
  const finals: Final[] = [];
  let here = branches;
  for (const group of await world.ruleset.at(hook)) {
    const chains = skips === undefined ? group : group.filter((chain) => !skips(chain));
    if (chains.length === 0 || here.length === 0) continue;
    here = merged(tracked(here, hook, placeOf(chains[0])));
    const ends = await runGroup(world, hook, chains, here);
    finals.push(...ends.finals);
    here = ends.passed;
  }
  return { passed: here.map((branch) => behind(hook, branch)), finals };
}

/** The tracker is in front of chains behind its priority; of one at that very priority it is not known. */
function tracked(branches: readonly Branch[], hook: number, place: number): Branch[] {
  if ((hook !== Hook.prerouting && hook !== Hook.output) || place < CONNTRACK) return [...branches];
  return branches.flatMap((branch) => {
    const { state } = branch;
    if (state.tracking !== "not yet") return [branch];
    const after = state.clone();
    after.track();
    if (place > CONNTRACK) return [{ ...branch, state: after }];
    const what = `chains of priority ${CONNTRACK}, which the kernel's connection tracker has, too: their order`;
    return [guessed(branch, what, "no"), guessed({ ...branch, state: after }, what, "yes")];
  });
}

/** Whatever rules did, the first NAT hook has settled what a connection's destination or source is. */
function behind(hook: number, branch: Branch): Branch {
  const [before] = tracked([branch], hook, CONNTRACK + 1);
  const state = (before ?? branch).state.clone();
  if (hook === Hook.prerouting || hook === Hook.output) state.destinationBound = true;
  else if (hook !== Hook.forward) state.sourceBound = true;
  return { ...branch, state };
}

/** Chains of one priority: which table's are first the kernel does not tell. Within a table the last one is. */
async function runGroup(
  world: World,
  hook: number,
  group: readonly HookedChain[],
  branches: readonly Branch[],
): Promise<ChainEnds> {
  const tables = new Map<string, HookedChain[]>();
  for (const chain of group.toReversed()) {
    const name = `${chain.ref.family} ${chain.ref.table}`;
    tables.set(name, [...(tables.get(name) ?? []), chain]);
  }
  const names = [...tables.keys()];
  const orders = names.length > 1 && names.length <= MOST_ORDERED ? permutations(names) : [names];
  const all: ChainEnds[] = [];
  const what = `chains of one priority (${names.join(", ")}) at ${HOOKS[hook] ?? hook}: their order`;
  for (const [i, order] of orders.entries()) {
    const from =
      orders.length === 1 ? branches : branches.map((branch) => guessed(branch, what, i === 0 ? "no" : `order ${i}`));
    all.push(
      await runInOrder(
        world,
        order.flatMap((name) => tables.get(name) ?? []),
        from,
      ),
    );
  }
  return { passed: merged(all.flatMap(({ passed }) => passed)), finals: all.flatMap(({ finals }) => finals) };
}

async function runInOrder(
  world: World,
  chains: readonly HookedChain[],
  branches: readonly Branch[],
): Promise<ChainEnds> {
  const finals: Final[] = [];
  let here = branches;
  for (const chain of chains) {
    const [skipped, meeting] = split(here, (branch) => chain.base.type === "nat" && isBound(branch, chain));
    const ends = await runChain(world, chain, meeting);
    finals.push(...ends.finals);
    const passed = chain.base.type === "nat" ? ends.passed.map(bound(chain)) : ends.passed;
    here = merged([...skipped, ...passed]);
  }
  return { passed: here, finals };
}

/** NAT chains see the first packet of a connection, until one of them rewrites it (nf_nat_inet_fn). */
function isBound({ state }: Branch, { base }: HookedChain): boolean {
  if (state.tracking !== "tracked" || state.direction === "reply") return true;
  return base.hook === Hook.prerouting || base.hook === Hook.output ? state.destinationBound : state.sourceBound;
}

function bound({ base }: HookedChain): (branch: Branch) => Branch {
  const ofDestination = base.hook === Hook.prerouting || base.hook === Hook.output;
  return (branch) => {
    if (!(ofDestination ? branch.state.translated : branch.state.masqueraded)) return branch;
    const state = branch.state.clone();
    state[ofDestination ? "destinationBound" : "sourceBound"] = true;
    return { ...branch, state };
  };
}

function split<T>(all: readonly T[], test: (one: T) => boolean): [yes: T[], no: T[]] {
  return [all.filter(test), all.filter((one) => !test(one))];
}

function permutations<T>(all: readonly T[]): T[][] {
  if (all.length < 2) return [[...all]];
  return all.flatMap((first, i) => permutations(all.toSpliced(i, 1)).map((rest) => [first, ...rest]));
}
