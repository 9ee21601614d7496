/**
 * Runs everything at a hook in its order: the base chains, and the kernel's own steps between them, which are the
 * connection tracker and NAT.
 */
import { Hook, Priority } from "../../../nft/kernel/constants.js";
import { type Branch, changed, guessAll, merged } from "./branch.js";
import { type HookedChain, pointName } from "./hooks.js";
import type { World } from "./machine-world.js";
import { type Final, runChain } from "./run-chain.js";

/** Maximum number of orders of steps with the same priority to try. */
const MOST_ORDERS = 120;
/** NF_IP_PRI_CONNTRACK */
const CONNTRACK = -200;

/** A step at a hook: a chain, or the kernel's connection tracker or NAT, which runs all chains of type nat. */
interface Unit {
  readonly priority: number;
  readonly name: string;
  /** Returns the branches that pass. @param finals receives the ends of the others. */
  run(branches: readonly Branch[], finals: Final[]): Promise<readonly Branch[]> | readonly Branch[];
}

/** Returns the branches that pass the chains at a point. @param finals receives the ends of the others. */
export function runHook(
  world: World,
  hooked: readonly HookedChain[],
  point: number,
  branches: readonly Branch[],
  finals: Final[],
): Promise<readonly Branch[]> {
  const isOfDestination = point === Hook.prerouting || point === Hook.output;
  const field = isOfDestination ? "destinationBound" : "sourceBound";
  /** The first chain that rewrites decides, even if it changes nothing. */
  const ifFree =
    (run: Unit["run"]): Unit["run"] =>
    async (here, ends) => {
      const { bound = [], free = [] } = Object.groupBy(here, ({ state }) => {
        // A reset belongs to the connection that it ends, so it may even pass before the first packet.
        const isReply = state.direction === "reply" && state.answers !== "reset";
        return state.tracking !== "tracked" || isReply || state[field] ? "bound" : "free";
      });
      return merged([...bound, ...(await run(free, ends))]);
    };
  const units: Unit[] = [];
  const nats: Unit[] = [];
  // Chains of one table are listed in the reverse order of their registration.
  for (const chain of hooked.filter((each) => each.point === point).toReversed()) {
    const isNat = chain.base.type === "nat";
    const run: Unit["run"] = (here, ends) => runChain(world, chain, here, ends);
    const name = `${chain.ref.family} ${chain.ref.table}`;
    (isNat ? nats : units).push({ priority: chain.base.priority, name, run: isNat ? ifFree(run) : run });
  }
  if (isOfDestination) {
    const run: Unit["run"] = (here) => merged(changed(here, (state) => state.track()));
    units.push({ priority: CONNTRACK, name: "the connection tracker", run });
  }
  if (isOfDestination || point === Hook.input || point === Hook.postrouting) {
    /*
     * nf_nat_inet_fn: the first packet of a connection passes the chains, and after that its source or destination is fixed,
     * whatever the rules did. The packets of the other direction are translated back.
     */
    const translate = ifFree(async (free, ends) =>
      changed(await runUnits(nats, point, free, ends), (state) => (state[field] = true)),
    );
    units.push({
      // The priority of a NAT chain orders only NAT chains (nf_nat_register_fn).
      priority: isOfDestination ? Priority.dstnat : Priority.srcnat,
      name: "NAT",
      run: async (here, ends) =>
        merged(changed(await translate(here, ends), (state) => state.translateBack(isOfDestination))),
    });
  }
  return runUnits(units, point, branches, finals);
}

/**
 * Runs steps by priority. The kernel runs those of the same priority in the reverse order of their registration, which it does
 * not report, so they run in every possible order. Chains of one table have that order.
 */
async function runUnits(
  units: readonly Unit[],
  point: number,
  branches: readonly Branch[],
  finals: Final[],
): Promise<readonly Branch[]> {
  let here = branches;
  const groups = Map.groupBy(
    units.toSorted((a, b) => a.priority - b.priority),
    ({ priority }) => priority,
  );
  for (const group of groups.values()) {
    const names = [...new Set(group.map(({ name }) => name))];
    if (names.length === 1 || (await areIndependent(group, here))) {
      here = await inTurn(group, here, finals);
      continue;
    }
    const what = `the order of ${names.join(", ")}, which have the same priority at ${pointName(point)}`;
    const orders = ordersOf(group, MOST_ORDERS);
    const passed: Branch[] = [];
    for (const [i, order] of (orders ?? [group]).entries()) {
      passed.push(...(await inTurn(order, guessAll(here, what, i === 0 ? "no" : `order ${i}`), finals)));
    }
    if (orders === undefined)
      finals.push(...guessAll(here, what, "yes").map((branch): Final => ({ branch, verdict: "unknown" })));
    here = merged(passed);
  }
  return here;
}

async function inTurn(
  units: readonly Unit[],
  branches: readonly Branch[],
  finals: Final[],
): Promise<readonly Branch[]> {
  let here = branches;
  for (const unit of units) if (here.length > 0) here = await unit.run(here, finals);
  return here;
}

/** Whether the order changes nothing: no step changes the packet, and all that end its path do it in the same way. */
async function areIndependent(units: readonly Unit[], branches: readonly Branch[]): Promise<boolean> {
  const known = new Set(branches.map(({ state }) => state.key));
  const finals: Final[] = [];
  for (const unit of units)
    if ((await unit.run(branches, finals)).some(({ state }) => !known.has(state.key))) return false;
  return new Set(finals.map(({ verdict }) => verdict)).size < 2;
}

/** Returns every order in which steps of one name keep theirs. Undefined if there are more than `most`. */
function ordersOf(units: readonly Unit[], most: number): Unit[][] | undefined {
  let orders = [{ order: [] as Unit[], left: [...Map.groupBy(units, ({ name }) => name).values()] }];
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
