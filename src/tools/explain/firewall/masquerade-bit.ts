/** Finds rules of other programs that set the masquerade bit of the packet mark. Pure. */
import { Hook, Priority } from "../../../nft/kernel/constants.js";
import type { BaseChain } from "../../../nft/kernel/kernel.js";
import type { StatusProblem } from "../../../observe/status-report.js";
import type { ForeignChain } from "./foreign-chains.js";

/** "bit 14 of the packet mark (0x4000)". */
export function bitText(bit: number): string {
  return `bit ${bit} of the packet mark (0x${((1 << bit) >>> 0).toString(16)})`;
}

/** The remedy for rules that change the bit. */
export const ANOTHER_BIT = "set nftables.masqueradeBit to a bit that no program on this node uses";

type SettingProblem = StatusProblem & { readonly check: "masquerade-bit" };

/** nft-proxier masquerades each service connection whose packets have the bit, whichever program has set it. */
export function settingProblems(chains: readonly ForeignChain[], bit: number): SettingProblem[] {
  return chains.filter(isBeforeMasquerading).flatMap(({ ref, chain: from, markBits }) => {
    const setting = [...markBits].filter(([, bits]) => (bits & (1 << bit)) !== 0).map(([chain]) => chain);
    if (setting.length === 0) return [];
    const about = `chain ${setting.slice(0, 3).join(", ")}${setting.includes(from) ? "" : `, from ${from}`}`;
    const what = `rules of table ${ref.family} ${ref.table} set ${bitText(bit)} (${about}), so nft-proxier masquerades the service connections that they mark`;
    return [{ check: "masquerade-bit", what, remedy: ANOTHER_BIT }];
  });
}

/** Whether our postrouting, which tests the bit, sees a chain's changes to the mark. */
function isBeforeMasquerading({ base: { hook, priority } }: { readonly base: BaseChain }): boolean {
  if (hook === Hook.postrouting) return priority < Priority.srcnat;
  return hook === Hook.prerouting || hook === Hook.output || hook === Hook.forward;
}
