/**
 * nf_tables' register machine (net/netfilter/nf_tables_core.c, nft_do_chain), for one packet. It runs the rules that the kernel
 * dumped, ours and others', so that an explanation cannot differ from the rules; what it cannot know (an expression without
 * meaning here) makes a rule not match, and is said.
 */
import {
  BitwiseOp,
  CmpOp,
  CtKey,
  CtState,
  CtStatus,
  FibFlag,
  FibResult,
  IpProto,
  LookupFlag,
  MetaKey,
  NatType,
  NfProto,
  PayloadBase,
  RangeOp,
  RejectType,
} from "../kernel/constants.js";
import type { Expr, SetDump, TableRef, Verdict } from "../kernel/types.js";
import { formatAddress } from "../base/ip.js";
import {
  addressTypeOf,
  bytesOf,
  networkHeader,
  type PacketSpec,
  type PacketState,
  portBytes,
  transportHeader,
} from "./packet.js";
import type { Found, HookedChain, Ruleset } from "./ruleset.js";
import { jhash } from "./jhash.js";
import { keyText, valueText } from "./text.js";

/** What becomes of the packet in one base chain. */
export type ChainVerdict = "accept" | "drop" | "reject";

/** A look-up that found something, or a rule that did something: what a reader wants to know. */
export interface Step {
  readonly hook: string;
  /** "ip kube-proxy". */
  readonly table: string;
  readonly chain: string;
  readonly text: string;
}

export interface World {
  readonly ruleset: Ruleset;
  /** Canonical addresses of this node. */
  readonly localAddresses: ReadonlySet<string>;
  /** It cannot be known which interfaces the packet comes in and leaves by. Default: in by the packet's, and out by none that has a name. */
  readonly interfacesUnknown?: boolean;
  /** Which of the numbers that `numgen` may give it gives, counted from 0. */
  readonly draw: number;
  /** Told how many numbers there are, where one is drawn. */
  onDraw(count: number): void;
  onStep(step: Step): void;
  /** Told what could not be judged: "ip filter INPUT: socket". */
  onUnknown(what: string): void;
}

/** Cannot be known from outside of the kernel. */
class Unknown extends Error {
  override readonly name = "Unknown";
}

/** Jumps that may nest, NFT_JUMP_STACK_SIZE. */
const MAX_DEPTH = 16;
const HOOKS = ["prerouting", "input", "forward", "output", "postrouting"] as const;

type Effect = "next" | "break" | Verdict | "reject";

export class Machine {
  readonly #spec: PacketSpec;
  readonly #state: PacketState;
  readonly #world: World;
  /** 16 words, behind the verdict register. */
  readonly #registers = new Uint8Array(80);
  #network: Uint8Array = new Uint8Array();
  #transport: Uint8Array = new Uint8Array();
  #place: { readonly hook: string; readonly ref: TableRef; chain: string } | undefined;
  /** By the interface that the packet leaves by, where it is known. */
  readonly #outInterface = "";

  constructor(spec: PacketSpec, state: PacketState, world: World) {
    this.#spec = spec;
    this.#state = state;
    this.#world = world;
  }

  /** Runs one base chain. */
  async run({ ref, chain, base }: HookedChain): Promise<ChainVerdict> {
    this.#network = networkHeader(this.#spec, this.#state);
    this.#transport = transportHeader(this.#spec, this.#state);
    this.#registers.fill(0);
    this.#place = { hook: HOOKS[base.hook] ?? String(base.hook), ref, chain };
    const verdict = await this.#chain(chain, 0);
    if (verdict === "reject") return "reject";
    if (verdict === "drop") {
      this.#step("drop");
      return "drop";
    }
    if (verdict === "accept" || base.policy !== "drop") return "accept";
    this.#step("dropped by the chain's policy");
    return "drop";
  }

