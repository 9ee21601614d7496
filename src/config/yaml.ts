import { createRequire } from "node:module";
import type * as Yaml from "yaml";

const require = createRequire(import.meta.url);

/** The YAML library, loaded with its first use: 9 MB that a program without a configuration file has no need of. */
export function yaml(): typeof Yaml {
  return require("yaml") as typeof Yaml;
}
