import type { RulesetOptions } from "../../../src/ruleset/family-ruleset.js";

/** Options that add no rules. */
export const RULESET_OPTIONS: RulesetOptions = {
  masqueradeAll: false,
  masqueradeBit: 14,
  detector: { kind: "none" },
  nodePortAddresses: "all",
};
