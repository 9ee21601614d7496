/** A packet's way through this node, from its first hook to its last. */
import { AddressType, Hook } from "../../../nft/kernel/constants.js";
import { isLoopback } from "../../../node/node-facts.js";
import { equals, hostNumber, numberIn, partOf } from "./bits.js";
import { type Branch, changed, guessAll, guessed, merged } from "./branch.js";
import { bridgePoint, type EndedBy, Point } from "./hooks.js";
import type { World } from "./machine-world.js";
import { fieldOf, type PacketState } from "./packet-state.js";
import { Passage, setInterfaces } from "./passage.js";
import type { Final } from "./run-chain.js";

/** The end of one path of a packet. */
export interface JourneyEnd {
  readonly end: "arrived" | "dropped" | "rejected" | "unknown";
  readonly branch: Branch;
  /** Whether the packet arrived at this node. Otherwise it left through `out`. */
  readonly isHere: boolean;
  /** Undefined if unknown. */
  readonly out: string | undefined;
  /** The rule that ended the path. */
  readonly by?: EndedBy;
}

/** Where packets begin: at this node, or at an interface. */
export interface Origin {
  readonly isHere: boolean;
  /** Undefined at this node, or if the interface is unknown. */
  readonly in?: string;
}

const NOWHERE = { isHere: false, out: undefined } as const;

/** One way of the packet's branches. Rules see the interfaces of the place where they run. */
export class Journey {
  readonly #ends: JourneyEnd[] = [];
  readonly #passage: Passage;

  constructor(private readonly world: World) {
    this.#passage = new Passage(world, (final, point) => this.#final(final, point));
  }

  /** Follows the packet to its ends. */
  async follow(begin: Branch, origin: Origin): Promise<readonly JourneyEnd[]> {
    const isSent = origin.isHere && begin.state.family === "ip";
    const here = origin.isHere
      ? await this.#routed(isSent ? changed([begin], setPriorityOfService) : [begin], Hook.output)
      : await this.#received([begin], origin.in);
    for (const branch of here) await this.#goOn(branch, origin);
    return this.#ends;
  }

