/** Judges whether other programs' rules drop a service's packet, or the endpoint's reply to it. */
import { Hook, Priority } from "../../../nft/kernel/constants.js";
import type { RuleInfo, TableRef } from "../../../nft/kernel/kernel.js";
import type { IpFamily } from "../../../base/ip.js";
import { type Bits, equals, exactly, hostNumber, masked, wordOf } from "../machine/bits.js";
import { type Branch, branchOf, changed, distinct, guessAll } from "../machine/branch.js";
import { type EndedBy, endText, type IsMet } from "../machine/hooks.js";
import type { World } from "../machine/machine-world.js";
import { bytesOf, CLIENT_PORT, type Direction, PacketState } from "../machine/packet-state.js";
import { Passage, setInterfaces } from "../machine/passage.js";
import type { Final } from "../machine/run-chain.js";
import { OUTSIDE } from "../machine/packet-spec.js";
import { worldOf } from "../world/node-world.js";
import { type RoutedKernel, Routing } from "../world/routing.js";
import type { SeenFields } from "./seen-fields.js";
import type { ServicePacket } from "./service-packets.js";

/** A rule or policy that drops packets. */
export interface Obstacle extends EndedBy {
  readonly verdict: "drop" | "reject";
  readonly direction: Direction;
  /** Interfaces of clients whose packets pass, or may pass. Absent if there are none. */
  readonly except?: readonly string[];
  /** Interfaces of the tried pods, if the packets of all of them are dropped. */
  readonly pods?: readonly string[];
}

/** A client of which its interface is known, and perhaps its network. */
interface Client {
  readonly device?: string;
  readonly address?: Bits;
}

/** A packet with facts about its endpoint. */
interface Aimed extends ServicePacket {
  /** Whether the endpoint is this node. */
  readonly isHere: boolean;
  /** The interface of the route to the endpoint. Undefined if it is unknown or no rule reads it. */
  readonly device: string | undefined;
}

/** The verdict on one packet and its reply. */
interface Judgement {
  readonly obstacles: readonly Obstacle[];
  /** Rules that prevent masquerading of packets that they match. */
  readonly clearing: readonly EndedBy[];
  /** A deciding rule that cannot be evaluated. */
  readonly unknown?: string;
}

/** Kinds of interfaces through which the packets of their members come. */
const JOINED: readonly string[] = ["bridge", "bond", "team"];
/** Maximum number of groups of interfaces to judge for one packet, and of pods' interfaces. */
const MOST_GROUPS = 16;

/** In most clusters, the pods of a node are in one /24 or one /64. */
const NETWORK: Readonly<Record<IpFamily, Uint8Array>> = {
  ip: Uint8Array.of(255, 255, 255, 0),
  ip6: new Uint8Array(16).fill(255, 0, 8),
};

export class Judge {
  readonly #routing: Routing;
  readonly #worlds: Readonly<Record<IpFamily, World>>;
  readonly #isForeign: IsMet;
  /** Interfaces of pods of this node, and the networks of these pods. */
  readonly #pods = new Map<string, Partial<Record<IpFamily, Bits>>>();
  /** Interfaces of routes to endpoints. */
  readonly #used = new Set<string>();
  /** An endpoint of each network. */
  readonly #networks = new Map<string, string>();
  #alike: Promise<readonly (readonly string[])[]> | undefined;
  /** By the header bits that rules read. */
  readonly #known = new Map<string, Judgement>();

