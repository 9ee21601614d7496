/** Operations that write the flowtable's own table. Pure. docs/flowtable.md shows the table as `nft` prints it. */
import {
  BitwiseOp,
  CmpOp,
  CtKey,
  CtState,
  CtStatus,
  FlowtableFlag,
  Hook,
  IpProto,
  MetaKey,
  VERDICT_REGISTER,
} from "../nft/kernel/constants.js";
import type { Expr, Op, TableRef } from "../nft/kernel/kernel.js";

/** Separate from the services' tables, so that no interface problem can make writes of theirs fail. */
export const FLOWTABLE_REF: TableRef = { family: "inet", table: "nft-proxier-flowtable" };
const FLOWTABLE = "services";
export const OFFLOAD_CHAIN = "offload";

/** After other programs' chains at the forward hook: packets that these drop are not offloaded. */
const AFTER_FILTERS = 1000;
/** Device names in one message. The kernel rejects NFT_NETDEVICE_MAX (256). */
const MOST_DEVICES = 255;
/** Both directions together. A short request and its answer, with handshake and end, take fewer. */
const PACKETS_BEFORE = 20;
/** BYTEORDER_HTON */
const TO_NETWORK = 1;

const word = (value: number): Uint8Array => new Uint8Array(Uint32Array.of(value).buffer);

function networkOrder64(value: number): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value));
  return bytes;
}

/** `ct KEY BIT`. */
const ctBit = (key: number, bit: number): Expr[] => [
  { type: "ct", key, dreg: 1 },
  { type: "bitwise", sreg: 1, dreg: 1, len: 4, op: BitwiseOp.maskXor, mask: word(bit), xor: word(0) },
  { type: "cmp", sreg: 1, op: CmpOp.neq, data: word(0) },
];

const goto = (chain: string): Expr => ({ type: "immediate", dreg: VERDICT_REGISTER, data: { verdict: "goto", chain } });

/** `ct state established ct status dnat meta l4proto tcp goto incoming`. */
const SERVICES_TCP: readonly Expr[] = [
  ...ctBit(CtKey.state, CtState.established),
  ...ctBit(CtKey.status, CtStatus.dnat),
  { type: "meta", key: MetaKey.l4proto, dreg: 1 },
  { type: "cmp", sreg: 1, op: CmpOp.eq, data: Uint8Array.of(IpProto.tcp) },
  goto("incoming"),
];

/** Compares with a name of 16 bytes (IFNAMSIZ), or with its first bytes. */
function nameIs(key: number, pattern: string): Expr[] {
  const whole = !pattern.endsWith("*");
  const bytes = Buffer.from(whole ? pattern : pattern.slice(0, -1));
  const data = new Uint8Array(whole ? 16 : bytes.length);
  data.set(bytes);
  return [
    { type: "meta", key, dreg: 1 },
    { type: "cmp", sreg: 1, op: CmpOp.eq, data },
  ];
}

/** `ct packets > 20 flow add @services counter`: the counter counts connections. */
const OFFLOAD: readonly Expr[] = [
  { type: "ct", key: CtKey.packets, dreg: 1 },
  { type: "byteorder", sreg: 1, dreg: 1, op: TO_NETWORK, len: 8, size: 8 },
  { type: "cmp", sreg: 1, op: CmpOp.gt, data: networkOrder64(PACKETS_BEFORE) },
  { type: "flow_offload", flowtable: FLOWTABLE },
  { type: "counter" },
];

const TABLE = { kind: "table", ...FLOWTABLE_REF } as const;
/** Each change repeats the flags, because a change without them clears them (nft_flowtable_update). */
const OF_FLOWTABLE = { kind: "flowtable", ...FLOWTABLE_REF, flowtable: FLOWTABLE, priority: 0 } as const;

/**
 * Replaces the existing table, with any content, by one without devices. Offloaded connections go through the hooks again.
 * Both interfaces of a connection must be named: a connection over other interfaces would be marked as offloaded without being
 * so.
 */
export function createTable(interfaces: readonly string[]): Op[] {
  const base = { type: "filter", hook: Hook.forward, priority: AFTER_FILTERS, policy: "accept" } as const;
  return [
    { op: "add", ...TABLE },
    { op: "delete", ...TABLE },
    { op: "add", ...TABLE },
    { op: "add", ...OF_FLOWTABLE, flags: FlowtableFlag.counter, devices: [] },
    { op: "add", kind: "chain", ...FLOWTABLE_REF, chain: OFFLOAD_CHAIN },
    rule(OFFLOAD_CHAIN, OFFLOAD),
    { op: "add", kind: "chain", ...FLOWTABLE_REF, chain: "outgoing" },
    ...interfaces.map((name) => rule("outgoing", [...nameIs(MetaKey.oifname, name), goto(OFFLOAD_CHAIN)])),
    { op: "add", kind: "chain", ...FLOWTABLE_REF, chain: "incoming" },
    ...interfaces.map((name) => rule("incoming", [...nameIs(MetaKey.iifname, name), goto("outgoing")])),
    { op: "add", kind: "chain", ...FLOWTABLE_REF, chain: "forward", base },
    rule("forward", SERVICES_TCP),
  ];
}

const rule = (chain: string, exprs: readonly Expr[]): Op => ({
  op: "add",
  kind: "rule",
  ...FLOWTABLE_REF,
  chain,
  exprs,
});

export function deleteTable(): Op[] {
  return [{ op: "delete", ...TABLE }];
}

export function addDevices(devices: readonly string[]): Op[] {
  return chunks(devices).map((some) => ({ op: "add", ...OF_FLOWTABLE, flags: FlowtableFlag.counter, devices: some }));
}

function chunks(devices: readonly string[]): string[][] {
  const count = Math.ceil(devices.length / MOST_DEVICES);
  return Array.from({ length: count }, (_, i) => devices.slice(i * MOST_DEVICES, (i + 1) * MOST_DEVICES));
}
