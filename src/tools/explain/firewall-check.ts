/**
 * Checks whether other programs' rules drop services' packets. It runs their base chains on the first packet to an
 * endpoint and on the endpoint's reply. The sender is unknown, so a finding applies to all clients, or to all of the
 * interfaces by which pods and clients are known to come.
 */
import type { FirewallStatus } from "../../observe/status-report.js";
import { TimeSlice } from "../../base/time-slice.js";
import { FLOWTABLE_REF } from "../../flowtable/operations.js";
import { CtKey, FibFlag, Hook, MetaKey, PayloadBase, Priority, TableFlag } from "../../netlink/constants.js";
import type { Expr, RuleInfo, TableRef } from "../../netlink/kernel.js";
import type { IpFamily } from "../../base/ip.js";
import { masked, withPart } from "./bits.js";
import { type Branch, changed, guessed } from "./branch.js";
import { OURS } from "./explain-packet.js";
import { IpSets } from "./ip-sets.js";
import { runHook } from "./run-hook.js";
import { type EndedBy, endText, type Final } from "./run-chain.js";
import type { World } from "./world.js";
import { bytesOf, CLIENT_PORT, type Direction, PacketState, SOURCE, type Transport } from "./packet.js";
import { type RoutedKernel, Routing } from "./routing.js";
import { isAt, type Passage, receive, send } from "./devices.js";
import { type HookedChain, Ruleset } from "./ruleset.js";

/** A service's packet, before and after translation. */
export interface ServicePacket {
  readonly family: IpFamily;
  readonly protocol: Transport;
  /** "namespace/name". */
  readonly service: string;
  /** The address that it is sent to. Absent: a node port at an address of this node. */
  readonly address?: string;
  readonly port: number;
  readonly endpoint: { readonly address: string; readonly port: number };
}

/** A rule or policy that drops services' packets. */
export interface Obstacle extends EndedBy {
  readonly verdict: "drop" | "reject";
  readonly direction: Direction;
  /** Interfaces of clients whose packets pass, or may pass. Absent if there are none. */
  readonly except?: readonly string[];
  /** "namespace/name", in the order of checking. */
  readonly services: readonly string[];
}

interface FirewallCheck extends FirewallStatus {
  readonly obstacles: readonly Obstacle[];
}

interface FirewallOptions {
  readonly kernel: RoutedKernel;
  /** "namespace/name" of all services. */
  readonly services: Iterable<string>;
  readonly packets: (service: string) => Iterable<ServicePacket>;
  /** Bits of the mark that our rules may set. */
  readonly ownMark: number;
  /** Default 500 ms. */
  readonly budgetMs?: number;
}

const BUDGET_MS = 500;
/** Larger tables are not read, because that would take longer than an answer may. */
const MOST_RULES = 2000;

const NONE: FirewallCheck = { obstacles: [], checked: 0, services: 0, unjudged: 0, unread: [] };

/**
 * Checks one packet per service, endpoint port and endpoint network, until the time budget is spent. Checks
 * nothing if no other program has base chains. Rejects with KernelError if the ruleset cannot be read.
 */
