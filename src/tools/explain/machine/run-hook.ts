/**
 * Runs everything at a hook in its order: the base chains, and the kernel's own steps between them, which are the
 * connection tracker and NAT.
 */
import { Hook } from "../../../netlink/constants.js";
import { type Branch, changed, guessAll, guessed, merged } from "./branch.js";
import { type Groups, groupsAt, type IsMet, pointName, type Unit } from "./hooks.js";
import type { World } from "./machine-world.js";
import { type ChainEnds, type Final, runChain } from "./run-chain.js";

/** Maximum number of orders of steps with the same priority to try. */
const MOST_ORDERS = 120;

export async function runHook(
  world: World,
  point: number,
  branches: readonly Branch[],
  isMet: IsMet,
): Promise<ChainEnds> {
  return inTurn(groupsAt(point, await world.rules.hooked(), isMet), branches, (group, here) =>
    runGroup(world, point, group, here),
  );
}

/** Runs steps one after another on the branches that pass them. */
async function inTurn<T>(
  steps: readonly T[],
  branches: readonly Branch[],
  run: (step: T, here: readonly Branch[]) => Promise<ChainEnds>,
): Promise<ChainEnds> {
  const finals: Final[] = [];
  let here = branches;
  for (const step of steps) {
    if (here.length === 0) break;
    const ends = await run(step, here);
    finals.push(...ends.finals);
    here = ends.passed;
  }
  return { passed: here, finals };
}

/** Runs steps of one priority in every order that is possible, because the kernel does not report it. */
async function runGroup(
  world: World,
  point: number,
  units: readonly Unit[],
  branches: readonly Branch[],
): Promise<ChainEnds> {
  const run = (order: readonly Unit[], from: readonly Branch[]): Promise<ChainEnds> =>
    inTurn(order, from, (unit, here) => runUnit(world, point, unit, here));
  const names = [...new Set(units.map(nameOf))];
  if (names.length === 1 || (await areIndependent(world, point, units, branches))) return run(units, branches);
  const what = `the order of ${names.join(", ")}, which have the same priority at ${pointName(point)}`;
  const orders = ordersOf(units, MOST_ORDERS);
  const all: ChainEnds[] = [];
  for (const [i, order] of (orders ?? [units]).entries()) {
    all.push(await run(order, guessAll(branches, what, i === 0 ? "no" : `order ${i}`)));
  }
  const finals = all.flatMap((ends) => ends.finals);
  if (orders === undefined) {
    finals.push(...branches.map((branch): Final => ({ branch: guessed(branch, what, "yes"), verdict: "unknown" })));
  }
  return { passed: merged(all.flatMap(({ passed }) => passed)), finals };
}

/** Whether the order changes nothing: no step changes the packet, and all that end its path do it in the same way. */
async function areIndependent(
  world: World,
  point: number,
  units: readonly Unit[],
  branches: readonly Branch[],
): Promise<boolean> {
  const known = new Set(branches.map(({ state }) => state.key));
  const verdicts = new Set<string>();
  for (const unit of units) {
    const { passed, finals } = await runUnit(world, point, unit, branches);
    if (passed.some(({ state }) => !known.has(state.key))) return false;
    for (const { verdict } of finals) verdicts.add(verdict);
  }
  return verdicts.size < 2;
}

function nameOf(unit: Unit): string {
  if (unit.kind === "chain") return `${unit.chain.ref.family} ${unit.chain.ref.table}`;
  return unit.kind === "nat" ? "NAT" : "the connection tracker";
}

/** Returns every order in which steps of one table keep theirs. Undefined if there are more than `most`. */
function ordersOf(units: readonly Unit[], most: number): Unit[][] | undefined {
  let orders = [{ order: [] as Unit[], left: [...Map.groupBy(units, nameOf).values()] }];
  for (const _ of units) {
    orders = orders.flatMap(({ order, left }) =>
      left.flatMap(([first, ...rest], i) =>
        first === undefined ? [] : [{ order: [...order, first], left: left.with(i, rest) }],
      ),
    );
    if (orders.length > most) return undefined;
  }
  return orders.map(({ order }) => order);
}

async function runUnit(world: World, point: number, unit: Unit, branches: readonly Branch[]): Promise<ChainEnds> {
  switch (unit.kind) {
    case "tracker":
      return { passed: merged(changed(branches, (state) => state.track())), finals: [] };
    case "nat":
      return runNat(world, point, unit.groups, branches);
    case "chain": {
      if (unit.chain.base.type !== "nat") return runChain(world, unit.chain, branches);
      // The first chain that rewrites decides, even if it changes nothing.
      const { bound = [], free = [] } = byBinding(branches, point);
      const { passed, finals } = await runChain(world, unit.chain, free);
      return { passed: merged([...bound, ...passed]), finals };
    }
  }
}

/**
 * nf_nat_inet_fn: the first packet of a connection passes the chains, and after that its source or destination is fixed,
 * whatever the rules did. The packets of the other direction are translated back.
 */
async function runNat(world: World, point: number, groups: Groups, branches: readonly Branch[]): Promise<ChainEnds> {
  const { bound = [], free = [] } = byBinding(branches, point);
  const { passed, finals } = await inTurn(groups, free, (group, here) => runGroup(world, point, group, here));
  const ofDestination = isOfDestination(point);
  const fixed = changed(passed, (state) => (state[ofDestination ? "destinationBound" : "sourceBound"] = true));
  return { passed: merged(changed([...fixed, ...bound], (state) => state.translateBack(ofDestination))), finals };
}

function isOfDestination(point: number): boolean {
  return point === Hook.prerouting || point === Hook.output;
}

function byBinding(branches: readonly Branch[], point: number): Partial<Record<"bound" | "free", Branch[]>> {
  const field = isOfDestination(point) ? "destinationBound" : "sourceBound";
  return Object.groupBy(branches, ({ state }) => {
    // A reset belongs to the connection that it ends, so it may even pass before the first packet.
    const isReply = state.direction === "reply" && state.answers !== "reset";
    return state.tracking !== "tracked" || isReply || state[field] ? "bound" : "free";
  });
}
