import type { ModeFacts } from "../../../../src/migration/preflight/mode.js";

/** A node without rules of any proxy. */
export const NO_MODE: ModeFacts = {
  tables: [],
  iptables: [],
  iptablesNodePorts: 0,
  legacyNodePorts: 0,
  healthCheckRules: 0,
  handover: [],
  foreign: [],
};
