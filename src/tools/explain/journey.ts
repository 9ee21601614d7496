/** A packet's way through this node, from its first hook to its last. */
import type { IpFamily } from "../../base/ip.js";
import { AddressType, Hook } from "../../netlink/constants.js";
import { type Branch, changed, guessed, merged } from "./branch.js";
import { equals, hostNumber, isKnown, partOf } from "./bits.js";
import { DESTINATION, type PacketState } from "./packet.js";
import type { EndedBy, Final } from "./run-chain.js";
import { runHook } from "./run-hook.js";
import { atBridge, fromBridge, fromPort, isAt, type Passage, receive, send, setInterfaces } from "./devices.js";
import { bridgePoint, type HookedChain, Point } from "./ruleset.js";
import type { Routing } from "./routing.js";
import type { KernelRoute } from "../../netlink/route-table.js";
import { isLoopback } from "../../node/node-facts.js";
import type { World } from "./world.js";

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

/** Whether packets begin at this node or arrive through an interface. Undefined: the interface is unknown. */
export type Origin = { readonly isHere: true } | { readonly isHere: false; readonly in: string | undefined };

/** One way of the packet's branches. Rules see the interfaces of the place where they run. */
export class Journey {
  readonly #world: World;
  readonly #routing: Routing;
  readonly #family: IpFamily;
  readonly #ends: JourneyEnd[] = [];
  readonly #passage: Passage;

  constructor(world: World, routing: Routing, family: IpFamily) {
    this.#world = world;
    this.#routing = routing;
    this.#family = family;
    const through: Passage["through"] = (...args) => this.#through(...args);
    this.#passage = { ruleset: world.ruleset, routing, through };
  }

  /** Follows the packet to its ends. */
  async follow(begin: readonly Branch[], origin: Origin): Promise<readonly JourneyEnd[]> {
    let here: readonly Branch[];
    if (origin.isHere) {
      const sent = this.#family === "ip" ? changed(begin, setPriorityOfService) : begin;
      here = await this.#routed(sent, Hook.output, "");
    } else {
      here = await this.#received(begin, origin.in);
    }
    for (const branch of here) await this.#goOn(branch, origin);
    return this.#ends;
  }

