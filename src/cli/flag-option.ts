import { Option } from "commander";
import type { FlagSpec } from "./kube-proxy-flags.js";

/** A flag as Go's pflag has it, in commander's words. `take` gets each value; a deprecated one is not in the help. */
export function flagOption(spec: FlagSpec, take: (value: string) => void): Option {
  const short = spec.name === "v" ? "-v, " : "";
  const value =
    spec.type === "bool" ? "[bool]" : spec.type === "version" ? `[${spec.placeholder}]` : `<${spec.placeholder}>`;
  const option = new Option(`${short}--${spec.name} ${value}`, spec.usage).argParser(take);
  return spec.deprecated === "" ? option : option.hideHelp();
}
