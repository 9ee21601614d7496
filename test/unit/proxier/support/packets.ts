/**
 * Packets through tables in memory: the possible results for a connection's first packet, from the expressions that the kernel would run.
 * Every random choice is followed.
 */
import {
  AddressType,
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
  PayloadBase,
  SetFlag,
} from "../../../../src/nft/kernel/constants.js";
import type { Expr, Kernel, Verdict } from "../../../../src/nft/kernel/kernel.js";
import { formatAddress, type IpFamily, packAddress } from "../../../../src/base/ip.js";
import type { Protocol } from "../../../../src/base/protocols.js";
import { readTables, type SetView, type TableView } from "./tables.js";

export interface Connection {
  readonly family: IpFamily;
  readonly source: string;
  readonly destination: string;
  readonly protocol: Protocol;
  readonly port: number;
  /** Sent by the node itself. */
  readonly fromNode: boolean;
}

interface Packet {
  readonly source: Buffer;
  destination: Buffer;
  port: number;
  mark: number;
  priority: number;
  rewritten: boolean;
  masqueraded: boolean;
}

type End = "accept" | "drop" | "reject" | "return";
interface Result {
  readonly packet: Packet;
  readonly end: End;
}
type RuleResult =
  { readonly packet: Packet; readonly end: End | "next" } | { readonly packet: Packet; readonly verdict: Verdict };

const PROTOCOLS: Readonly<Record<Protocol, number>> = { TCP: IpProto.tcp, UDP: IpProto.udp, SCTP: IpProto.sctp };

function bytesOf(address: string): Buffer {
  const bytes = Buffer.alloc(address.includes(":") ? 16 : 4);
  packAddress(address, bytes, 0);
  return bytes;
}

/** Possible results of a pod's connection to this IPv4 service address, by the kernel's tables; see `Packets.outcomes`. */
export async function outcomesOf(kernel: Kernel, destination: string, port: number): Promise<string[]> {
  const table = (await readTables(kernel)).find(({ family }) => family === "ip");
  if (table === undefined) throw new Error("no table");
  const from = { family: "ip", source: "10.99.0.1", fromNode: false } as const;
  return new Packets(table, []).outcomes({ ...from, destination, port, protocol: "TCP" });
}

/** The registers' 64 bytes; see `register` in constants.ts. */
function at(register: number): number {
  return register <= 4 ? (register - 1) * 16 : (register - 8) * 4;
}

/** The last word is padded with zeros, as in the kernel. */
function load(bytes: Buffer, registers: Buffer, register: number): undefined {
  registers.fill(0, at(register), at(register) + Math.ceil(bytes.length / 4) * 4);
  bytes.copy(registers, at(register));
  return undefined;
}

export class Packets {
  readonly #rules = new Map<string, (readonly Expr[])[]>();
  readonly #sets: ReadonlyMap<string, SetView>;
  readonly #elements = new Map<SetView, ReadonlyMap<string, string | Verdict | undefined>>();
  readonly #policies: ReadonlyMap<string, string | undefined>;
  readonly #local: ReadonlySet<string>;

  /** @param local the node's own addresses. */
  constructor(table: TableView, local: readonly string[]) {
    for (const { chain, exprs } of table.rules) {
      const rules = this.#rules.get(chain);
      if (rules === undefined) this.#rules.set(chain, [exprs]);
      else rules.push(exprs);
    }
    this.#policies = new Map(table.chains.map(({ chain, base }) => [chain, base?.policy]));
    this.#sets = new Map(table.sets.map((set) => [set.set, set]));
    this.#local = new Set(local);
  }

  /** All possible results, sorted: "drop", "reject", "untouched", or "ADDRESS PORT", followed by " masqueraded" if so. */
  outcomes(connection: Connection): string[] {
    const first: Packet = {
      source: bytesOf(connection.source),
      destination: bytesOf(connection.destination),
      port: connection.port,
      mark: 0,
      priority: 0,
      rewritten: false,
      masqueraded: false,
    };
    const before = connection.fromNode
      ? ["filter-output-pre-dnat", "nat-output"]
      : ["filter-prerouting-pre-dnat", "nat-prerouting"];
    const found = new Set<string>();
    for (const routed of this.#hooks(before, first, connection)) {
      if (routed.end !== "accept") {
        found.add(routed.end);
        continue;
      }
      const { packet } = routed;
      const toNode = this.#isLocal(packet.destination);
      const filters = connection.fromNode
        ? ["filter-output", ...(toNode ? ["filter-input"] : [])]
        : [toNode ? "filter-input" : "filter-forward"];
      const last = connection.fromNode || !toNode ? ["nat-postrouting"] : [];
      for (const { end, packet: out } of this.#hooks([...filters, ...last], packet, connection)) {
        // A first packet with affinity carries the number of its endpoint until postrouting.
        if (out.rewritten && out.priority !== 0 && (last.length > 0 || out.priority >>> 24 !== 0x6b))
          throw new Error(`sent on with priority ${out.priority}`);
        if (end !== "accept") found.add(end);
        else if (!out.rewritten) found.add("untouched");
        else found.add(`${formatAddress(out.destination)} ${out.port}${out.masqueraded ? " masqueraded" : ""}`);
      }
    }
    return [...found].sort();
  }

