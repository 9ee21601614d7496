/** The parts of a compiled rule, and the expressions that all statements share. */
import { BitwiseOp, CmpOp, LookupFlag } from "../kernel/constants.js";
import type { BaseChain, Expr, Family } from "../kernel/kernel.js";
import type { AnonymousSet } from "./anonymous-sets.js";
import type { SetSpec } from "../language/set-spec.js";

export interface StatementOptions {
  readonly family: Family;
  /** The hook of the rule's chain, if it is known. */
  readonly base?: BaseChain | undefined;
  /** The specification of a named set. In an `inet` table it tells the family of an address field. */
  readonly setSpec?: (name: string) => SetSpec | undefined;
  /** The IP version to assume if nothing tells it. Absent: a statement that needs the version is refused. */
  readonly assumed?: 4 | 6;
  /** Whether the expressions are only printed. */
  readonly isForText?: boolean;
}

/** The rule has established these facts about the packets that reach this point. */
export interface PacketFacts {
  network: "ip" | "ip6" | "arp" | undefined;
  /** Number of the transport protocol. */
  l4proto: number | undefined;
  /** Whether a comparison has selected transport protocols, one or several. */
  hasTransport: boolean;
  /** Whether packets have an Ethernet header. */
  isEther: boolean;
  isVlan: boolean;
  /** Whether the VLAN has another inside. */
  isStacked: boolean;
  /** ICMP types, of which the packet has one. */
  messages: readonly number[] | undefined;
  /** nft refuses to reject them: it takes them for other packets than IP. */
  cannotReject: boolean;
}

/** One condition or action. */
export interface Piece {
  readonly exprs: readonly Expr[];
  /** It loads a whole field of a header and compares it with one value. nft merges neighbours among these. */
  readonly isWholeField?: boolean;
  /** It tells which header is next, so that conditions on that header must stay behind it. */
  readonly isProtocol?: boolean;
  /** The table's family implies it. Like nft, the rule leaves it out, unless it is the last. */
  readonly isImplied?: boolean;
  /** It is no condition. nft merges no conditions across it. */
  readonly isAction?: boolean;
}

/** The rule so far. */
export interface LowerContext extends StatementOptions {
  readonly facts: PacketFacts;
  readonly pieces: Piece[];
  readonly anonymous: AnonymousSet[];
}

/** A statement, or a part of one. */
export interface Lowered extends Piece {
  /** It has kernel expressions that nft's text cannot say. */
  readonly isUnprintable?: boolean;
}

export interface LoweredRule extends Pick<Lowered, "exprs" | "isUnprintable"> {
  readonly anonymous: readonly AnonymousSet[];
}

export function lowered(...exprs: readonly Expr[]): Lowered {
  return { exprs };
}

export function compare(data: Uint8Array, negate?: boolean): Expr {
  return { type: "cmp", sreg: 1, op: negate === true ? CmpOp.neq : CmpOp.eq, data };
}

export function masked(mask: Uint8Array, xor: Uint8Array = new Uint8Array(mask.length), reg = 1): Expr {
  return { type: "bitwise", sreg: reg, dreg: reg, len: mask.length, op: BitwiseOp.maskXor, mask, xor };
}

export function immediate(data: Uint8Array, dreg = 1): Expr {
  return { type: "immediate", dreg, data };
}

/** A look-up as a condition. */
export function lookup(set: string, negate: boolean | undefined, setId?: number): Expr {
  const flags = negate === true ? { flags: LookupFlag.invert } : {};
  return { type: "lookup", set, setId, sreg: 1, ...flags };
}

/** Number in host byte order. */
export function hostU32(value: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(value).buffer);
}

/** Port in network byte order. */
export function portBytes(port: number): Uint8Array {
  return Uint8Array.of(port >> 8, port & 0xff);
}

type Payload = Extract<Expr, { type: "payload" }>;
type Compare = Extract<Expr, { type: "cmp" }>;

/** A comparison that may be joined with its neighbour: where it is, in order. */
interface Part {
  index: number;
  load: Payload;
  data: Uint8Array;
  isProtocol: boolean;
}

/** A comparison of at most 4 bytes is fast in the kernel. A longer one only pays if a part is longer, or in the link header, which is always slow. */
const FAST_BYTES = 4;
const MOST_BYTES = 16;

/** Joins comparisons of neighbouring fields, as nft does: ICMP type and code, both ports. Returns the expressions of the rule. */
export function joined(pieces: readonly Piece[]): Expr[] {
  const exprs: (readonly Expr[])[] = pieces.map((piece) => piece.exprs);
  let run: Part[] = [];
  const join = (): void => {
    if (run.length < 2) return void (run = []);
    const parts = run.toSorted((a, b) => a.load.base - b.load.base || a.load.offset - b.load.offset);
    run = [];
    let last = parts[0];
    for (const part of parts.slice(1)) {
      const len = last.load.len + part.load.len;
      const isNext = last.load.base === part.load.base && last.load.offset + last.load.len === part.load.offset;
      const pays = len <= FAST_BYTES || part.load.base === 0 || Math.max(last.load.len, part.load.len) > FAST_BYTES;
      if (!isNext || len > MOST_BYTES || !pays) {
        last = part;
        continue;
      }
      exprs[last.index] = exprs[part.index] = [];
      last.load = { ...last.load, len };
      last.data = Uint8Array.from([...last.data, ...part.data]);
      if (part.isProtocol) [last.index, last.isProtocol] = [part.index, true];
      exprs[last.index] = [last.load, compare(last.data)];
    }
  };
  for (const [index, { exprs: own, isWholeField, isProtocol = false, isImplied, isAction }] of pieces.entries()) {
    if (isImplied === true && index < pieces.length - 1) exprs[index] = [];
    if (isAction === true) join();
    else if (isWholeField === true)
      run.push({ index, load: own[0] as Payload, data: (own[1] as Compare).data, isProtocol });
  }
  join();
  return exprs.flat();
}