export async function checkFirewalls(options: FirewallOptions): Promise<FirewallCheck> {
  const { kernel, services, packets, budgetMs = BUDGET_MS } = options;
  const { tables, unread } = await foreignTables(kernel);
  if (tables.length === 0) return { ...NONE, unread };
  const judge = new Judge(options, tables, await seenFields(kernel, tables));
  const found = new Map<string, { readonly obstacle: Omit<Obstacle, "services">; readonly services: Set<string> }>();
  const unjudged = new Set<string>();
  let unjudgedRule: string | undefined;
  let [checked, all] = [0, 0];
  const until = performance.now() + budgetMs;
  const slice = new TimeSlice();
  for (const service of services) {
    all++;
    if (performance.now() >= until) continue;
    for (const packet of packets(service)) {
      const { obstacles, unknown } = await judge.of(packet);
      if (unknown !== undefined) unjudged.add(service);
      unjudgedRule ??= unknown;
      for (const obstacle of obstacles) {
        const key = JSON.stringify(obstacle);
        const known = found.get(key);
        if (known === undefined) found.set(key, { obstacle, services: new Set([service]) });
        else known.services.add(service);
      }
      if (slice.spent) await slice.yield();
    }
    checked++;
  }
  const hasExceptions = [...found.values()].some(({ obstacle }) => obstacle.except !== undefined);
  const used = hasExceptions ? await judge.usedInterfaces() : new Set<string>();
  const [passed, dropped] = parted([...found.values()], ({ obstacle }) =>
    (obstacle.except ?? []).some((name) => used.has(name)),
  );
  for (const { obstacle, services: some } of passed) {
    for (const service of some) unjudged.add(service);
    unjudgedRule ??= endText(obstacle);
  }
  return {
    obstacles: dropped.map((each) => ({ ...each.obstacle, services: [...each.services] })),
    checked,
    services: all,
    unjudged: unjudged.size,
    unjudgedRule,
    unread,
  };
}

function parted<T>(all: readonly T[], holds: (one: T) => boolean): [T[], T[]] {
  return [all.filter(holds), all.filter((one) => !holds(one))];
}

const OWN: readonly string[] = [...OURS, FLOWTABLE_REF.table];

/** Tables of other programs with base chains that such packets pass. */
async function foreignTables(
  kernel: RoutedKernel,
): Promise<{ readonly tables: readonly TableRef[]; readonly unread: string[] }> {
  const tables: TableRef[] = [];
  const unread: string[] = [];
  for (const { family, table, flags } of await kernel.tables()) {
    if (family === "arp" || OWN.includes(table) || (flags & TableFlag.dormant) !== 0) continue;
    const chains = await kernel.chains({ family, table });
    if (!chains.some(({ base }) => base !== undefined && base.type !== "nat")) continue;
    // A chain's `use` counts its rules and the references to it.
    const rules = chains.reduce((sum, { use }) => sum + use, 0);
    if (rules > MOST_RULES) unread.push(`${family} ${table} (${rules} rules)`);
    else tables.push({ family, table });
  }
  return { tables, unread };
}

/** Header bits that some rule reads. Packets that are equal in these bits are treated alike. */
interface SeenFields {
  readonly network: Uint8Array;
  readonly transport: Uint8Array;
  readonly interfaces: boolean;
  /** Names of interfaces with which rules compare, or their beginnings. Undefined if rules look at interfaces in other ways. */
  readonly names: readonly Uint8Array[] | undefined;
  /** Devices that have chains. */
  readonly devices: readonly string[];
  /** Whether some rule sees a packet's original destination, before translation or through its connection. */
  readonly vip: boolean;
}

const INTERFACES: readonly number[] = [MetaKey.iifname, MetaKey.oifname];
/** Equal for all services' connections. */
const STATES: readonly number[] = [CtKey.state, CtKey.status, CtKey.direction, CtKey.mark, CtKey.labels];

