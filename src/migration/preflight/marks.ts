/** Analyzes how other programs' rules use the packet mark, and whether they use the masquerade bit. */
import { LITTLE_ENDIAN } from "../../base/byte-order.js";
import { unpackNumber } from "../../ruleset/key-packer.js";
import { BitwiseOp, Hook, MetaKey, Priority } from "../../netlink/constants.js";
import type { BaseChain, Expr } from "../../netlink/kernel.js";

/**
 * Bits of the mark that a rule sets, clears and tests. If the written value is unknown (a stored mark), all bits
 * written count as cleared.
 */
export interface MarkUse {
  readonly sets: number;
  readonly clears: number;
  readonly tests: number;
}

const ALL = 0xffffffff;

/** A register with (mark & kept) ^ flipped. Registers that do not come from the mark have no entry. */
interface MarkValue {
  readonly kept: number;
  readonly flipped: number;
}

/** Returns undefined if the rule does not use the mark. */
export function markUse(exprs: readonly Expr[]): MarkUse | undefined {
  const marks = new Map<number, MarkValue>();
  let [sets, clears, tests] = [0, 0, 0];
  const write = ({ kept, flipped }: MarkValue): void => {
    sets |= flipped;
    clears |= ~kept & ~flipped;
  };
  const test = (bits: number): void => {
    // A test of the whole mark is about its value, not about single bits.
    if (bits !== ALL) tests |= bits;
  };
  for (const expr of exprs) {
    switch (expr.type) {
      case "meta":
        if (expr.key !== MetaKey.mark) {
          if (expr.dreg !== undefined) marks.delete(expr.dreg);
        } else if (expr.dreg !== undefined) marks.set(expr.dreg, { kept: ALL, flipped: 0 });
        else if (expr.sreg !== undefined) write(marks.get(expr.sreg) ?? { kept: 0, flipped: 0 });
        break;
      case "immediate":
        if ("verdict" in expr.data) break;
        if (expr.data.length === 4) marks.set(expr.dreg, { kept: 0, flipped: unpackNumber(expr.data) });
        else marks.delete(expr.dreg);
        break;
      case "bitwise": {
        const from = marks.get(expr.sreg);
        const masks = (expr.op ?? BitwiseOp.maskXor) === BitwiseOp.maskXor && expr.mask?.length === 4;
        if (from === undefined || !masks) marks.delete(expr.dreg);
        else {
          const mask = unpackNumber(expr.mask);
          const flipped = ((from.flipped & mask) ^ (expr.xor === undefined ? 0 : unpackNumber(expr.xor))) >>> 0;
          marks.set(expr.dreg, { kept: (from.kept & mask) >>> 0, flipped });
        }
        break;
      }
      case "cmp":
      case "range":
        test(marks.get(expr.sreg)?.kept ?? 0);
        break;
      case "lookup":
        test(marks.get(expr.sreg)?.kept ?? 0);
        if (expr.dreg !== undefined) marks.delete(expr.dreg);
        break;
      case "opaque": {
        const compat = compatOf(expr.name, expr.data);
        if (compat?.name === "mark") test(compat.words[1]);
        if (compat?.name === "MARK") write({ kept: ~compat.words[1] >>> 0, flipped: compat.words[0] });
        if (compat?.name === "CONNMARK" && compat.mode === RESTORE) write({ kept: ~compat.words[2] >>> 0, flipped: 0 });
        break;
      }
      default:
        if ("dreg" in expr && expr.dreg !== undefined) marks.delete(expr.dreg);
    }
  }
  const use = { sets: sets >>> 0, clears: clears >>> 0, tests: tests >>> 0 };
  return use.sets === 0 && use.clears === 0 && use.tests === 0 ? undefined : use;
}

/** XT_CONNMARK_RESTORE of linux/netfilter/xt_connmark.h. */
const RESTORE = 2;

interface Compat {
  readonly name: string;
  /** mark and mask; for CONNMARK: ctmark, ctmask, nfmask. */
  readonly words: readonly number[];
  /** Follows the words. */
  readonly mode: number;
}

/**
 * Revisions with a known layout (struct xt_mark_tginfo2, xt_mark_mtinfo1, xt_connmark_tginfo1 and 2), with their number
 * of words.
 */
const LAYOUTS: Readonly<Record<string, { readonly revisions: readonly number[]; readonly words: number }>> = {
  "match mark": { revisions: [1], words: 2 },
  "target MARK": { revisions: [2], words: 2 },
  "target CONNMARK": { revisions: [1, 2], words: 3 },
};
/** NFTA_TARGET_NAME, _REV and _INFO, which have the same values for a match (linux/netfilter/nf_tables_compat.h). */
const [NAME, REVISION, INFO] = [1, 2, 3];

/** Parses a match or target of iptables-nft that uses marks. */
function compatOf(kind: string, data: Uint8Array): Compat | undefined {
  const attributes = new Map<number, Buffer>();
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  for (let at = 0; at + 4 <= bytes.length;) {
    const length = view.getUint16(at, LITTLE_ENDIAN);
    if (length < 4) break;
    attributes.set(view.getUint16(at + 2, LITTLE_ENDIAN), bytes.subarray(at + 4, at + length));
    at += (length + 3) & ~3;
  }
  const name = (attributes.get(NAME)?.toString("latin1") ?? "").replace(/\0.*$/s, "");
  const [layout, revision, info] = [LAYOUTS[`${kind} ${name}`], attributes.get(REVISION), attributes.get(INFO)];
  if (layout === undefined || revision?.length !== 4 || !layout.revisions.includes(revision.readUInt32BE())) {
    return undefined;
  }
  if (info === undefined || info.length <= layout.words * 4 - 1) return undefined;
  const words = Array.from({ length: layout.words }, (_, i) => unpackNumber(info.subarray(i * 4, i * 4 + 4)));
  return { name, words, mode: info[layout.words * 4] ?? 0 };
}

/** Whether our postrouting, which tests the bit, sees a chain's changes to the mark. */
export function isBeforeMasquerading({ hook, priority }: BaseChain): boolean {
  if (hook === Hook.postrouting) return priority < Priority.srcnat;
  return hook === Hook.prerouting || hook === Hook.output || hook === Hook.forward;
}

/** Whether the chain runs after our DNAT, which sets the bit. */
export function isAfterDnat({ hook, priority }: BaseChain): boolean {
  return hook === Hook.forward || hook === Hook.postrouting || priority > Priority.dstnat;
}
