/**
 * Runs all base chains of a hook in their order, with the kernel's own steps between them: the connection tracker and
 * NAT.
 */
import { Hook, HOOK_NAMES } from "../../netlink/constants.js";
import { type Branch, guessed, merged } from "./branch.js";
import { type ChainEnds, type Final, runChain } from "./run-chain.js";
import { type World } from "./world.js";
import { type HookedChain, placeOf } from "./ruleset.js";

/** NF_IP_PRI_CONNTRACK */
const CONNTRACK = -200;
/** Maximum number of tables with chains of the same priority to try in every order. */
const MOST_ORDERED = 3;

interface HookOptions {
  /** Whether to skip a chain. Default: skip none. */
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
  return { passed: here.map((branch) => afterHook(hook, branch)), finals };
}

/** The tracker runs before chains with a later priority. For chains with its own priority, the order is unknown. */
function tracked(branches: readonly Branch[], hook: number, place: number): Branch[] {
  if ((hook !== Hook.prerouting && hook !== Hook.output) || place < CONNTRACK) return [...branches];
  return branches.flatMap((branch) => {
    const { state } = branch;
    if (state.tracking !== "not yet") return [branch];
    const after = state.clone();
    after.track();
    if (place > CONNTRACK) return [{ ...branch, state: after }];
    const what = `the order of the connection tracker and chains of its priority (${CONNTRACK})`;
    return [guessed(branch, what, "no"), guessed({ ...branch, state: after }, what, "yes")];
  });
}

/** After the first NAT hook, a connection's destination or source is fixed, whatever the rules did. */
function afterHook(hook: number, branch: Branch): Branch {
  const [before] = tracked([branch], hook, CONNTRACK + 1);
  const state = (before ?? branch).state.clone();
  if (hook === Hook.prerouting || hook === Hook.output) state.destinationBound = true;
  else if (hook !== Hook.forward) state.sourceBound = true;
  return { ...branch, state };
}

/**
 * Runs chains of one priority. The kernel does not say which table's chains run first. Within a table, the last chain
 * does.
 */
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
  const what = `the order of chains with the same priority (${names.join(", ")}) at ${HOOK_NAMES[hook] ?? hook}`;
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

/** NAT chains see the first packet of a connection until one of them rewrites it (nf_nat_inet_fn). */
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