async function seenFields(kernel: RoutedKernel, tables: readonly TableRef[]): Promise<SeenFields> {
  const [network, transport] = [new Uint8Array(40), new Uint8Array(20)];
  let [interfaces, vip, otherwise] = [false, false, false];
  const names: Uint8Array[] = [];
  const devices: string[] = [];
  for (const ref of tables) {
    for (const { base } of await kernel.chains(ref)) {
      // Chains of devices and bridges see packets before translation, and each only those of some interfaces.
      const isDevices = base?.devices !== undefined || ref.family === "bridge";
      interfaces ||= isDevices;
      devices.push(...(base?.devices ?? []));
      vip ||= isDevices || (base?.hook === Hook.prerouting && base.type !== "nat" && base.priority < Priority.dstnat);
    }
    for (const { exprs } of await kernel.rules(ref)) {
      const loads = exprs.some((expr) => expr.type === "meta" && INTERFACES.includes(expr.key));
      interfaces ||= loads;
      otherwise ||= exprs.some((expr) => (loads && !COMPARED.includes(expr.type)) || isOfInterface(expr));
      if (loads) names.push(...exprs.flatMap((expr) => (expr.type === "cmp" ? [expr.data] : [])));
      // The addresses and ports of a connection are those in the headers of its first packet.
      const seesEnds = exprs.some((expr) => expr.type === "ct" && !STATES.includes(expr.key));
      vip ||= seesEnds;
      if (seesEnds || exprs.some(({ type }) => type === "fib")) network.fill(0xff);
      if (seesEnds) transport.fill(0xff);
      exprs.forEach((expr, i) => addSeen(expr, exprs[i + 1], network, transport));
    }
  }
  return { network, transport, interfaces, names: otherwise ? undefined : names, devices, vip };
}

/** Expressions that use an interface's name only to compare it, or not at all. */
const COMPARED: readonly Expr["type"][] = [
  "meta",
  "cmp",
  "payload",
  "ct",
  "counter",
  "immediate",
  "opaque",
  "limit",
  "log",
];

function isOfInterface(expr: Expr): boolean {
  return expr.type === "fib" && (expr.flags & (FibFlag.iif | FibFlag.oif)) !== 0;
}

function addSeen(
  expr: Expr,
  next: RuleInfo["exprs"][number] | undefined,
  network: Uint8Array,
  transport: Uint8Array,
): void {
  if (expr.type !== "payload" || expr.dreg === undefined) return;
  const into =
    expr.base === PayloadBase.network ? network : expr.base === PayloadBase.transport ? transport : undefined;
  if (into === undefined) return;
  const mask = next?.type === "bitwise" && next.sreg === expr.dreg && next.dreg === expr.dreg ? next.mask : undefined;
  const end = Math.min(expr.offset + expr.len, into.length);
  for (let at = expr.offset; at < end; at++) into[at] |= mask?.[at - expr.offset] ?? 0xff;
}

/** The verdict on one packet and its reply. */
interface Judgement {
  readonly obstacles: readonly Omit<Obstacle, "services">[];
  /** A deciding rule that cannot be evaluated. */
  readonly unknown?: string;
}

/** Documentation addresses, which stand for clients outside the cluster. */
const OUTSIDE = { ip: "192.0.2.1", ip6: "2001:db8::1" } as const;
/** Kinds of interfaces through which the packets of their members come. */
const JOINED: readonly string[] = ["bridge", "bond", "team"];
/** Maximum number of groups of interfaces to judge for one packet. */
const MOST_GROUPS = 16;

class Judge {
  readonly #rulesets: Readonly<Record<IpFamily, Ruleset>>;
  readonly #routing: Routing;
  readonly #foreign: ReadonlySet<string>;
  readonly #seen: SeenFields;
  readonly #ownMark: number;
  readonly #ipSets: IpSets;
  readonly #interfaces: RoutedKernel["interfaces"];
  /** Interfaces of routes to endpoints. */
  readonly #used = new Set<string>();
  /** An endpoint of each network. */
  readonly #networks = new Map<string, string>();
  #alike: Promise<readonly (readonly string[])[]> | undefined;
  /** By the header bits that rules read. */
  readonly #known = new Map<string, Judgement>();

  constructor({ kernel, ownMark }: FirewallOptions, tables: readonly TableRef[], seen: SeenFields) {
    this.#rulesets = { ip: new Ruleset(kernel, "ip"), ip6: new Ruleset(kernel, "ip6") };
    this.#routing = new Routing(kernel);
    this.#ipSets = new IpSets(kernel);
    this.#interfaces = kernel.interfaces;
    this.#foreign = new Set(tables.map(({ family, table }) => `${family} ${table}`));
    this.#seen = seen;
    this.#ownMark = ownMark;
  }

