import type { ProxyConfig } from "../config/proxy-config.js";
import type { IpFamily } from "../base/ip.js";
import { localDetector, type NodeFacts, type NodePortPlaces } from "../node/facts.js";
import type { RulesetOptions } from "../ruleset/ruleset.js";

/** What a family's rules depend on besides services, all but what the kernel can do. `nodePorts`: where node ports answer. */
export function rulesetOptions(
  config: ProxyConfig,
  facts: NodeFacts,
  family: IpFamily,
  nodePorts: NodePortPlaces,
): RulesetOptions {
  return {
    masqueradeAll: config.nftables.masqueradeAll,
    masqueradeBit: config.nftables.masqueradeBit,
    detector: localDetector(config, facts, family),
    nodePortAddresses: nodePorts.addresses,
    localhost: nodePorts.localhost,
    nodeIP: facts.nodeIPs[family],
  };
}
