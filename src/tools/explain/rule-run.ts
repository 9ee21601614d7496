/**
 * Runs one rule on one branch of a packet. It covers every nf_tables expression; those that it cannot evaluate give
 * "maybe".
 */
import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { counted } from "../../base/counted.js";
import { formatAddress, type IpFamily } from "../../base/ip.js";
import {
  AddressType,
  BitwiseOp,
  CtKey,
  DynsetOp,
  Hook,
  HOOK_NAMES,
  LookupFlag,
  MetaKey,
  NatFlag,
  NatType,
  NfProto,
  PayloadBase,
  RangeOp,
  RejectType,
  VERDICT_REGISTER,
} from "../../netlink/constants.js";
import type { Expr, SetDump, Verdict } from "../../netlink/kernel.js";
import {
  type Bits,
  common,
  compares,
  equals,
  exactly,
  hostNumber,
  isKnown,
  isWithin,
  masked,
  numberUpTo,
  partOf,
  shifted,
  swapped,
  type Ternary,
  textOf,
  unknownBits,
  withPart,
} from "./bits.js";
import { type Branch, guessed } from "./branch.js";
import { IP_SETS } from "./ip-sets.js";
import { jhash } from "./jhash.js";
import { type Effect, type Place, type RuleEnd, whereOf, type World } from "./world.js";
import { bytesOf, DESTINATION, LOOPBACK, type PacketState, SOURCE } from "./packet.js";
import type { Found } from "./ruleset.js";
import { keyText, valueText } from "./set-text.js";
import { ctValue, fibValue, metaValue } from "./values.js";
import { matches } from "./xt-match.js";
import {
  connmarkedBy,
  destinationOf,
  type Extension,
  GOES_ON,
  isNotrack,
  mapsSet,
  markedBy,
  setsZone,
  targetOf,
} from "./xtables.js";

type Of<T extends Expr["type"]> = Extract<Expr, { type: T }>;

/**
 * The effect of an expression. "maybe": the rule may end or continue. "ended": all branches in which the rule ends are
 * recorded.
 */
type Done = Effect | "maybe" | "ended";

/** 16 words after the verdict register. */
const REGISTERS = 64;
/** Length of the result of an expression unknown to this program, bytes. */
const LONGEST = 16;
/** NFT_OBJECT_*: object kinds that match every packet. The other kinds match only in excess. */
const HOLDING = new Set([1, 3, 6, 7, 8, 9]);
/** Maximum size of a packet, bytes. */
const LARGEST_PACKET = 65_536n;
/** NFT_LIMIT_F_INV, NFT_QUOTA_F_INV, NFT_CONNLIMIT_F_INV: match in excess. */
const INVERTED = 1;
/** The kernel chooses another port. */
const RANDOM = NatFlag.protoRandom | NatFlag.protoRandomFully;
const MASQUERADED = "masqueraded: the endpoint sees an address of this node";
/** NFT_OBJECT_SYNPROXY */
const SYNPROXY = 10;
/** Maximum number of verdicts of one map to follow if its key is unknown. */
const MOST_VERDICTS = 16;

export class RuleRun {
  readonly #world: World;
  readonly #place: Place;
  readonly #ends: RuleEnd[] = [];
  readonly #ours: boolean;
  #branch: Branch;
  /** Registers are unknown until an expression writes them. */
  #registers: Bits = unknownBits(REGISTERS);
  #hasOwnState = false;
  #forks = 0;

  constructor(world: World, place: Place, branch: Branch) {
    this.#world = world;
    this.#place = place;
    this.#branch = branch;
    this.#ours = world.isOurs(place.ref);
  }

  /** Returns the branches at their ends. Branches in which the rule does not match come first. */
  async run(): Promise<readonly RuleEnd[]> {
    for (const expr of this.#place.rule.exprs) {
      const done = await this.#expr(expr);
      if (done === "ended") return this.#ends;
      if (done === "maybe") this.#fork();
      else if (typeof done === "object" && done.verdict === "break") return this.#end("break");
      else if (done !== "next" && (typeof done !== "object" || done.verdict !== "continue")) return this.#end(done);
    }
    return this.#end("next");
  }