  /** Passes the hooks before the first routing decision. */
  async #received(begin: readonly Branch[], device: string | undefined): Promise<readonly Branch[]> {
    const passage = this.#passage;
    const atPrerouting = (branches: readonly Branch[]): Promise<readonly Branch[]> =>
      this.#through(Hook.prerouting, branches, (state) => setInterfaces(state, device, ""));
    const arrived = await fromPort(passage, begin, device);
    if (!(await this.#isFiltered(device))) return atPrerouting(await fromBridge(passage, arrived, device));
    return this.#bridged(arrived, device, atPrerouting);
  }

  /** br_nf_pre_routing: the bridge passes the packet to prerouting between its own chains, at priority 0. */
  async #bridged(
    arrived: readonly Branch[],
    device: string | undefined,
    atPrerouting: (branches: readonly Branch[]) => Promise<readonly Branch[]>,
  ): Promise<readonly Branch[]> {
    const at = (branches: readonly Branch[], isThere: (priority: number) => boolean): Promise<readonly Branch[]> =>
      atBridge(this.#passage, branches, device, Hook.prerouting, ({ base }) => isThere(base.priority));
    const isSame = (priority: number): boolean => priority === 0;
    const early = await at(arrived, (priority) => priority < 0);
    const hasSame =
      (await this.#world.ruleset.at(bridgePoint(Hook.prerouting), (chain) => isSame(chain.base.priority))).length > 0;
    const what = "the order of prerouting and a bridge's chains of priority 0 (br_netfilter)";
    const [no, yes] = hasSame ? [marked(early, what, "no"), marked(early, what, "yes")] : [early, []];
    const last = await at(await atPrerouting(no), isSame);
    const first = await atPrerouting(await at(yes, isSame));
    const late = await at(merged([...last, ...first]), (priority) => priority > 0);
    return fromBridge(this.#passage, late, device, [Hook.input]);
  }

  /** Whether the device is a bridge whose packets pass the hooks of IP before they leave the bridge. */
  async #isFiltered(device: string | undefined): Promise<boolean> {
    if (device === undefined || (await this.#routing.portsOf(device)) === undefined) return false;
    return this.#routing.filtersBridges(this.#family);
  }

  /** Continues after the first routing decision. */
  async #goOn(branch: Branch, origin: Origin): Promise<void> {
    const { state } = branch;
    const isLocal = await this.#isLocal(state);
    if (isLocal === undefined) {
      const end = guessed(branch, "the destination of the packet, which is unknown here", "yes");
      this.#ends.push({ end: "unknown", branch: end, isHere: false, out: undefined });
      return;
    }
    const why = isLocal ? undeliverable(state, origin) : await this.#unroutable(state, origin);
    if (why !== undefined) {
      this.#ends.push({ end: "unknown", branch: guessed(branch, why, "yes"), isHere: false, out: undefined });
      return;
    }
    if (origin.isHere) {
      const sent = await this.#routed([branch], Hook.postrouting, "");
      const out = isLocal ? "lo" : await this.#interfaceFor(state, origin);
      const left = await send(this.#passage, sent, out);
      if (!isLocal) return this.#arrive(left, false, out);
      const back = await receive(this.#passage, left, "lo");
      const again = await this.#through(Hook.prerouting, back, (each) => setInterfaces(each, "lo", ""));
      return this.#arrive(await this.#through(Hook.input, again), true, "");
    }
    if (isLocal) {
      const passed = await this.#through(Hook.input, [branch], (each) => setInterfaces(each, origin.in, ""));
      return this.#arrive(passed, true, "");
    }
    const out = await this.#interfaceFor(state, origin);
    const forwarded = await this.#through(Hook.forward, [branch], (each) => {
      setInterfaces(each, origin.in, out);
      // ip_forward
      if (this.#family === "ip") setPriorityOfService(each);
    });
    const routed = await this.#through(Hook.postrouting, forwarded, (each) => setInterfaces(each, origin.in, out));
    return this.#arrive(await send(this.#passage, routed, out), false, out);
  }

  #arrive(branches: readonly Branch[], isHere: boolean, out: string | undefined): void {
    for (const branch of branches) this.#ends.push({ end: "arrived", branch, isHere, out });
  }

  /** Hooks of packets of this node, which have an interface from the beginning, and another one if a rule changes the route. */
  async #routed(branches: readonly Branch[], hook: number, inInterface: string): Promise<readonly Branch[]> {
    const routed: Branch[] = [];
    for (const branch of branches) {
      const isLocal = await this.#isLocal(branch.state);
      const out = isLocal === true ? "lo" : await this.#interfaceFor(branch.state, { isHere: true });
      const passed = await this.#through(hook, [branch], (state) => setInterfaces(state, inInterface, out));
      routed.push(...passed);
    }
    return merged(routed);
  }

  async #isLocal({ destination, redirected }: PacketState): Promise<boolean | undefined> {
    if (redirected) return true;
    if (destination === undefined) return undefined;
    return (await this.#world.addressType(destination)) === AddressType.local;
  }

  async #interfaceFor(state: PacketState, origin: Origin): Promise<string | undefined> {
    const route = await this.#routeOf(state, origin);
    return typeof route === "string" ? undefined : route.interfaceName;
  }

  /**
   * Why the packet does not go where it is addressed. Only for replies and marks that change the route: for others,
   * see `nodeNotes`.
   */
  async #unroutable(state: PacketState, origin: Origin): Promise<string | undefined> {
    const route = await this.#routeOf(state, origin);
    const to = `the route to ${state.destination}`;
    if (route === "unknown") return undefined;
    if (route !== "none") return route.type === AddressType.local ? `${to}, which is local (ip rule)` : undefined;
    const { source, destination = "" } = state;
    const unmarked = { source, ...(!origin.isHere && { inInterface: origin.in }) };
    const isOther = (await this.#routing.policyRoute(this.#family, destination, unmarked)) !== "none";
    return state.direction === "reply" || isOther ? `${to}, which is missing, or refuses packets` : undefined;
  }

  async #routeOf(state: PacketState, origin: Origin): Promise<KernelRoute | "none" | "unknown"> {
    const { source, destination, mark: bits } = state;
    if (destination === undefined) return "unknown";
    const mark = isKnown(bits) ? new Uint32Array(bits.bytes.slice().buffer)[0] : undefined;
    // Not every chain that marks a packet of this node changes its route.
    if (origin.isHere)
      return this.#routing.policyRoute(this.#family, destination, { source, ...(mark === 0 && { mark }) });
    const from = origin.in === undefined ? {} : { source, inInterface: origin.in, mark };
    return this.#routing.policyRoute(this.#family, destination, from);
  }