  async of(packet: ServicePacket): Promise<Judgement> {
    const { family, endpoint } = packet;
    const isHere = await this.#routing.hasAddress(endpoint.address);
    const asks = this.#seen.interfaces && !isHere;
    const interfaceName = asks ? await this.#routing.interfaceTo(family, endpoint.address) : undefined;
    if (interfaceName !== undefined) this.#used.add(interfaceName);
    this.#networks.set(networkOf(bytesOf(endpoint.address)), endpoint.address);
    const key = this.#keyOf(packet, isHere, interfaceName);
    let known = this.#known.get(key);
    if (known === undefined) {
      const request = await this.#ofClients((client) => this.#request(packet, isHere, interfaceName, client));
      const reply = await this.#ofClients((client) => this.#reply(packet, isHere, interfaceName, client));
      // A policy that drops both is one obstacle.
      const policies = new Set(request.obstacles.filter(({ rule }) => rule === undefined).map(endText));
      const others = reply.obstacles.filter((each) => each.rule !== undefined || !policies.has(endText(each)));
      known = { obstacles: [...request.obstacles, ...others], unknown: request.unknown ?? reply.unknown };
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
    for (const { address, interfaceName } of await this.#interfaces.addresses()) {
      if (this.#networks.has(networkOf(address))) used.add(interfaceName);
    }
    return used;
  }

  /** Judges the packets of all clients. If that depends on their interface, judges those of each interface. */
  async #ofClients(judge: (client: string | undefined) => Promise<Judgement>): Promise<Judgement> {
    const ofAll = await judge(undefined);
    if (ofAll.unknown === undefined) return ofAll;
    this.#alike ??= this.#alikeInterfaces();
    const each: (Judgement & { readonly names: readonly string[] })[] = [];
    for (const names of await this.#alike) each.push({ names, ...(await judge(names[0])) });
    const [dropped, passed] = parted(each, ({ obstacles }) => obstacles.length > 0);
    if (each.length === 0) return ofAll;
    if (dropped.length === 0)
      return { obstacles: [], unknown: each.find(({ unknown }) => unknown !== undefined)?.unknown };
    const except = passed.flatMap(({ names }) => names);
    const obstacles = new Map(
      dropped.flatMap((one) => one.obstacles.map((obstacle) => [JSON.stringify(obstacle), obstacle] as const)),
    );
    return { obstacles: Array.from(obstacles.values(), (one) => (except.length === 0 ? one : { ...one, except })) };
  }

  /** Groups the interfaces by which packets come such that rules treat those of a group alike. Empty if there are too many. */
  async #alikeInterfaces(): Promise<readonly (readonly string[])[]> {
    const { names, devices } = this.#seen;
    const links = await this.#routing.links();
    const kinds = new Map(links.map(({ name, kind }) => [name, kind]));
    const groups = Map.groupBy(
      links.filter(({ name, master = "" }) => name !== "lo" && !JOINED.includes(kinds.get(master) ?? "")),
      ({ name, kind }) => {
        if (names === undefined || kind === "bridge" || devices.includes(name)) return name;
        const bytes = new Uint8Array(16);
        bytes.set(Buffer.from(name));
        return names.map((prefix) => Number(prefix.every((byte, i) => byte === bytes[i]))).join("");
      },
    );
    if (groups.size > MOST_GROUPS) return [];
    return Array.from(groups.values(), (group) => group.map(({ name }) => name));
  }

  #keyOf(
    { family, protocol, address, port, endpoint }: ServicePacket,
    isHere: boolean,
    interfaceName: string | undefined,
  ): string {
    const end = (text: string, number: number): string => {
      const [at, length] = [SOURCE[family][0], SOURCE[family][1] * 2];
      const { network, transport } = this.#seen;
      return `${maskedAddress(text, network.subarray(at, at + length))} ${maskedPort(number, transport)}`;
    };
    const vip = this.#seen.vip ? end(address ?? "", port) : "";
    return `${family} ${protocol} ${isHere} ${interfaceName} ${vip} ${end(endpoint.address, endpoint.port)}`;
  }