  #isLocal(address: Buffer): boolean {
    return this.#local.has(formatAddress(address));
  }

  #hooks(chains: readonly string[], packet: Packet, connection: Connection): Result[] {
    let results: Result[] = [{ packet, end: "accept" }];
    for (const chain of chains) {
      results = results.flatMap((result) => {
        if (result.end !== "accept") return [result];
        return this.#chain(chain, result.packet, connection).map(({ packet: out, end }): Result => ({
          packet: out,
          end: end !== "return" ? end : this.#policies.get(chain) === "drop" ? "drop" : "accept",
        }));
      });
    }
    return results;
  }

  #chain(chain: string, packet: Packet, connection: Connection): Result[] {
    const results: Result[] = [];
    let going: Packet[] = [packet];
    for (const exprs of this.#rules.get(chain) ?? []) {
      const next: Packet[] = [];
      for (const current of going) {
        for (const result of this.#rule(exprs, 0, Buffer.alloc(64), { ...current }, connection)) {
          if (!("verdict" in result)) {
            if (result.end === "next") next.push(result.packet);
            else results.push({ packet: result.packet, end: result.end });
            continue;
          }
          const { verdict } = result;
          if (!("chain" in verdict)) throw new Error(`unexpected verdict ${verdict.verdict}`);
          for (const inner of this.#chain(verdict.chain, result.packet, connection)) {
            if (inner.end === "return" && verdict.verdict === "jump") next.push(inner.packet);
            else results.push(inner);
          }
        }
      }
      going = next;
    }
    return [...results, ...going.map((left): Result => ({ packet: left, end: "return" }))];
  }

  #rule(exprs: readonly Expr[], from: number, registers: Buffer, packet: Packet, connection: Connection): RuleResult[] {
    for (let i = from; i < exprs.length; i++) {
      const expr = exprs[i];
      if (expr.type === "numgen") {
        return Array.from({ length: expr.modulus }, (_, drawn) => {
          const copy = Buffer.from(registers);
          copy.writeUInt32LE(drawn + (expr.offset ?? 0), at(expr.dreg));
          return this.#rule(exprs, i + 1, copy, { ...packet }, connection);
        }).flat();
      }
      const step = this.#step(expr, registers, packet, connection);
      if (step === "break") return [{ packet, end: "next" }];
      if (step === undefined) continue;
      if (typeof step === "string") return [{ packet, end: step }];
      if ("chain" in step) return [{ packet, verdict: step }];
      switch (step.verdict) {
        case "accept":
        case "drop":
        case "return":
          return [{ packet, end: step.verdict }];
        default:
          throw new Error(`unexpected verdict ${step.verdict}`);
      }
    }
    return [{ packet, end: "next" }];
  }

  /** Runs one expression. Returns "break" if the rule does not match, undefined to continue. */
  #step(
    expr: Expr,
    registers: Buffer,
    packet: Packet,
    connection: Connection,
  ): "break" | "accept" | "reject" | Verdict | undefined {
    switch (expr.type) {
      case "payload":
        return load(this.#payload(expr, packet, connection), registers, expr.dreg ?? 1);
      case "meta":
        return this.#meta(expr, registers, packet, connection);
      case "ct":
        registers.writeUInt32LE(
          expr.key === CtKey.state ? CtState.new : expr.key === CtKey.status && packet.rewritten ? CtStatus.dnat : 0,
          at(expr.dreg ?? 1),
        );
        return undefined;
      case "fib": {
        if (expr.result !== FibResult.addrtype) throw new Error("unexpected fib result");
        const address = (expr.flags & FibFlag.saddr) !== 0 ? packet.source : packet.destination;
        const type = this.#isLocal(address) ? AddressType.local : AddressType.unicast;
        return void registers.writeUInt32LE(type, at(expr.dreg));
      }
      case "cmp": {
        const value = registers.subarray(at(expr.sreg), at(expr.sreg) + expr.data.length);
        const equal = value.equals(expr.data);
        if (expr.op !== CmpOp.eq && expr.op !== CmpOp.neq) throw new Error("unexpected comparison");
        return equal === (expr.op === CmpOp.eq) ? undefined : "break";
      }
      case "bitwise":
        if ((expr.op ?? BitwiseOp.maskXor) !== BitwiseOp.maskXor) throw new Error("unexpected bitwise");
        for (let i = 0; i < expr.len; i++) {
          const byte = registers[at(expr.sreg) + i];
          registers[at(expr.dreg) + i] = (byte & (expr.mask?.[i] ?? 0xff)) ^ (expr.xor?.[i] ?? 0);
        }
        return undefined;
      case "immediate":
        if (!(expr.data instanceof Uint8Array)) return expr.data;
        return load(Buffer.from(expr.data), registers, expr.dreg);
      case "lookup":
        return this.#lookup(expr, registers);
      case "nat": {
        const length = packet.destination.length;
        const address = at(expr.regAddrMin ?? 1);
        packet.destination = Buffer.from(registers.subarray(address, address + length));
        if (expr.regProtoMin !== undefined) packet.port = registers.readUInt16BE(at(expr.regProtoMin));
        packet.rewritten = true;
        return "accept";
      }
      case "masq":
        packet.masqueraded = true;
        return "accept";
      case "reject":
        return "reject";
      case "dynset":
      case "counter":
        return undefined;
      default:
        throw new Error(`unexpected expression ${expr.type}`);
    }
  }

  #payload(expr: Extract<Expr, { type: "payload" }>, packet: Packet, { family, protocol }: Connection): Buffer {
    if (expr.base === PayloadBase.network) {
      const source = family === "ip" ? 12 : 8;
      const length = packet.source.length;
      const header = Buffer.alloc(40);
      packet.source.copy(header, source);
      packet.destination.copy(header, source + length);
      return header.subarray(expr.offset, expr.offset + expr.len);
    }
    const header = Buffer.alloc(20);
    header.writeUInt16BE(40_000, 0);
    header.writeUInt16BE(packet.port, 2);
    // SYN
    if (protocol === "TCP") header[13] = 2;
    return header.subarray(expr.offset, expr.offset + expr.len);
  }

  #meta(
    expr: Extract<Expr, { type: "meta" }>,
    registers: Buffer,
    packet: Packet,
    { family, protocol }: Connection,
  ): undefined {
    if (expr.sreg !== undefined) {
      if (expr.key === MetaKey.priority) packet.priority = registers.readUInt32LE(at(expr.sreg));
      else packet.mark = registers.readUInt32LE(at(expr.sreg));
      return undefined;
    }
    const to = at(expr.dreg ?? 1);
    registers.fill(0, to, to + 4);
    if (expr.key === MetaKey.mark) registers.writeUInt32LE(packet.mark, to);
    else if (expr.key === MetaKey.priority) registers.writeUInt32LE(packet.priority, to);
    else if (expr.key === MetaKey.l4proto) registers[to] = PROTOCOLS[protocol];
    else if (expr.key === MetaKey.nfproto) registers[to] = family === "ip" ? 2 : 10;
    else throw new Error(`unexpected meta key ${expr.key}`);
    return undefined;
  }

  #lookup(expr: Extract<Expr, { type: "lookup" }>, registers: Buffer): "break" | Verdict | undefined {
    const set = this.#sets.get(expr.set);
    if (set === undefined) throw new Error(`no set ${expr.set}`);
    const key = registers.toString("hex", at(expr.sreg), at(expr.sreg) + set.keyLen);
    const elements = this.#byKey(set);
    const inverted = ((expr.flags ?? 0) & LookupFlag.invert) !== 0;
    if ((set.flags & SetFlag.interval) !== 0) return contains(set, key) === inverted ? "break" : undefined;
    if (elements.has(key) === inverted) return "break";
    if (expr.dreg === undefined) return undefined;
    const data = elements.get(key);
    if (data === undefined) throw new Error(`${expr.set} has no data for ${key}`);
    if (typeof data !== "string") return data;
    return load(Buffer.from(data, "hex"), registers, expr.dreg);
  }

  #byKey(set: SetView): ReadonlyMap<string, string | Verdict | undefined> {
    const known = this.#elements.get(set);
    if (known !== undefined) return known;
    const made = new Map(set.elements.map(({ key, data }) => [key, data]));
    this.#elements.set(set, made);
    return made;
  }
}

/** In an interval set, elements mark where ranges begin and (`end`) where they end. */
function contains({ elements }: SetView, key: string): boolean {
  const before = elements.filter((element) => element.key <= key);
  const nearest = before.reduce((highest, element) => (element.key > highest ? element.key : highest), "");
  return before.some((element) => element.key === nearest && element.end !== true);
}
