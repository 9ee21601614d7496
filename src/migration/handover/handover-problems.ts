/** Problems that \`handover\` left. */
import { FAMILY_NAMES } from "../../base/ip-families.js";
import type { IpFamily } from "../../base/ip.js";
import type { Kernel } from "../../nft/kernel/kernel.js";
import type { StatusProblem } from "../../observe/status-report.js";
import { handoverLeft } from "./handover.js";

/** Reports copies that `handover` left. Never rejects: an unreadable kernel is reported elsewhere. */
export async function handoverProblems(kernel: Kernel): Promise<StatusProblem[]> {
  const problems = Object.entries(FAMILY_NAMES).map(async ([family, name]): Promise<StatusProblem[]> => {
    const left = await handoverLeft(kernel, family as IpFamily).catch(() => undefined);
    if (left === undefined) return [];
    const remedy = "run `nft-proxier handover --remove`; the next start also removes it";
    if (left === 0)
      return [{ what: `an expired handover copy of the ${name} rules exists; it serves no packets`, remedy }];
    const seconds = Math.ceil(left / 1000);
    return [
      {
        what: `a handover copy of the ${name} rules serves packets that no other rules serve, for another ${seconds}s`,
        remedy,
      },
    ];
  });
  return (await Promise.all(problems)).flat();
}
