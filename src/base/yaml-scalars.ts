/** Scalars that kubectl and kube-proxy read differently from YAML 1.2 (sigs.k8s.io/yaml/goyaml.v2 resolve.go). */
import type { ScalarTag } from "yaml";

/** YAML 1.1, which they read, has these booleans too. Add them to the tags of a YAML 1.2 schema. */
export const OLD_BOOLEANS: ScalarTag = {
  tag: "tag:yaml.org,2002:bool",
  default: true,
  identify: (value) => typeof value === "boolean",
  test: /^(?:y|Y|yes|Yes|YES|on|On|ON|n|N|no|No|NO|off|Off|OFF)$/,
  resolve: (text) => /^(?:y|on)/i.test(text),
};

/**
 * Integers as Go's strconv.ParseInt reads them with base 0: a leading 0 means octal, and underscores are ignored. Put them
 * before the tags of a YAML 1.2 schema, whose integers are otherwise decimal.
 */
export const GO_INTEGERS: ScalarTag = {
  tag: "tag:yaml.org,2002:int",
  default: true,
  identify: (value) => Number.isInteger(value),
  test: /^[-+]?(?:0[bB][01_]*[01][01_]*|0[oO][0-7_]*[0-7][0-7_]*|0[xX][\da-fA-F_]*[\da-fA-F][\da-fA-F_]*|\d[\d_]*)$/,
  resolve: (text) => {
    const digits = text.replace(/^[-+]/, "").replaceAll("_", "");
    // 08 and 09 are not octal. Go then reads them as floating-point numbers, which are decimal.
    const value = /^0[0-7]+$/.test(digits) ? Number.parseInt(digits, 8) : Number(digits);
    return text.startsWith("-") ? -value : value;
  },
};
