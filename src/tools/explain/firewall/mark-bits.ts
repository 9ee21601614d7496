/** Reads which bits of the packet mark a rule sets. Pure. */
import { BitwiseOp, MetaKey } from "../../../netlink/constants.js";
import type { Expr } from "../../../netlink/kernel.js";
import { unpackNumber } from "../../../ruleset/key-packer.js";
import { extensionOf, u32 } from "../machine/xt-extension.js";

/** Returns the bits that a rule sets or flips. A value that is not in the rule, such as a stored mark, counts as none. */
export function markBitsSet(exprs: readonly Expr[]): number {
  /** By register with a mark: the bits that differ from the packet's mark or from 0. */
  const marks = new Map<number, number>();
  let sets = 0;
  for (const expr of exprs) {
    switch (expr.type) {
      case "meta":
        if (expr.dreg === undefined) sets |= expr.key === MetaKey.mark ? (marks.get(expr.sreg ?? 0) ?? 0) : 0;
        else if (expr.key === MetaKey.mark) marks.set(expr.dreg, 0);
        else marks.delete(expr.dreg);
        break;
      case "immediate":
        if ("verdict" in expr.data) break;
        if (expr.data.length === 4) marks.set(expr.dreg, unpackNumber(expr.data));
        else marks.delete(expr.dreg);
        break;
      case "bitwise": {
        const from = marks.get(expr.sreg);
        const masks = (expr.op ?? BitwiseOp.maskXor) === BitwiseOp.maskXor && expr.mask?.length === 4;
        if (from === undefined || !masks) marks.delete(expr.dreg);
        else marks.set(expr.dreg, (from & unpackNumber(expr.mask)) ^ (expr.xor ? unpackNumber(expr.xor) : 0));
        break;
      }
      case "opaque":
        sets |= xtMarkSet(expr);
        break;
      default:
        if ("dreg" in expr && expr.dreg !== undefined) marks.delete(expr.dreg);
    }
  }
  return sets >>> 0;
}

/** The target MARK of iptables (struct xt_mark_tginfo2: mark, mask). */
function xtMarkSet({ name, data }: Extract<Expr, { type: "opaque" }>): number {
  if (name !== "target") return 0;
  const { name: target, revision, info } = extensionOf(data);
  return target === "MARK" && revision === 2 && info.length >= 8 ? u32(info, 0) : 0;
}
