/** What kubectl and kube-proxy read of YAML that YAML 1.2 does not say. */
import type { ScalarTag } from "yaml";

/** They read YAML 1.1, where these too are booleans (sigs.k8s.io/yaml/goyaml.v2 resolve.go). To be added to the tags of a YAML 1.2 schema. */
export const OLD_BOOLEANS: ScalarTag = {
  tag: "tag:yaml.org,2002:bool",
  default: true,
  identify: (value) => typeof value === "boolean",
  test: /^(?:y|Y|yes|Yes|YES|on|On|ON|n|N|no|No|NO|off|Off|OFF)$/,
  resolve: (text) => /^(?:y|on)/i.test(text),
};