  /** Undefined: the end of the chain, or `return`. */
  async #chain(chain: string, depth: number): Promise<"accept" | "drop" | "reject" | undefined> {
    const place = this.#place;
    if (place === undefined || depth > MAX_DEPTH) throw new Error(`chain ${chain}: jumps nest too deep`);
    place.chain = chain;
    for (const rule of await this.#world.ruleset.rules(place.ref, chain)) {
      const effect = await this.#rule(rule.exprs);
      if (effect === "next" || effect === "break") continue;
      if (effect === "reject") return "reject";
      switch (effect.verdict) {
        case "accept":
        case "drop":
          return effect.verdict;
        case "queue":
          return "accept";
        case "continue":
        case "break":
          break;
        case "return":
          return undefined;
        case "goto":
          return this.#chain(effect.chain, depth + 1);
        case "jump": {
          const end = await this.#chain(effect.chain, depth + 1);
          place.chain = chain;
          if (end !== undefined) return end;
        }
      }
    }
    return undefined;
  }

  async #rule(exprs: readonly Expr[]): Promise<Effect> {
    try {
      for (const expr of exprs) {
        const effect = await this.#expr(expr);
        if (effect === "next" || (typeof effect === "object" && effect.verdict === "continue")) continue;
        return typeof effect === "object" && effect.verdict === "break" ? "break" : effect;
      }
      return "next";
    } catch (error) {
      if (!(error instanceof Unknown)) throw error;
      const { ref, chain } = this.#place!;
      this.#world.onUnknown(`${ref.family} ${ref.table} ${chain}: ${error.message}`);
      return "break";
    }
  }

  // One case for each expression: shorter than a table of functions with their types.
  async #expr(expr: Expr): Promise<Effect> {
    switch (expr.type) {
      case "payload":
        return this.#payload(expr);
      case "meta":
        return this.#meta(expr);
      case "ct":
        if (expr.dreg !== undefined) this.#write(expr.dreg, this.#ct(expr.key, expr.direction ?? 0));
        return "next";
      case "cmp":
        return holds(expr.op, Buffer.compare(this.#read(expr.sreg, expr.data.length), expr.data)) ? "next" : "break";
      case "range": {
        const value = this.#read(expr.sreg, expr.from.length);
        const within = Buffer.compare(value, expr.from) >= 0 && Buffer.compare(value, expr.to) <= 0;
        return within === (expr.op === RangeOp.eq) ? "next" : "break";
      }
      case "bitwise":
        return this.#bitwise(expr);
      case "byteorder":
        this.#write(expr.dreg, swapped(this.#read(expr.sreg, expr.len), expr.size));
        return "next";
      case "lookup":
        return this.#lookup(expr);
      case "immediate":
        if ("verdict" in expr.data) return expr.data;
        this.#write(expr.dreg, expr.data);
        return "next";
      case "nat":
        return this.#nat(expr);
      case "masq":
        this.#state.masqueraded = true;
        this.#step("masqueraded: the endpoint sees an address of this node");
        return { verdict: "accept" };
      case "redir":
        this.#step("redirected to this node");
        return { verdict: "accept" };
      case "reject":
        this.#step(
          expr.rejectType === RejectType.tcpReset ? "rejected with a TCP reset" : "rejected with an ICMP error",
        );
        return "reject";
      case "fib":
        this.#write(expr.dreg, u32(this.#fib(expr.result, expr.flags)));
        return "next";
      case "numgen":
        this.#world.onDraw(expr.modulus);
        this.#write(expr.dreg, u32((expr.offset ?? 0) + (this.#world.draw % expr.modulus)));
        return "next";
      case "hash":
        if (expr.sreg === undefined) throw new Unknown("symhash");
        this.#write(expr.dreg, u32(hashed(this.#read(expr.sreg, expr.len ?? 0), expr)));
        return "next";
      case "limit":
      case "connlimit":
        return this.#withinLimit(expr);
      case "dynset": {
        const beyond = expr.exprs?.find(isBeyond);
        return beyond === undefined ? "next" : this.#withinLimit(beyond, expr.set);
      }
      case "counter":
      case "log":
      case "quota":
      case "last":
      case "notrack":
      case "objref":
      case "flow_offload":
        // They count, or hold only in excess: one packet passes.
        return "next";
      default:
        throw new Unknown(expr.type === "opaque" ? expr.name : expr.type);
    }
  }

  /** What has been counted cannot be read: taken to be within. */
  #withinLimit(expr: Extract<Expr, { type: "limit" | "connlimit" }>, set?: string): Effect {
    if (!isBeyond(expr)) return "next";
    const what = expr.type === "limit" ? "rate" : `limit of ${expr.count} connections`;
    this.#step(`${set === undefined ? "" : `${set}: `}the ${what} is taken to be not exceeded`);
    return "break";
  }

  #payload({ base, offset, len, dreg, sreg }: Extract<Expr, { type: "payload" }>): Effect {
    if (dreg === undefined) return sreg === undefined ? "next" : this.#rewrite(base, offset, this.#read(sreg, len));
    if (base !== PayloadBase.network && base !== PayloadBase.transport) throw new Unknown("link layer header");
    const header = base === PayloadBase.network ? this.#network : this.#transport;
    if (offset + len > header.length) return "break";
    this.#write(dreg, header.subarray(offset, offset + len));
    return "next";
  }

  /** An address in the header; nothing else that is written decides over a first packet. */
  #rewrite(base: number, offset: number, bytes: Uint8Array): Effect {
    const [source, destination, length] = this.#spec.family === "ip" ? [12, 16, 4] : [8, 24, 16];
    if (base !== PayloadBase.network || bytes.length !== length) return "next";
    const address = formatAddress(bytes);
    if (offset === source) this.#state.source = address;
    else if (offset === destination) this.#state.destination = address;
    else return "next";
    this.#step(`${offset === source ? "source" : "destination"} set to ${address} for the routing`);
    this.#network = networkHeader(this.#spec, this.#state);
    return "next";
  }

  #meta({ key, dreg, sreg }: Extract<Expr, { type: "meta" }>): Effect {
    if (sreg !== undefined) {
      const value = readU32(this.#read(sreg, 4));
      if (key === MetaKey.mark) this.#state.mark = value;
      if (key === MetaKey.priority) this.#state.priority = value;
      return "next";
    }
    if (dreg !== undefined) this.#write(dreg, this.#metaValue(key));
    return "next";
  }

  #metaValue(key: number): Uint8Array {
    const { family, protocol } = this.#spec;
    switch (key) {
      case MetaKey.mark:
        return u32(this.#state.mark);
      case MetaKey.priority:
        return u32(this.#state.priority);
      case MetaKey.l4proto:
        return Uint8Array.of(IpProto[protocol]);
      case MetaKey.nfproto:
        return Uint8Array.of(NfProto[family]);
      case MetaKey.protocol:
        // Ethertype.
        return family === "ip" ? Uint8Array.of(0x08, 0x00) : Uint8Array.of(0x86, 0xdd);
      case MetaKey.iifname:
        if (this.#world.interfacesUnknown === true) throw new Unknown("iifname");
        return interfaceBytes(this.#state.inInterface);
      case MetaKey.oifname:
        if (this.#world.interfacesUnknown === true) throw new Unknown("oifname");
        return interfaceBytes(this.#outInterface);
      case MetaKey.pkttype:
        return Uint8Array.of(0);
      default:
        throw new Unknown(`meta ${key}`);
    }
  }

  /** The entry is new, and of the original direction. */
  #ct(key: number, direction: number): Uint8Array {
    const { source, sourcePort, destination, destinationPort, protocol } = this.#spec;
    const original = direction === 0;
    switch (key) {
      case CtKey.state:
        return u32(CtState.new);
      case CtKey.status:
        return u32(this.#state.translated ? CtStatus.dnat : 0);
      case CtKey.direction:
        return Uint8Array.of(0);
      case CtKey.mark:
        return u32(0);
      case CtKey.protocol:
        return Uint8Array.of(IpProto[protocol]);
      case CtKey.src:
      case CtKey.srcIp:
      case CtKey.srcIp6:
        return bytesOf(original ? source : this.#state.destination);
      case CtKey.dst:
      case CtKey.dstIp:
      case CtKey.dstIp6:
        return bytesOf(original ? destination : source);
      case CtKey.protoSrc:
        return portBytes(original ? sourcePort : this.#state.destinationPort);
      case CtKey.protoDst:
        return portBytes(original ? destinationPort : sourcePort);
      default:
        throw new Unknown(`ct ${key}`);
    }
  }

  #bitwise(expr: Extract<Expr, { type: "bitwise" }>): Effect {
    if ((expr.op ?? BitwiseOp.maskXor) !== BitwiseOp.maskXor || expr.mask === undefined) throw new Unknown("shift");
    const { mask, xor } = expr;
    const value = this.#read(expr.sreg, expr.len).map((byte, i) => (byte & (mask[i] ?? 0)) ^ (xor?.[i] ?? 0));
    this.#write(expr.dreg, value);
    return "next";
  }

  async #lookup({ set: name, sreg, dreg, flags = 0 }: Extract<Expr, { type: "lookup" }>): Promise<Effect> {
    const { ref } = this.#place!;
    const set = await this.#world.ruleset.set(ref, name);
    if (set === undefined) throw new Unknown(`set ${name}, which has gone meanwhile`);
    const key = this.#read(sreg, set.keyLen);
    const found = await this.#world.ruleset.lookUp(ref, set, key);
    if ((flags & LookupFlag.invert) !== 0) return found === undefined ? "next" : "break";
    if (found === undefined) return "break";
    this.#tellFound(set, key, found);
    if (dreg === undefined) return "next";
    if (found.verdict !== undefined) return found.verdict;
    if (found.data !== undefined) this.#write(dreg, found.data);
    return "next";
  }

  /** Anonymous sets are a part of their rule. */
  #tellFound(set: SetDump, key: Uint8Array, found: Found): void {
    if (set.set.startsWith("__")) return;
    const value = valueText(set, found);
    this.#step(`${set.set}: ${keyText(set, key)}${value === undefined ? "" : ` → ${value}`}`);
  }

  #nat({ natType, regAddrMin, regProtoMin }: Extract<Expr, { type: "nat" }>): Effect {
    const length = this.#spec.family === "ip" ? 4 : 16;
    const address = regAddrMin === undefined ? undefined : formatAddress(this.#read(regAddrMin, length));
    if (natType === NatType.snat) {
      this.#state.masqueraded = true;
      this.#step(`source rewritten to ${address ?? "another port"}`);
      return { verdict: "accept" };
    }
    if (address !== undefined) this.#state.destination = address;
    if (regProtoMin !== undefined) {
      const [high = 0, low = 0] = this.#read(regProtoMin, 2);
      this.#state.destinationPort = high * 256 + low;
    }
    this.#state.translated = true;
    return { verdict: "accept" };
  }

  #fib(result: number, flags: number): number {
    if (result === FibResult.oif && (flags & FibFlag.present) !== 0) return 1;
    if (result !== FibResult.addrtype) throw new Unknown("route of a packet");
    const address = (flags & FibFlag.saddr) !== 0 ? this.#state.source : this.#state.destination;
    return addressTypeOf(address, this.#world.localAddresses);
  }

  #step(text: string): void {
    const { hook, ref, chain } = this.#place!;
    this.#world.onStep({ hook, table: `${ref.family} ${ref.table}`, chain, text });
  }

  /** As nft_parse_register: 1 to 4 begin at 16 bytes each, from 8 on at 4 bytes. */
  #offset(number: number): number {
    return number < 8 ? (number - 1) * 16 : (number - 8) * 4;
  }

  #read(number: number, length: number): Uint8Array {
    const at = this.#offset(number);
    return this.#registers.slice(at, at + length);
  }

  /** The rest of the last word is 0, as the kernel's loads leave it. */
  #write(number: number, bytes: Uint8Array): void {
    const at = this.#offset(number);
    this.#registers.fill(0, at, at + Math.ceil(bytes.length / 4) * 4);
    this.#registers.set(bytes, at);
  }
}

