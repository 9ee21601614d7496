import type { IpFamily } from "../../../base/ip.js";
import type { World } from "../machine/machine-world.js";
import { ruleText } from "../text/rule-text.js";
import { elementText } from "../text/set-text.js";
import { IpSets } from "./ip-sets.js";
import { type RoutedKernel, type Routing } from "./routing.js";
import { Ruleset } from "./ruleset.js";

/** Returns the facts of this node for packets of one family. No number is drawn, and no steps are recorded. */
export function worldOf(kernel: RoutedKernel, family: IpFamily, routes: Routing, isOurs: World["isOurs"]): World {
  const sets = new IpSets(kernel);
  return {
    ...{ rules: new Ruleset(kernel, family), routes, isOurs, ruleText, elementText },
    isInIpSet: (set, address) => sets.has(set, address),
    ...{ draw: 0, onDraw: () => undefined, traced: false },
  };
}
