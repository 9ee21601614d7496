import type { ProxyConfig } from "../config/index.js";
import type { IpFamily } from "../model/types.js";
import { localDetector, type NodeFacts } from "../node/facts.js";
import type { RulesetOptions } from "../ruleset/ruleset.js";

/** What a family's rules depend on besides services, all but what the kernel can do. `nodePorts`: addresses that node ports answer on. */
export function rulesetOptions(
  config: ProxyConfig,
  facts: NodeFacts,
  family: IpFamily,
  nodePorts: "all" | readonly string[],
): RulesetOptions {
  return {
    masqueradeAll: config.nftables.masqueradeAll,
    masqueradeBit: config.nftables.masqueradeBit,
    detector: localDetector(config, facts, family),
    nodePortAddresses: nodePorts,
    nodeIP: facts.nodeIPs[family],
  };
}
