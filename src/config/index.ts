export { type ConfigDocument, toYAML } from "./document.js";
export { configFromFlags, defaultConfig, loadConfig, parseConfig, type LoadedConfig, type Overrides } from "./load.js";
export type { ConfigInput } from "./schema.js";
export { ConfigError, type ConfigProblem, type DetectLocalMode, type ProxyConfig } from "./types.js";
export { expandNodePortAddresses, isLoopbackCIDR, servesLocalhost } from "./node-port-addresses.js";
export { IPVS_SCHEDULERS, type IpvsSection, ipvsNotes, schedulerNote } from "./ipvs-notes.js";