  #end(effect: Effect): readonly RuleEnd[] {
    if (effect === "unknown") this.#guess("its effect on the packet");
    if (typeof effect === "object" && effect.verdict === "queue") this.#guess("the decision of a program");
    if (typeof effect === "object" && effect.verdict === "drop") this.#step(this.#ours ? "drop" : this.#ruleText());
    this.#ends.push({ branch: this.#branch, effect });
    return this.#ends;
  }

  /** Forks the branch; in one of the two the rule ends here. */
  #fork(): void {
    const what = `${whereOf(this.#place)}${"'".repeat(this.#forks++)}`;
    this.#ends.push({ branch: guessed(this.#branch, what, "no"), effect: "break" });
    this.#hasOwnState = false;
    this.#branch = guessed(this.#branch, what, "yes");
  }

  #guess(why: string): void {
    this.#branch = guessed(this.#branch, `${whereOf(this.#place)}: ${why}`, "yes");
  }

  /** The state for modification: a copy that only this branch uses. */
  get #state(): PacketState {
    if (!this.#hasOwnState) {
      this.#branch = { ...this.#branch, state: this.#branch.state.clone() };
      this.#hasOwnState = true;
    }
    return this.#branch.state;
  }

  // One case per expression, because this is shorter than a table of functions with their types.
  async #expr(expr: Expr): Promise<Done> {
    if ("extra" in expr && expr.extra !== undefined && expr.extra.length > 0) return this.#notKnown();
    switch (expr.type) {
      case "payload":
        return this.#payload(expr);
      case "meta":
        return expr.sreg === undefined
          ? this.#load(expr.dreg, metaValue(expr.key, this.#branch.state, this.#place.ref.family))
          : this.#setMeta(expr);
      case "ct":
        return expr.sreg === undefined
          ? this.#load(expr.dreg, ctValue(expr.key, expr.direction, this.#branch.state, this.#place.ref.family))
          : this.#setCt(expr);
      case "cmp":
        return judged(compares(this.#read(expr.sreg, expr.data.length), expr.op, expr.data));
      case "range": {
        const within = isWithin(this.#read(expr.sreg, expr.from.length), expr.from, expr.to);
        return judged(within === undefined ? undefined : within === (expr.op === RangeOp.eq));
      }
      case "bitwise":
        return this.#bitwise(expr);
      case "byteorder":
        return this.#write(expr.dreg, swapped(this.#read(expr.sreg, expr.len), expr.size));
      case "lookup":
        return this.#lookup(expr);
      case "immediate":
        if ("verdict" in expr.data) return expr.data;
        return this.#write(expr.dreg, exactly(expr.data));
      case "numgen":
        return this.#number(expr.dreg, expr.modulus, expr.offset);
      case "hash":
        return this.#hash(expr);
      case "fib":
        return this.#load(expr.dreg, await fibValue(expr, this.#branch.state, this.#world));
      default:
        return this.#statement(expr);
    }
  }

  #statement(expr: Expr): Done | Promise<Done> {
    switch (expr.type) {
      case "nat":
        return this.#nat(expr);
      case "masq":
        return this.#masquerade(MASQUERADED, undefined, ((expr.flags ?? 0) & RANDOM) !== 0);
      case "redir":
        return this.#redirect(expr);
      case "reject":
        return this.#reject(expr.rejectType === RejectType.tcpReset ? "reset" : "error");
      case "notrack":
        return this.#exempt();
      case "limit":
      case "connlimit":
        return this.#limit(expr);
      case "quota":
        return quota(expr);
      case "objref":
        return this.#object(expr);
      case "dynset":
        return this.#dynset(expr);
      case "counter":
      case "log":
      case "last":
        return "next";
      case "flow_offload":
        // Applies only to established connections.
        return this.#branch.state.direction === "original" ? "break" : "maybe";
      case "exthdr":
        // Reads an unknown header option. Writing one changes nothing that is decided here.
        return expr.dreg === undefined ? "maybe" : this.#notKnown(expr.dreg, expr.len);
      case "rt":
      case "socket":
        return this.#notKnown(expr.dreg, LONGEST);
      case "queue":
        return { verdict: "queue" };
      case "tproxy":
        return this.#maybeGone();
      case "opaque":
        return this.#opaque(expr);
      default:
        return this.#notKnown();
    }
  }

  #reject(how: "reset" | "error"): Done {
    // A bridge sends the answer by itself.
    if (this.#place.ref.family === "bridge") return "unknown";
    const { protocol, isError } = this.#branch.state;
    // No error answers another one.
    if (isError || (how === "reset" && protocol !== "tcp")) return { verdict: "drop" };
    this.#state.rejectedWith = how;
    const what = how === "reset" ? "a TCP reset" : "an ICMP error";
    this.#step(`rejected with ${what}${this.#ours ? "" : `: ${this.#ruleText()}`}`);
    return "reject";
  }

  /** Exempts the packet from connection tracking, unless it already has an entry. */
  #exempt(): Done {
    if (this.#branch.state.tracking !== "tracked") this.#state.tracking = "untracked";
    return "next";
  }

  /** Writes an unknown value; the rule may end. If the target register is unknown, all registers become unknown. */
  #notKnown(register?: number, length = REGISTERS): Done {
    if (register === undefined) this.#registers = unknownBits(REGISTERS);
    else this.#write(register, unknownBits(Math.min(length, REGISTERS)));
    return "maybe";
  }

  /** "break": the value does not exist. "maybe": it may not exist. */
  #load(register: number | undefined, value: Bits | "break" | { readonly maybe: Bits }): Done {
    if (value === "break") return "break";
    const [bits, done] = "maybe" in value ? ([value.maybe, "maybe"] as const) : ([value, "next"] as const);
    if (register !== undefined) this.#write(register, bits);
    return done;
  }

  #payload({ base, offset, len, dreg, sreg }: Of<"payload">): Done {
    if (dreg === undefined) return sreg === undefined ? "next" : this.#rewrite(base, offset, this.#read(sreg, len));
    const { network, transport } = this.#branch.state;
    const header = base === PayloadBase.network ? network : base === PayloadBase.transport ? transport : undefined;
    if (header === undefined || offset + len > header.bytes.length) return this.#notKnown(dreg, len);
    return this.#write(dreg, partOf(header, offset, len));
  }

  /** Data beyond the headers does not affect any decision here. */
  #rewrite(base: number, offset: number, bits: Bits): Done {
    const { network, transport, family } = this.#branch.state;
    // The next device may not accept the packet.
    if (base === PayloadBase.link) return "unknown";
    const header = base === PayloadBase.network ? network : base === PayloadBase.transport ? transport : undefined;
    if (header === undefined || offset + bits.bytes.length > header.bytes.length) return "next";
    if (!this.#ours && !isHarmless(header, offset, bits, base === PayloadBase.network ? FREE[family] : NOTHING_FREE))
      return "unknown";
    this.#state[base === PayloadBase.network ? "network" : "transport"] = withPart(header, offset, bits);
    if (base === PayloadBase.network && isKnown(bits)) {
      for (const [side, [at, length]] of [
        ["source", SOURCE[family]],
        ["destination", DESTINATION[family]],
      ] as const) {
        if (offset === at && bits.bytes.length === length)
          this.#step(`${side} set to ${formatAddress(bits.bytes)} for routing`);
      }
    }
    return "next";
  }

  #setMeta({ key, sreg = 0 }: Of<"meta">): Done {
    if (key === MetaKey.mark) this.#state.mark = this.#read(sreg, 4);
    if (key === MetaKey.priority) this.#state.priority = this.#read(sreg, 4);
    if (key !== MetaKey.pkttype) return "next";
    const type = this.#read(sreg, 1);
    this.#state.packetType = type;
    // ip_rcv_core, ip_forward and tcp_v4_rcv drop packets for other hosts, or for several.
    return !isKnown(type) || type.bytes[0] !== 0 ? "unknown" : "next";
  }

  /** Has no effect on a packet without an entry (nft_ct_set_eval). */
  #setCt({ key, sreg = 0 }: Of<"ct">): Done {
    // The connection is another one in each zone, and a reply has to be in the same one.
    if (key === CtKey.zone && this.#branch.state.tracking === "not yet") return "unknown";
    if (this.#branch.state.tracking !== "tracked") return "next";
    if (key === CtKey.mark) this.#state.ctMark = this.#read(sreg, 4);
    if (key === CtKey.labels) this.#state.ctLabels = unknownBits(16);
    return "next";
  }

  #bitwise({ sreg, dreg, len, op = BitwiseOp.maskXor, mask, xor, data }: Of<"bitwise">): Done {
    const value = this.#read(sreg, len);
    if (op === BitwiseOp.maskXor && mask !== undefined) return this.#write(dreg, masked(value, mask, xor));
    const isShift = op === BitwiseOp.lshift || op === BitwiseOp.rshift;
    if (!isShift || data?.length !== 4 || len % 4 !== 0) return this.#write(dreg, unknownBits(len));
    const by = new Uint32Array(Uint8Array.from(data).buffer)[0] ?? 0;
    return this.#write(dreg, shifted(value, by, op === BitwiseOp.lshift));
  }

  /** Our rules draw an endpoint, and each number is tried. For other programs' rules any number is possible. */
  #number(register: number, modulus: number, offset = 0): Done {
    if (!this.#ours) return this.#write(register, offset === 0 ? numberUpTo(modulus - 1) : unknownBits(4));
    this.#world.onDraw(modulus);
    return this.#write(register, hostNumber(offset + (this.#world.draw % modulus)));
  }

  /** nft_jhash_eval: scales the hash to a number below the modulus. A seed that the kernel chose is not reported. */
  #hash({ sreg, dreg, len = 0, modulus, seed, offset = 0 }: Of<"hash">): Done {
    const key = sreg === undefined ? undefined : this.#read(sreg, len);
    if (seed === undefined || key === undefined || !isKnown(key)) return this.#number(dreg, modulus, offset);
    return this.#write(dreg, hostNumber(Number((BigInt(jhash(key.bytes, seed)) * BigInt(modulus)) >> 32n) + offset));
  }

  async #lookup({ set: name, sreg, dreg, flags = 0 }: Of<"lookup">): Promise<Done> {
    const { ref } = this.#place;
    const { ruleset } = this.#world;
    const set = await ruleset.set(ref, name);
    if (set === undefined) return this.#notKnown(dreg);
    const key = this.#read(sreg, set.keyLen);
    const { found, none } = await ruleset.lookUp(ref, set, key);
    const changed = this.#branch.state.changedSets.has(this.#setId(name));
    if (changed || found === undefined)
      return dreg === VERDICT_REGISTER ? "unknown" : this.#notKnown(dreg, set.dataLen);
    const isMiss = found.length === 0;
    // An element may count or limit, and so match only some packets.
    const guarded = !isMiss && !this.#ours && ruleset.isGuarded(set);
    const hit: Ternary = isMiss ? false : none || guarded ? undefined : true;
    if ((flags & LookupFlag.invert) !== 0) return judged(hit === undefined ? undefined : !hit);
    if (isMiss) return "break";
    if (found.length === 1 && isKnown(key)) this.#tellFound(set, key.bytes, found[0]);
    if (hit === undefined) this.#fork();
    return dreg === undefined ? "next" : this.#found(set, dreg, found);
  }

  /** Applies the verdict or value of the elements that may have been found. */
  #found(set: SetDump, dreg: number, found: readonly Found[]): Done {
    if (dreg !== VERDICT_REGISTER) {
      const values = found.flatMap(({ data }) => (data === undefined ? [] : [data]));
      return values.length === 0 ? "next" : this.#write(dreg, common(values));
    }
    const verdicts = new Map(
      found.flatMap(({ verdict }) => (verdict === undefined ? [] : [[JSON.stringify(verdict), verdict]])),
    );
    const [first, ...others] = verdicts.values();
    if (others.length === 0) return first ?? "next";
    if (others.length > MOST_VERDICTS) return "unknown";
    const what = `${whereOf(this.#place)}: the matching element of ${set.set}`;
    for (const [i, verdict] of [...verdicts.values()].entries())
      this.#endOne(guessed(this.#branch, what, String(i)), verdict);
    return "ended";
  }

  #endOne(branch: Branch, verdict: Verdict): void {
    this.#ends.push({ branch, effect: verdict.verdict === "continue" ? "next" : verdict });
  }

  /** Anonymous sets are part of their rule and are not reported. */
  #tellFound(set: SetDump, key: Uint8Array, found: Found): void {
    if (set.set.startsWith("__")) return;
    const value = valueText(set, found);
    this.#step(`${set.set}: ${keyText(set, key)}${value === undefined ? "" : ` → ${value}`}`);
  }

  #limit(expr: Of<"limit" | "connlimit">, set?: string): Done {
    if (!this.#ours) return "maybe";
    if (((expr.flags ?? 0) & INVERTED) === 0) return "next";
    const what = expr.type === "limit" ? "rate" : `limit of ${counted(expr.count, "connection")}`;
    this.#step(`${set === undefined ? "" : `${set}: `}assuming that the ${what} is not exceeded`);
    this.#branch = { ...this.#branch, limited: true };
    return "break";
  }

  /** nft_dynset_eval: breaks if the set is full, or if an expression of the element breaks. */
  async #dynset({ set: name, op, exprs = [] }: Of<"dynset">): Promise<Done> {
    const { ref } = this.#place;
    if (this.#ours) {
      const limit = exprs.find(
        (expr) => (expr.type === "limit" || expr.type === "connlimit") && ((expr.flags ?? 0) & INVERTED) !== 0,
      );
      return limit === undefined ? "next" : this.#limit(limit as Of<"limit" | "connlimit">, name);
    }
    this.#state.changedSets = new Set(this.#branch.state.changedSets).add(this.#setId(name));
    if (op === DynsetOp.delete) return "next";
    const set = await this.#world.ruleset.set(ref, name);
    if (set === undefined || exprs.some(({ type }) => type !== "counter" && type !== "last")) return "maybe";
    // An existing element has its own expressions.
    if (exprs.length > 0 && this.#world.ruleset.isGuarded(set)) return "maybe";
    const hasRoom = set.size === undefined || (await this.#world.ruleset.sizeOf(ref, set)) < set.size;
    return hasRoom ? "next" : "maybe";
  }

  #setId(name: string): string {
    const { family, table } = this.#place.ref;
    return `${family} ${table} ${name}`;
  }

  async #object({ immType, setName, setSreg }: Of<"objref">): Promise<Done> {
    if (setName === undefined || setSreg === undefined)
      return HOLDING.has(immType ?? 0) ? "next" : this.#inExcess(immType);
    const set = await this.#world.ruleset.set(this.#place.ref, setName);
    if (set === undefined) return "maybe";
    const { found, none } = await this.#world.ruleset.lookUp(this.#place.ref, set, this.#read(setSreg, set.keyLen));
    if (found?.length === 0) return "break";
    return !none && HOLDING.has(set.objType ?? 0) ? "next" : this.#inExcess(set.objType);
  }

  /** A synproxy answers the packet itself. */
  #inExcess(type: number | undefined): Done {
    return type === SYNPROXY ? this.#maybeGone() : "maybe";
  }

  #maybeGone(): Done {
    this.#fork();
    return "unknown";
  }

  #opaque({ name, data }: Of<"opaque">): Done | Promise<Done> {
    switch (name) {
      case "match":
        return this.#xtMatch(data);
      case "target":
        return this.#xtTarget(data);
      case "dup":
        return "next";
      case "fwd":
        return "unknown";
      case "synproxy":
        return this.#maybeGone();
      default:
        return this.#notKnown();
    }
  }

  async #xtMatch(data: Uint8Array): Promise<Done> {
    return judged(await matches(targetOf(data), this.#branch.state, this.#world));
  }

  #xtTarget(data: Uint8Array): Done | Promise<Done> {
    const target = targetOf(data);
    if (isNotrack(target)) return this.#exempt();
    switch (target.name) {
      case "CT":
        return setsZone(target) ? "unknown" : "next";
      case "MARK":
        this.#state.mark = markedBy(target, this.#branch.state.mark);
        return "next";
      case "CONNMARK":
        // Has no effect on a packet without an entry (connmark_tg_shift).
        if (this.#branch.state.tracking === "tracked")
          Object.assign(this.#state, connmarkedBy(target, this.#branch.state));
        return "next";
      case "DNAT":
      case "REDIRECT":
        return this.#xtDestination(target);
      case "SET":
        this.#state.changedSets = new Set(this.#branch.state.changedSets).add(IP_SETS);
        if (mapsSet(target)) Object.assign(this.#state, { mark: unknownBits(4), priority: unknownBits(4) });
        return "next";
      case "REJECT":
        return this.#reject(isReset(target, this.#branch.state.family) ? "reset" : "error");
      case "MASQUERADE":
        return this.#masquerade(MASQUERADED);
      case "SNAT":
        return this.#masquerade("source rewritten");
    }
    const changes = Object.hasOwn(GOES_ON, target.name) ? GOES_ON[target.name] : undefined;
    if (changes === undefined) return "unknown";
    if (changes === "priority") this.#state.priority = unknownBits(4);
    const { network, family } = this.#branch.state;
    if (changes === "service") this.#state.network = withPart(network, family === "ip" ? 1 : 0, serviceBits(family));
    if (changes === "hops") {
      if (!keepsHops(target)) return "unknown";
      this.#state.network = withPart(network, family === "ip" ? 8 : 7, unknownBits(1));
    }
    return "next";
  }

  #xtDestination(target: Extension): Done | Promise<Done> {
    const { family, isError } = this.#branch.state;
    const to = destinationOf(target, family === "ip");
    if (to === undefined || isError) return "unknown";
    if (target.name === "REDIRECT") return this.#redirectTo(to.port ?? "none");
    this.#setDestination(to.address ?? "none", to.port ?? "none");
    if (!this.#ours) this.#step(this.#ruleText());
    return { verdict: "accept" };
  }

  /** @param address undefined: the kernel chooses one of this node. @param changesPort the port surely changes. */
  async #masquerade(text: string, address?: Uint8Array, changesPort = false): Promise<Done> {
    const { source, sourceBits, isError } = this.#branch.state;
    if (isError) return "unknown";
    const isHere = source === undefined || (await this.#world.addressType(source)) === AddressType.local;
    const state = this.#state;
    const chosen = address === undefined ? await this.#masqueradeAddress() : exactly(address);
    const isOther = isKnown(chosen) && equals(sourceBits, chosen.bytes) === false;
    const same = address !== undefined ? equals(sourceBits, address) : !isHere || isOther ? false : undefined;
    state.sourceChanged = changesPort || same === false ? true : same === undefined ? undefined : false;
    state.sourceBound = true;
    state.masqueraded = true;
    state.network = withPart(state.network, SOURCE[state.family][0], chosen);
    state.transport = withPart(state.transport, 0, unknownBits(2));
    this.#step(text);
    return { verdict: "accept" };
  }

  /** inet_select_addr: an address of the outgoing interface. For IPv6, one of another interface may be preferred. */
  async #masqueradeAddress(): Promise<Bits> {
    const { family, outInterface } = this.#branch.state;
    const addresses = family === "ip" ? await this.#world.addressesOf(outInterface) : [];
    return addresses.length === 0 ? unknownBits(SOURCE[family][1]) : common(addresses.map(bytesOf));
  }

  /** nf_nat_redirect: for packets of this node to its loopback address, for others to an address of the interface. */
  #redirect({ regProtoMin, regProtoMax }: Of<"redir">): Promise<Done> {
    return this.#redirectTo(this.#one(regProtoMin, regProtoMax, 2));
  }

  async #redirectTo(port: Uint8Array | "none" | "many"): Promise<Done> {
    const { isError, family, inInterface = "" } = this.#branch.state;
    if (isError) return "unknown";
    const isOwn = this.#place.hook === HOOK_NAMES[Hook.output];
    // If the interface has no address, the kernel drops the packet.
    if (!isOwn && family === "ip" && inInterface !== "") {
      if ((await this.#world.addressesOf(inInterface)).length === 0) return "unknown";
    }
    const state = this.#state;
    this.#setDestination(isOwn ? bytesOf(LOOPBACK[state.family]) : "many", port);
    state.translated = state.redirected = true;
    const to = state.destinationPort;
    this.#step(`redirected to this node${to === undefined ? "" : `, port ${to}`}: ${this.#ruleText()}`);
    return { verdict: "accept" };
  }

  #nat({
    natType,
    family: of,
    regAddrMin,
    regAddrMax,
    regProtoMin,
    regProtoMax,
    flags = 0,
  }: Of<"nat">): Done | Promise<Done> {
    const { family } = this.#branch.state;
    // nft_nat_inet_eval
    if (of !== NfProto.inet && of !== NfProto[family]) return "next";
    const address = this.#one(regAddrMin, regAddrMax, family === "ip" ? 4 : 16);
    const port = this.#one(regProtoMin, regProtoMax, 2);
    const isMapped = (flags & NatFlag.netmap) !== 0;
    if (natType === NatType.snat) {
      const known = address === "none" || address === "many" || isMapped ? undefined : address;
      const to = known === undefined ? "another address or port" : formatAddress(known);
      return this.#masquerade(`source rewritten to ${to}`, known, (flags & RANDOM) !== 0);
    }
    // One of several addresses, or one derived from the packet's own.
    if (address === "many" || port === "many" || isMapped || this.#branch.state.isError) return "unknown";
    this.#setDestination(address, port);
    if (!this.#ours) this.#step(this.#ruleText());
    return { verdict: "accept" };
  }

  /** Rewrites the destination. The connection is translated only if that changes anything (nf_nat_setup_info). */
  #setDestination(address: Uint8Array | "none" | "many", port: Uint8Array | "none" | "many"): void {
    const state = this.#state;
    const same = [
      address === "none" ? true : address === "many" ? undefined : equals(state.destinationBits, address),
      port === "none" ? true : port === "many" ? undefined : equals(partOf(state.transport, 2, 2), port),
    ];
    state.destinationChanged = same.includes(false) ? true : same.includes(undefined) ? undefined : false;
    state.destinationBound = true;
    state.translated ||= state.destinationChanged !== false;
    if (address !== "none") state.destination = address === "many" ? undefined : formatAddress(address);
    if (port !== "none")
      state.transport = withPart(state.transport, 2, port === "many" ? unknownBits(2) : exactly(port));
  }

  /** Returns the value that both registers have. "none" if no register is given. */
  #one(least: number | undefined, most: number | undefined, length: number): Uint8Array | "none" | "many" {
    if (least === undefined) return "none";
    const [from, to] = [this.#read(least, length), this.#read(most ?? least, length)];
    return isKnown(from) && textOf(from) === textOf(to) ? from.bytes : "many";
  }

  #ruleText(): string {
    return whereOf(this.#place).replace(/^[^:]*: /, "");
  }

  #step(text: string): void {
    if (!this.#world.traced) return;
    const { hook, ref, chain } = this.#place;
    const step = { hook, table: `${ref.family} ${ref.table}`, chain, text };
    this.#branch = { ...this.#branch, steps: [...this.#branch.steps, step] };
  }

  #read(number: number, length: number): Bits {
    return partOf(this.#registers, offsetOf(number), length);
  }

  /** Fills the last word with 0, as the kernel's loads do. */
  #write(number: number, bits: Bits): Done {
    const rest = (4 - (bits.bytes.length % 4)) % 4;
    const at = offsetOf(number);
    if (at + bits.bytes.length + rest > REGISTERS) return "next";
    this.#registers = withPart(this.#registers, at, bits);
    if (rest > 0) this.#registers = withPart(this.#registers, at + bits.bytes.length, exactly(new Uint8Array(rest)));
    return "next";
  }
}