  /** Passes the hooks before the first routing decision. */
  async #received(begin: readonly Branch[], device: string | undefined): Promise<readonly Branch[]> {
    const passage = this.#passage;
    const atPrerouting = (branches: readonly Branch[]): Promise<readonly Branch[]> =>
      passage.through(Hook.prerouting, branches, (state) => setInterfaces(state, device, ""));
    const arrived = await passage.fromPort(begin, device);
    const isBridged = begin[0] !== undefined && (await this.world.routes.isBridged(begin[0].state.family, device));
    if (!isBridged) return atPrerouting(await passage.fromBridge(arrived, device));
    // br_nf_pre_routing: the bridge passes the packet to prerouting between its own chains, at priority 0.
    const at = (branches: readonly Branch[], isThere: (priority: number) => boolean): Promise<readonly Branch[]> =>
      passage.atBridge(branches, device, Hook.prerouting, ({ base }) => isThere(base.priority));
    const early = await at(arrived, (priority) => priority < 0);
    const hasSame = (await this.world.rules.hooked()).some(
      ({ point, base }) => point === bridgePoint(Hook.prerouting) && base.priority === 0,
    );
    const what = "the order of prerouting and a bridge's chains of priority 0 (br_netfilter)";
    const [no, yes] = hasSame ? [guessAll(early, what, "no"), guessAll(early, what, "yes")] : [early, []];
    const last = await at(await atPrerouting(no), (priority) => priority === 0);
    const first = await atPrerouting(await at(yes, (priority) => priority === 0));
    const late = await at(merged([...last, ...first]), (priority) => priority > 0);
    return passage.fromBridge(late, device, [Hook.input]);
  }

  /** Continues after the first routing decision. */
  async #goOn(branch: Branch, origin: Origin): Promise<void> {
    const { isLocal, out, why } = await this.#decide(branch.state, origin);
    if (why !== undefined) {
      this.#ends.push({ ...NOWHERE, end: "unknown", branch: guessed(branch, why, "yes") });
      return;
    }
    const passage = this.#passage;
    if (origin.isHere) {
      const left = await passage.send(await this.#routed([branch], Hook.postrouting), out);
      if (!isLocal) return this.#arrive(left, false, out);
      const back = await passage.receive(left, "lo");
      const again = await passage.through(Hook.prerouting, back, (each) => setInterfaces(each, "lo", ""));
      return this.#arrive(await passage.through(Hook.input, again), true, "");
    }
    if (isLocal) {
      const passed = await passage.through(Hook.input, [branch], (each) => setInterfaces(each, origin.in, ""));
      return this.#arrive(passed, true, "");
    }
    const forwarded = await passage.through(Hook.forward, [branch], (each) => {
      setInterfaces(each, origin.in, out);
      // ip_forward
      if (each.family === "ip") setPriorityOfService(each);
    });
    const routed = await passage.through(Hook.postrouting, forwarded, (each) => setInterfaces(each, origin.in, out));
    return this.#arrive(await passage.send(routed, out), false, out);
  }

  #arrive(branches: readonly Branch[], isHere: boolean, out: string | undefined): void {
    for (const branch of branches) this.#ends.push({ end: "arrived", branch, isHere, out });
  }

  /** Hooks of packets of this node, which have an interface from the beginning, and another one if a rule changes the route. */
  async #routed(branches: readonly Branch[], hook: number): Promise<readonly Branch[]> {
    const routed: Branch[] = [];
    for (const branch of branches) {
      const { out } = await this.#decide(branch.state, { isHere: true });
      routed.push(...(await this.#passage.through(hook, [branch], (state) => setInterfaces(state, "", out))));
    }
    return merged(routed);
  }

  /** The routing decision, and why it is unknown. */
  async #decide(
    state: PacketState,
    origin: Origin,
  ): Promise<{ readonly isLocal: boolean; readonly out: string | undefined; readonly why?: string | undefined }> {
    const { source, destination = "", redirected, direction } = state;
    const { routes } = this.world;
    if (redirected || (destination !== "" && (await routes.addressType(destination)) === AddressType.local))
      return { isLocal: true, out: "lo", why: undeliverable(state, origin) };
    const away = { isLocal: false, out: undefined };
    if (destination === "") return { ...away, why: "the destination of the packet, which is unknown here" };
    const mark = numberIn(state.mark);
    // Not every chain that marks a packet of this node changes its route.
    const own = { source, ...(mark === 0 && { mark }) };
    const from = origin.isHere ? own : origin.in === undefined ? {} : { source, inInterface: origin.in, mark };
    const route = await routes.policyRoute(destination, from);
    const to = `the route to ${destination}`;
    if (route === "unknown") return away;
    // For other packets than replies and those with marks that change the route, see `nodeNotes`.
    if (route === "none") {
      const unmarked = { source, ...(!origin.isHere && { inInterface: origin.in }) };
      const isOther = direction === "reply" || (await routes.policyRoute(destination, unmarked)) !== "none";
      return { ...away, why: isOther ? `${to}, which is missing, or refuses packets` : undefined };
    }
    const why = route.type === AddressType.local ? `${to}, which is local (ip rule)` : undefined;
    return { isLocal: false, out: route.interfaceName, why };
  }

  async #final({ branch, verdict, by }: Final, point: number): Promise<void> {
    const there = { ...NOWHERE, branch, by };
    if (verdict !== "reject") {
      this.#ends.push({ ...there, end: verdict === "drop" ? "dropped" : "unknown" });
      return;
    }
    const ends = await this.#answered(branch, point);
    for (const end of new Set(ends.map((each) => each.end))) {
      const lost = end === "arrived" ? ("rejected" as const) : end === "rejected" ? ("dropped" as const) : end;
      const guesses = ends.find((each) => each.end === end)?.branch.guesses ?? branch.guesses;
      const isSure = end !== "unknown" && ends.every((each) => each.end === end);
      this.#ends.push({ ...there, branch: isSure ? branch : { ...branch, guesses }, end: lost });
    }
  }

  /** Follows the answer that a rejecting rule sends. */
  async #answered({ state, ...rest }: Branch, point: number): Promise<readonly JourneyEnd[]> {
    const { inInterface, family, rejectedWith = "error" } = state;
    const begin: Branch = { ...rest, state: state.answer(rejectedWith) };
    const { routes } = this.world;
    const journey = new Journey(this.world);
    // At a device, the answer goes back the same way.
    if (point === Point.ingress) return journey.back(begin, [inInterface]);
    // nf_send_reset: through the port of a bridge, without translation.
    if (rejectedWith === "reset" && point !== Point.output && (await routes.isBridged(family, inInterface))) {
      const isSame = equals(begin.state.get("source"), fieldOf(state.tuple, family, "destination").bytes);
      return isSame === true
        ? journey.back(begin, (await routes.portsOf(inInterface)) ?? [])
        : [{ ...NOWHERE, branch: begin, end: "dropped" }];
    }
    return journey.follow(begin, { isHere: true });
  }

  /** Sends an answer back through a device, or one of several. */
  async back(branch: Branch, devices: readonly (string | undefined)[]): Promise<readonly JourneyEnd[]> {
    branch.state.tracking = "invalid";
    for (const device of devices) {
      const begin = guessed(branch, "the port of the bridge", String(device));
      this.#arrive(await this.#passage.send([begin], device), false, device);
    }
    return this.#ends;
  }
}

/** ip_route_input_slow: packets from elsewhere do not go to loopback addresses, unless a setting allows it. */
function undeliverable({ destination, translated }: PacketState, origin: Origin): string | undefined {
  const isForeign = !origin.isHere && translated && destination !== undefined && isLoopback(destination);
  return isForeign ? `whether packets from elsewhere may go to ${destination} (route_localnet)` : undefined;
}

/** rt_tos2priority: the priority depends on two bits of the type of service, which have the values 0, 2, 6 and 4. */
function setPriorityOfService(state: PacketState): void {
  const { bytes, known } = partOf(state.network, 1, 1);
  const [service, among] = [bytes[0], known[0]];
  const high = (service >>> 4) & 1;
  const low = high ^ ((service >>> 3) & 1);
  const unknown = (among & 0x10) === 0 ? 6 : (among & 0x08) === 0 ? 2 : 0;
  state.priority = hostNumber((high << 2) | (low << 1), ~unknown);
}