  async #through(
    point: number,
    branches: readonly Branch[],
    change?: (state: PacketState) => void,
    device?: string,
    isMet: (chain: HookedChain) => boolean = () => true,
  ): Promise<readonly Branch[]> {
    const here = change === undefined ? branches : changed(branches, change);
    const met = (chain: HookedChain): boolean => isAt(chain, device) && isMet(chain);
    const { passed, finals } = await runHook(this.#world, point, here, met);
    for (const final of finals) await this.#final(final, point);
    return passed;
  }

  async #final(final: Final, point: number): Promise<void> {
    const { branch, verdict, by } = final;
    const there = { branch, isHere: false, out: undefined, by };
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
    const answer = state.answer(state.rejectedWith ?? "error");
    const journey = new Journey(this.#world, this.#routing, this.#family);
    const begin: Branch = { ...rest, state: answer };
    const { inInterface } = state;
    // At a device, the answer goes back the same way.
    if (point === Point.ingress) return journey.back(begin, [inInterface]);
    // nf_send_reset: through the port of a bridge, without translation.
    if (answer.answers === "reset" && point !== Point.output && (await this.#isFiltered(inInterface))) {
      const isSame = equals(answer.sourceBits, partOf(state.tuple.network, ...DESTINATION[this.#family]).bytes);
      const ports = await this.#routing.portsOf(inInterface ?? "");
      return isSame === true ? journey.back(begin, ports ?? []) : [{ ...NOWHERE, branch: begin, end: "dropped" }];
    }
    return journey.follow([begin], { isHere: true });
  }

  /** Sends an answer back through a device, or one of several. */
  async back(branch: Branch, devices: readonly (string | undefined)[]): Promise<readonly JourneyEnd[]> {
    branch.state.tracking = "invalid";
    for (const device of devices) {
      this.#arrive(
        await send(this.#passage, [guessed(branch, "the port of the bridge", String(device))], device),
        false,
        device,
      );
    }
    return this.#ends;
  }
}

/** ip_route_input_slow: packets from elsewhere do not go to loopback addresses, unless a setting allows it. */
function undeliverable({ destination, translated }: PacketState, origin: Origin): string | undefined {
  const isForeign = !origin.isHere && translated && destination !== undefined && isLoopback(destination);
  return isForeign ? `whether packets from elsewhere may go to ${destination} (route_localnet)` : undefined;
}

const NOWHERE = { isHere: false, out: undefined } as const;

function marked(branches: readonly Branch[], what: string, taken: string): Branch[] {
  return branches.map((branch) => guessed(branch, what, taken));
}

/** rt_tos2priority: the priority depends on two bits of the type of service, which have the values 0, 2, 6 and 4. */
function setPriorityOfService(state: PacketState): void {
  const { bytes, known } = partOf(state.network, 1, 1);
  const [service = 0] = bytes;
  const [among = 0xff] = known ?? [];
  const high = (service >>> 4) & 1;
  const low = high ^ ((service >>> 3) & 1);
  const unknown = (among & 0x10) === 0 ? 6 : (among & 0x08) === 0 ? 2 : 0;
  state.priority = hostNumber((high << 2) | (low << 1), ~unknown);
}
