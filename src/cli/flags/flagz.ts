/** The content of /flagz on the metrics port. */
import { type FlagName, type FlagValues, KUBE_PROXY_FLAGS } from "./kube-proxy-flags.js";
import type { FlagType } from "../read-flags.js";

const ZERO: Readonly<Record<FlagType, string>> = {
  bool: "false",
  string: "",
  integer: "0",
  number: "0",
  duration: "0s",
  strings: "[]",
  gates: "",
  levels: "",
  version: "false",
};

/** Returns one line "name=value" per flag, whether given or not, sorted by name. */
export function toFlagz(flags: FlagValues): string {
  const values = KUBE_PROXY_FLAGS.map((spec): [name: string, value: string] => {
    const value = flags[spec.name as FlagName];
    return [spec.name, value === undefined ? spec.initial || ZERO[spec.type] : show(value)];
  });
  const sorted = [...values, ["help", "false"] as const].sort(([a], [b]) => (a < b ? -1 : 1));
  return sorted.map(([name, value]) => `${name}=${value.replaceAll("\n", "\\n")}\n`).join("");
}

/** Formats a value like Go's flags. */
function show(value: NonNullable<FlagValues[FlagName]>): string {
  if (typeof value !== "object") return String(value);
  if (!Array.isArray(value)) {
    const gates = Object.entries(value).map(([gate, on]) => `${gate}=${String(on)}`);
    return gates.sort().join(",");
  }
  const texts = value.map((one) => (typeof one === "string" ? one : `${one.filePattern}=${one.verbosity}`));
  return typeof value[0] === "object" ? texts.join(",") : `[${texts.join(",")}]`;
}
