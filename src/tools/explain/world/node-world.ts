import type { IpFamily } from "../../../base/ip.js";
import { IpsetTable } from "../../../netlink/ipset-table.js";
import type { RuleInfo } from "../../../nft/kernel/kernel.js";
import type { World } from "../machine/machine-world.js";
import { elementText, ruleText } from "../../../nft/engine-exports.js";
import { Kept } from "./kept.js";
import { type RoutedKernel, type Routing } from "./routing.js";
import { Ruleset } from "./ruleset.js";

/** Returns the facts of this node for packets of one family. No number is drawn. @param isMet as for `Ruleset`. */
export function worldOf(
  kernel: RoutedKernel,
  family: IpFamily,
  routes: Routing,
  isOurs: World["isOurs"],
  isMet?: (rule: RuleInfo) => boolean,
): World {
  const ipsets = kernel.connection && new IpsetTable(kernel.connection);
  const kept = new Kept();
  const rules = new Ruleset(kernel, family, isMet);
  const textOf: World["ruleText"] = ({ exprs, handle, ...ref }) => {
    const text = ruleText(exprs, { family: ref.family, set: (name) => rules.knownSet(ref, name) });
    return `${text} (handle ${handle})`;
  };
  return {
    ...{ rules, routes, isOurs, ruleText: textOf, elementText },
    isInIpSet: (set, address) =>
      kept.get(`${set} ${address.join(".")}`, async () => ipsets?.hasAddress(set, address).catch(() => undefined)),
    ...{ draw: 0, onDraw: () => undefined },
  };
}
