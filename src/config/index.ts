export { defaultConfig, loadConfig, parseConfig, type LoadedConfig } from "./load.js";
export { ConfigError, type ConfigProblem, type DetectLocalMode, type ProxyConfig } from "./types.js";