/** As in nft_parse_register: registers 1 to 4 have 16 bytes each, those from 8 on 4 bytes each. */
function offsetOf(register: number): number {
  return register < 8 ? (register - 1) * 16 : (register - 8) * 4;
}

interface FreeFields {
  /** By offset of a byte: its bits that rules may change. */
  readonly bits: ReadonlyMap<number, number>;
  readonly hops?: number;
}

/** Bits of the IP header that rules may change: the type of service, the flow label, the checksum; and the hop limit. */
const FREE: Readonly<Record<IpFamily, FreeFields>> = {
  ip: { bits: new Map([1, 10, 11].map((at) => [at, 0xff])), hops: 8 },
  ip6: { bits: new Map([[0, 0x0f], ...[1, 2, 3].map((at) => [at, 0xff] as const)]), hops: 7 },
};
const NOTHING_FREE: FreeFields = { bits: new Map() };

/**
 * Whether a rewritten header leaves the packet's way as it is. An address or port may change the route or the
 * connection, and any other field may make the packet invalid.
 */
function isHarmless(header: Bits, offset: number, bits: Bits, { bits: free, hops }: FreeFields): boolean {
  return bits.bytes.every((_, i) => {
    const [old, value] = [partOf(header, offset + i, 1), partOf(bits, i, 1)];
    const fixed = Uint8Array.of(0xff & ~(free.get(offset + i) ?? 0));
    if (textOf(masked(old, fixed, undefined)) === textOf(masked(value, fixed, undefined))) return true;
    return offset + i === hops && isKnown(value) && value.bytes[0] > 1;
  });
}