  /** A request from an unknown sender. */
  async #request(
    packet: ServicePacket,
    isHere: boolean,
    interfaceName: string | undefined,
    client: string | undefined,
  ): Promise<Judgement> {
    const { family, protocol, address, port, endpoint } = packet;
    const state = new PacketState({ family, protocol, destination: address, destinationPort: port });
    state.transport = withPart(state.transport, 0, CLIENT_PORT);
    state.inInterface = client;
    state.outInterface = "";
    const isEarly = ({ base }: HookedChain): boolean => base.priority < Priority.dstnat;
    const way = this.#way(state);
    await way.receive(client);
    await way.through(Hook.prerouting, isEarly);
    way.change((received) => received.track());
    way.endUntracked();
    way.change((translated) => {
      translated.destination = endpoint.address;
      translated.destinationPort = endpoint.port;
      translated.translated = translated.destinationChanged = true;
      translated.mark = {
        bytes: masked(translated.mark, marksBut(this.#ownMark), undefined).bytes,
        known: marksBut(this.#ownMark),
      };
    });
    await way.through(Hook.prerouting, (chain) => !isEarly(chain));
    way.change((routed) => (routed.outInterface = isHere ? "" : interfaceName));
    for (const hook of isHere ? [Hook.input] : [Hook.forward, Hook.postrouting]) await way.through(hook);
    if (!isHere) await way.send(interfaceName);
    return way.judgement("original");
  }

  /**
   * A reply to an unknown sender. Its translation back is the last thing that the kernel does, so rules see it before
   * that.
   */
  async #reply(
    { family, protocol, endpoint }: ServicePacket,
    isHere: boolean,
    interfaceName: string | undefined,
    client: string | undefined,
  ): Promise<Judgement> {
    const source = { source: endpoint.address, sourcePort: endpoint.port };
    const state = new PacketState({ family, protocol, ...source }, "reply");
    state.transport = withPart(state.transport, 2, CLIENT_PORT);
    state.translated = state.destinationChanged = true;
    state.inInterface = isHere ? "" : interfaceName;
    state.outInterface = isHere ? client : "";
    const way = this.#way(state);
    if (!isHere) await way.receive(interfaceName);
    await way.through(isHere ? Hook.output : Hook.prerouting);
    way.endUntracked();
    way.change((routed) => (routed.outInterface = client));
    for (const hook of isHere ? [Hook.postrouting] : [Hook.forward, Hook.postrouting]) await way.through(hook);
    await way.send(client);
    return way.judgement("reply");
  }

  #way(state: PacketState): Way {
    return new Way(this.#world(state.family), this.#routing, branchOf(state), (chain) => this.#isForeign(chain));
  }

  #isForeign({ ref, base }: HookedChain): boolean {
    return base.type !== "nat" && this.#foreign.has(`${ref.family} ${ref.table}`);
  }

  #world(family: IpFamily): World {
    return {
      ruleset: this.#rulesets[family],
      isOurs: () => false,
      addressType: (address) => this.#routing.addressType(address),
      interfaceTo: (address) => this.#routing.interfaceTo(family, address),
      addressesOf: (device) => this.#routing.addressesOf(device),
      isInIpSet: (set, address) => this.#ipSets.has(set, address),
      isBridged: (device) => this.#routing.isBridged(family, device),
      draw: 0,
      onDraw: () => undefined,
      traced: false,
    };
  }
}

/** The first bits of an address, which the pods of a cluster share in most clusters: 16, or 48 of IPv6. */
function networkOf(address: Uint8Array): string {
  return Buffer.from(address.subarray(0, address.length === 4 ? 2 : 6)).toString("hex");
}

