import type { ProxyConfig } from "../config/proxy-config.js";
import type { IpFamily } from "../base/ip.js";
import { localDetector, type NodeFacts, type NodePortPlaces } from "../node/node-facts.js";
import type { RulesetOptions } from "../ruleset/family-ruleset.js";

/**
 * Returns the rules' options, except those that depend on the kernel's features. @param nodePorts where node ports are
 * served.
 */
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
