/** Finds the parts of a packet that rules read. Packets that are equal in these parts are treated alike. */
import { CmpOp, CtKey, FibFlag, Hook, PayloadBase, Priority } from "../../../nft/kernel/constants.js";
import type { Expr, TableRef } from "../../../nft/kernel/kernel.js";
import type { IpFamily } from "../../../base/ip.js";
import { placeOf } from "../machine/packet-state.js";
import { LINK_PARTS, type LinkPart } from "../machine/packet-values.js";
import type { RoutedKernel } from "../world/routing.js";

/** Parts of a packet that some rule reads. Packets that are equal in them are treated alike. */
export interface SeenFields {
  /** Bits of addresses, and of ports, of the source or the destination. */
  readonly address: Readonly<Record<IpFamily, Uint8Array>>;
  readonly port: number;
  readonly interfaces: boolean;
  /** Values with which rules compare parts of interfaces. Undefined if rules look at interfaces in other ways. */
  readonly compared: readonly { readonly part: LinkPart; readonly with: Uint8Array }[] | undefined;
  /** Devices that have chains. */
  readonly devices: readonly string[];
  /** Whether some rule sees a packet's original destination, before translation or through its connection. */
  readonly vip: boolean;
}

/** Equal for all services' connections. */
const STATES: readonly number[] = [CtKey.state, CtKey.status, CtKey.direction, CtKey.mark, CtKey.labels];
/** Expressions that compare a part of an interface with one value, or do not use it. */
const COMPARED = new Set(
  "meta cmp payload ct counter immediate opaque limit log dup fwd synproxy".split(" ") as Expr["type"][],
);

export async function seenFields(kernel: RoutedKernel, tables: readonly TableRef[]): Promise<SeenFields> {
  const [network, transport] = [new Uint8Array(40), new Uint8Array(20)];
  let [interfaces, vip, otherwise] = [false, false, false];
  const compared: { part: LinkPart; with: Uint8Array }[] = [];
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
      const parts = new Set(exprs.flatMap((expr) => (expr.type === "meta" ? (LINK_PARTS[expr.key]?.[1] ?? []) : [])));
      interfaces ||= parts.size > 0;
      for (const expr of exprs) {
        if (expr.type === "fib" && (expr.flags & (FibFlag.iif | FibFlag.oif)) !== 0) otherwise = true;
        const isOrder = expr.type === "cmp" && expr.op !== CmpOp.eq && expr.op !== CmpOp.neq;
        if (parts.size > 0 && (isOrder || !COMPARED.has(expr.type))) otherwise = true;
        if (expr.type === "cmp") for (const part of parts) compared.push({ part, with: expr.data });
      }
      // The addresses and ports of a connection are those in the headers of its first packet.
      const seesEnds = exprs.some((expr) => expr.type === "ct" && !STATES.includes(expr.key));
      vip ||= seesEnds;
      if (seesEnds || exprs.some(({ type }) => type === "fib")) network.fill(0xff);
      if (seesEnds) transport.fill(0xff);
      exprs.forEach((expr, i) => addSeen(expr, exprs[i + 1], network, transport));
    }
  }
  const addressOf = (family: IpFamily): Uint8Array => {
    const { at, length } = placeOf(family, "source");
    return network.slice(at, at + length).map((byte, i) => byte | network[at + length + i]);
  };
  const address = { ip: addressOf("ip"), ip6: addressOf("ip6") };
  const port = ((transport[0] | transport[2]) << 8) | transport[1] | transport[3];
  return { address, port, interfaces, compared: otherwise ? undefined : compared, devices, vip };
}

function addSeen(expr: Expr, next: Expr | undefined, network: Uint8Array, transport: Uint8Array): void {
  if (expr.type !== "payload" || expr.dreg === undefined) return;
  const into =
    expr.base === PayloadBase.network ? network : expr.base === PayloadBase.transport ? transport : undefined;
  if (into === undefined) return;
  const mask = next?.type === "bitwise" && next.sreg === expr.dreg && next.dreg === expr.dreg ? next.mask : undefined;
  const end = Math.min(expr.offset + expr.len, into.length);
  for (let at = expr.offset; at < end; at++) into[at] |= mask?.[at - expr.offset] ?? 0xff;
}