/** @param seen header bits that rules read: first those of the source address, then those of the destination. */
function maskedAddress(text: string, seen: Uint8Array): string {
  if (text === "" || seen.every((byte) => byte === 0)) return "";
  const bytes = bytesOf(text);
  const masked = bytes.map((byte, i) => byte & ((seen[i] ?? 0) | (seen[i + bytes.length] ?? 0)));
  return Buffer.from(masked).toString("hex");
}

/** The bits of a port that some rule reads in the source or the destination port. */
function maskedPort(port: number, seen: Uint8Array): number {
  const [source, destination] = [0, 2].map((at) => (seen[at] ?? 0) * 256 + (seen[at + 1] ?? 0));
  return port & ((source ?? 0) | (destination ?? 0));
}

/** The mask of all other bits of the mark. */
function marksBut(bits: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(~bits).buffer);
}

function branchOf(state: PacketState): Branch {
  return { state, steps: [], guesses: new Map(), limited: false };
}

/** A packet's path through hooks. */
class Way {
  readonly #world: World;
  readonly #passage: Passage;
  readonly #isMet: (chain: HookedChain) => boolean;
  readonly #finals: Final[] = [];
  #here: readonly Branch[];

  constructor(world: World, routing: Routing, begin: Branch, isMet: (chain: HookedChain) => boolean) {
    this.#world = world;
    this.#isMet = isMet;
    this.#here = [begin];
    this.#passage = {
      ruleset: world.ruleset,
      routing,
      through: async (point, branches, change, device, isHere = () => true) => {
        const here = change === undefined ? branches : changed(branches, change);
        return this.#pass(point, here, (chain) => isAt(chain, device) && isHere(chain));
      },
    };
  }

  async #pass(
    point: number,
    branches: readonly Branch[],
    isMet: (chain: HookedChain) => boolean,
  ): Promise<readonly Branch[]> {
    const met = (chain: HookedChain): boolean => this.#isMet(chain) && isMet(chain);
    const { passed, finals } = await runHook(this.#world, point, branches, met);
    this.#finals.push(...finals);
    return passed;
  }

  async through(hook: number, isMet: (chain: HookedChain) => boolean = () => true): Promise<void> {
    this.#here = await this.#pass(hook, this.#here, isMet);
  }

  /** @param device undefined: unknown. */
  async receive(device: string | undefined): Promise<void> {
    const { inInterface, outInterface } = this.#here[0]?.state ?? {};
    this.#here = await receive(this.#passage, this.#here, device);
    this.change((state) => Object.assign(state, { inInterface, outInterface }));
  }

  async send(device: string | undefined): Promise<void> {
    this.#here = await send(this.#passage, this.#here, device);
  }

  change(change: (state: PacketState) => unknown): void {
    this.#here = changed(this.#here, change);
  }

  /** Packets without an entry of the connection tracker are not translated, so their fate is unknown. */
  endUntracked(): void {
    const [untracked, tracked] = parted(this.#here, ({ state }) => state.tracking === "untracked");
    const what = "a rule exempts packets from connection tracking (notrack), so they are not translated";
    this.#finals.push(
      ...untracked.map((branch): Final => ({ branch: guessed(branch, what, "yes"), verdict: "unknown" })),
    );
    this.#here = tracked;
  }

  /** An obstacle is certain only if every branch drops the packet. */
  judgement(direction: Direction): Judgement {
    const drops = this.#finals.flatMap(({ by, verdict }) =>
      verdict === "unknown" ? [] : [{ ...by, verdict, direction }],
    );
    const isSure = this.#here.length === 0 && drops.length === this.#finals.length;
    if (drops.length > 0 && isSure) return { obstacles: drops.slice(0, 1) };
    if (this.#finals.length === 0) return { obstacles: [] };
    const [drop] = drops;
    const guess = this.#finals.flatMap(({ branch }) => [...branch.guesses.keys()])[0]?.replace(/'+$/, "");
    return { obstacles: [], unknown: drop === undefined ? guess : endText(drop) };
  }
}