/** NFT_LIMIT_F_INV and NFT_CONNLIMIT_F_INV: holds in excess. */
function isBeyond(expr: Expr): expr is Extract<Expr, { type: "limit" | "connlimit" }> {
  return (expr.type === "limit" || expr.type === "connlimit") && ((expr.flags ?? 0) & 1) !== 0;
}

/** nft_jhash_eval: a number below the modulus by where the hash lies in its range. */
function hashed(data: Uint8Array, { seed = 0, modulus, offset = 0 }: Extract<Expr, { type: "hash" }>): number {
  return Number((BigInt(jhash(data, seed)) * BigInt(modulus)) >> 32n) + offset;
}

function holds(op: number, order: number): boolean {
  switch (op) {
    case CmpOp.eq:
      return order === 0;
    case CmpOp.neq:
      return order !== 0;
    case CmpOp.lt:
      return order < 0;
    case CmpOp.lte:
      return order <= 0;
    case CmpOp.gt:
      return order > 0;
    default:
      return order >= 0;
  }
}

function swapped(bytes: Uint8Array, size: number): Uint8Array {
  const result = bytes.slice();
  for (let at = 0; at < bytes.length; at += size) result.subarray(at, at + size).reverse();
  return result;
}

/** Host order, as marks, priorities and indices are. */
function u32(value: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(value).buffer);
}

function readU32(bytes: Uint8Array): number {
  return new Uint32Array(bytes.slice(0, 4).buffer)[0] ?? 0;
}

function interfaceBytes(name: string): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes.set(Buffer.from(name).subarray(0, 15));
  return bytes;
}