  /**
   * @param tables tables of other programs. @param ownMark bits of the mark that our rules may set.
   * @param isMet whether packets meet a rule. By default, they meet all.
   */
  constructor(
    private readonly kernel: RoutedKernel,
    tables: readonly TableRef[],
    private readonly seen: SeenFields,
    private readonly ownMark: number,
    isMet?: (rule: RuleInfo) => boolean,
  ) {
    this.#routing = new Routing(kernel);
    const world = (family: IpFamily): World => worldOf(kernel, family, this.#routing, () => false, isMet);
    this.#worlds = { ip: world("ip"), ip6: world("ip6") };
    const foreign = new Set(tables.map(({ family, table }) => `${family} ${table}`));
    this.#isForeign = ({ ref, base }) => base.type !== "nat" && foreign.has(`${ref.family} ${ref.table}`);
  }

  /** Pods that are endpoints also stand for all pods as clients. Returns false if enough of them are known. */
  async meet({ family, endpoint }: ServicePacket): Promise<boolean> {
    if (endpoint?.isLocal !== true || (await this.#routing.hasAddress(endpoint.address))) return true;
    const device = await this.#routing.interfaceTo(endpoint.address);
    if (device === undefined || this.#podsOn(device, family) !== undefined) return true;
    const network = masked(exactly(bytesOf(endpoint.address)), NETWORK[family]);
    const known = NETWORK[family];
    this.#pods.set(device, { ...this.#pods.get(device), [family]: { ...network, known } });
    return this.#pods.size < MOST_GROUPS;
  }

  async of(packet: ServicePacket): Promise<Judgement> {
    const { family, endpoint } = packet;
    const isHere = endpoint !== undefined && (await this.#routing.hasAddress(endpoint.address));
    const asks = this.seen.interfaces && !isHere && endpoint !== undefined;
    const device = asks ? await this.#routing.interfaceTo(endpoint.address) : undefined;
    if (device !== undefined) this.#used.add(device);
    if (endpoint !== undefined) this.#networks.set(networkOf(bytesOf(endpoint.address)), endpoint.address);
    const aimed = { ...packet, isHere, device };
    const key = this.#keyOf(aimed);
    let known = this.#known.get(key);
    if (known === undefined) {
      const request = await this.#ofClients(family, (client) => this.#request(aimed, client));
      const reply = await this.#ofClients(family, (client) => this.#reply(aimed, client));
      // A policy that drops both is one obstacle.
      const policies = new Set(request.obstacles.filter(({ rule }) => rule === undefined).map(endText));
      const others = reply.obstacles.filter((each) => each.rule !== undefined || !policies.has(endText(each)));
      const { clearing } = request;
      known = { obstacles: [...request.obstacles, ...others], clearing, unknown: request.unknown ?? reply.unknown };
      this.#known.set(key, known);
    }
    return known;
  }

  /**
   * Returns the interfaces by which pods and clients are known to come: those of the default route, of endpoints, and of
   * pods. A bridge with an address in the network of endpoints also has pods.
   */
  async usedInterfaces(): Promise<ReadonlySet<string>> {
    const used = new Set(this.#used);
    for (const to of [...Object.values(OUTSIDE), ...this.#networks.values()]) {
      const route = await this.#routing.route(to);
      if (typeof route !== "string") used.add(route.interfaceName);
    }
    for (const { name, kind, master } of await this.#routing.links()) {
      if (kind === "veth" && master === undefined) used.add(name);
    }
    for (const { address, interfaceName } of await this.kernel.interfaces.addresses()) {
      if (this.#networks.has(networkOf(address))) used.add(interfaceName);
    }
    return used;
  }

  /** Judges the packets of all clients. If that depends on their interface, judges those of each interface, and those of pods. */
  async #ofClients(family: IpFamily, judge: (client: Client) => Promise<Judgement>): Promise<Judgement> {
    const ofAll = await judge({});
    if (ofAll.unknown === undefined && ofAll.clearing.length === 0) return ofAll;
    this.#alike ??= this.#alikeInterfaces();
    const groups = await this.#alike;
    const isTried = (names: readonly string[]): boolean =>
      groups.length <= MOST_GROUPS || names.some((name) => this.#podsOn(name, family) !== undefined);
    if (!groups.some(isTried)) return ofAll;
    const each: (Judgement & { readonly names: readonly string[]; readonly isOfPods: boolean })[] = [];
    for (const names of groups) {
      const ofGroup = isTried(names) ? await judge({ device: names[0] }) : { ...ofAll, obstacles: [] };
      const pods = names.filter((name) => this.#podsOn(name, family) !== undefined);
      const others = names.filter((name) => !pods.includes(name));
      if (others.length > 0) each.push({ ...ofGroup, names: others, isOfPods: false });
      const [device] = pods;
      if (device === undefined) continue;
      const address = this.#podsOn(device, family);
      const ofPods = ofGroup.unknown === undefined ? ofGroup : await judge({ device, address });
      each.push({ ...ofPods, names: pods, isOfPods: true });
    }
    const dropped = each.filter(({ obstacles }) => obstacles.length > 0);
    const clearing = distinct(each.flatMap((one) => one.clearing));
    const unknown = each.find((one) => one.unknown !== undefined)?.unknown;
    if (dropped.length === 0) return { obstacles: [], clearing, unknown };
    const except = each.flatMap(({ obstacles, names }) => (obstacles.length > 0 ? [] : names));
    const ofPods = each.filter(({ isOfPods }) => isOfPods);
    const pods = ofPods.every(({ obstacles }) => obstacles.length > 0) ? ofPods.flatMap(({ names }) => names) : [];
    const more = { ...(except.length > 0 && { except }), ...(pods.length > 0 && { pods }) };
    return {
      obstacles: distinct(dropped.flatMap((one) => one.obstacles)).map((one) => ({ ...one, ...more })),
      clearing,
    };
  }

  #podsOn(device: string, family: IpFamily): Bits | undefined {
    return this.#pods.get(device)?.[family];
  }

  /** Groups the interfaces by which packets come such that rules treat those of a group alike. */
  async #alikeInterfaces(): Promise<readonly (readonly string[])[]> {
    const { compared, devices } = this.seen;
    const links = await this.#routing.links();
    const kinds = new Map(links.map(({ name, kind }) => [name, kind]));
    const groups = Map.groupBy(
      links.filter(({ name, master = "" }) => name !== "lo" && !JOINED.includes(kinds.get(master) ?? "")),
      (link) => {
        const { name, kind } = link;
        if (compared === undefined || kind === "bridge" || devices.includes(name)) return name;
        return compared.map(({ part, with: value }) => Number(equals(part(link), value))).join("");
      },
    );
    return Array.from(groups.values(), (group) => group.map(({ name }) => name));
  }

  #keyOf({ family, protocol, address, port = 0, endpoint, isHere, device }: Aimed): string {
    const { address: bits, port: portBits, vip: isVipSeen } = this.seen;
    const end = (text: string, number: number): string => {
      const seen = text === "" ? [] : bytesOf(text).map((byte, i) => byte & bits[family][i]);
      return `${seen.join(".")} ${number & portBits}`;
    };
    const vip = isVipSeen ? end(address ?? "", port) : "";
    const to = endpoint === undefined ? "any" : end(endpoint.address, endpoint.port);
    return `${family} ${protocol} ${isHere} ${endpoint?.isLocal} ${device} ${vip} ${to}`;
  }

  async #request(packet: Aimed, client: Client): Promise<Judgement> {
    const { family, protocol, address, port, endpoint, isHere, device } = packet;
    const state = new PacketState({ family, protocol, destination: address, destinationPort: port });
    state.set("sourcePort", CLIENT_PORT);
    if (client.address !== undefined) state.set("source", client.address);
    setInterfaces(state, client.device, "");
    const isEarly: IsMet = ({ base }) => base.priority < Priority.dstnat;
    const way = new Way(this.#worlds[family], state, this.#isForeign);
    await way.receive(client.device);
    await way.through(Hook.prerouting, isEarly);
    way.endUntracked();
    way.change((translated) => {
      translated.setValue("destination", endpoint?.address);
      translated.setValue("destinationPort", endpoint?.port);
      translated.ownMark = this.ownMark;
      translated.translated = translated.destinationChanged = true;
      // The bits are unknown.
      const [value, known] = wordOf(translated.mark);
      translated.mark = hostNumber(value, known & ~this.ownMark);
    });
    await way.through(Hook.prerouting, (chain) => !isEarly(chain));
    way.change((routed) => (routed.outInterface = isHere ? "" : device));
    await way.through(isHere ? Hook.input : Hook.forward);
    if (isHere) return way.judgement("original");
    const isBefore: IsMet = ({ base }) => base.priority < Priority.srcnat;
    await way.through(Hook.postrouting, isBefore);
    // The answer of an endpoint on this node comes back here, masqueraded or not.
    if (endpoint?.isLocal !== true) way.masquerade();
    await way.through(Hook.postrouting, (chain) => !isBefore(chain));
    await way.send(device);
    return way.judgement("original");
  }

  /** The translation of a reply back is the last thing that the kernel does, so rules see it before that. */
  async #reply(packet: Aimed, client: Client): Promise<Judgement> {
    const { family, protocol, endpoint, isHere, device } = packet;
    const source = { source: endpoint?.address, sourcePort: endpoint?.port };
    const state = new PacketState({ family, protocol, ...source }, "reply");
    state.set("destinationPort", CLIENT_PORT);
    if (client.address !== undefined) state.set("destination", client.address);
    state.translated = state.destinationChanged = true;
    setInterfaces(state, isHere ? "" : device, isHere ? client.device : "");
    const way = new Way(this.#worlds[family], state, this.#isForeign);
    if (!isHere) await way.receive(device);
    await way.through(isHere ? Hook.output : Hook.prerouting);
    way.endUntracked();
    way.change((routed) => (routed.outInterface = client.device));
    for (const hook of isHere ? [Hook.postrouting] : [Hook.forward, Hook.postrouting]) await way.through(hook);
    await way.send(client.device);
    return way.judgement("reply");
  }
}

/** The first bits of an address, which the pods of a cluster share in most clusters: 16, or 48 of IPv6. */
function networkOf(address: Uint8Array): string {
  return Buffer.from(address.subarray(0, address.length === 4 ? 2 : 6)).toString("hex");
}

/** A packet's path through hooks. */
class Way {
  readonly #passage: Passage;
  readonly #finals: Final[] = [];
  readonly #clearing: EndedBy[] = [];
  #here: readonly Branch[];

  constructor(world: World, begin: PacketState, isMet: IsMet) {
    this.#passage = new Passage(world, (final) => this.#finals.push(final), isMet);
    this.#here = [branchOf(begin)];
  }

  async through(hook: number, isMet?: IsMet): Promise<void> {
    this.#here = await this.#passage.through(hook, this.#here, undefined, undefined, isMet);
  }

  /** @param device undefined: unknown. */
  async receive(device: string | undefined): Promise<void> {
    const { inInterface, outInterface } = this.#here[0].state;
    this.#here = await this.#passage.receive(this.#here, device);
    this.change((state) => setInterfaces(state, inInterface, outInterface));
  }

  async send(device: string | undefined): Promise<void> {
    this.#here = await this.#passage.send(this.#here, device);
  }

  change(change: (state: PacketState) => unknown): void {
    this.#here = changed(this.#here, change);
  }

  /** Our rules masquerade packets whose bit of the mark is still set. */
  masquerade(): void {
    this.#clearing.push(...distinct(this.#here.flatMap(({ state }) => state.markClearedBy ?? [])));
    this.change((state) => Object.assign(state, { ownMark: 0, markClearedBy: undefined }));
  }

  /** Packets without an entry of the connection tracker are not translated, so their fate is unknown. */
  endUntracked(): void {
    const { true: untracked = [], false: tracked = [] } = Object.groupBy(this.#here, ({ state }) =>
      state.tracking === "untracked" ? "true" : "false",
    );
    const what = "a rule exempts packets from connection tracking (notrack), so they are not translated";
    this.#finals.push(...guessAll(untracked, what, "yes").map((branch): Final => ({ branch, verdict: "unknown" })));
    this.#here = tracked;
  }

  /** An obstacle is certain only if every branch drops the packet. */
  judgement(direction: Direction): Judgement {
    const drops = this.#finals.flatMap(({ by, verdict }) =>
      verdict === "unknown" ? [] : [{ ...by, verdict, direction }],
    );
    const isSure = this.#here.length === 0 && drops.length === this.#finals.length;
    const clearing = this.#clearing;
    if (drops.length > 0 && isSure) return { obstacles: drops.slice(0, 1), clearing };
    if (this.#finals.length === 0) return { obstacles: [], clearing };
    const [drop] = drops;
    const guess = this.#finals.flatMap(({ branch }) => [...branch.guesses.keys()])[0]?.replace(/'+$/, "");
    return { obstacles: [], clearing, unknown: drop === undefined ? guess : endText(drop) };
  }
}