/** The byte with the type of service, or those with the version and the traffic class. */
function serviceBits(family: IpFamily): Bits {
  if (family === "ip") return unknownBits(1);
  return { bytes: Uint8Array.of(0x60, 0), known: Uint8Array.of(0xf0, 0) };
}

/** Whether TTL or HL leaves enough hops (struct ipt_TTL_info, ip6t_HL_info: mode and count; IPT_TTL_SET, _INC). */
function keepsHops({ info }: Extension): boolean {
  return (info[0] === 0 && info[1] > 1) || info[0] === 1;
}

/** IPT_TCP_RESET, IP6T_TCP_RESET. */
function isReset({ info }: Extension, family: IpFamily): boolean {
  return info[LITTLE_ENDIAN ? 0 : 3] === (family === "ip" ? 7 : 6);
}

function judged(holds: Ternary): Done {
  return holds === undefined ? "maybe" : holds ? "next" : "break";
}

/** nft_quota_do_eval, based on the usage at the time of reading, which can only grow. */
function quota({ bytes, consumed, flags = 0 }: Of<"quota">): Done {
  if (consumed === undefined) return "maybe";
  const isOver: Ternary = consumed >= bytes ? true : consumed + LARGEST_PACKET < bytes ? false : undefined;
  return judged(isOver === undefined ? undefined : isOver === ((flags & INVERTED) !== 0));
}
