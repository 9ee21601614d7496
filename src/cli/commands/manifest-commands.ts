/** The commands that read manifests: `run`, `render` and `validate`. */
import { command } from "../command.js";
import { OWN } from "../flags/own-flags.js";
import { logLevel, output } from "../options.js";
import { flag, type OptionsOf } from "../read-flags.js";

const MANIFESTS = [
  flag("--manifests <dir>", "directory of Service, EndpointSlice, Node and ServiceCIDR manifests (required)", {
    required: true,
  }),
  flag("--config <file>", "KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), YAML or JSON"),
] as const;

const RUN = [
  ...MANIFESTS,
  flag("--once", "write both families once, with retries for 30s, and exit with 0 if everything is active"),
  OWN.allowIncomplete,
  OWN.ownTable,
  OWN.conntrackGcInterval,
  OWN.controlSocket,
  OWN.serviceCounters,
  OWN.flowtable,
  logLevel("info"),
] as const;
export type RunOptions = OptionsOf<typeof RUN>;

export const run = command({
  name: "run",
  description: "serve the Services in a directory of manifests",
  flags: RUN,
  examples: [
    ["Serve a directory, and follow its changes", "nft-proxier run --manifests /etc/nft-proxier"],
    ["Write the tables once", "nft-proxier run --manifests /etc/nft-proxier --once"],
  ],
  run: async (options) => (await import("./serve.js")).runCommand(options),
});

const RENDER = [
  ...MANIFESTS,
  flag("--family <family>", "print only this family", { choices: ["ip", "ip6"] }),
  OWN.allowIncomplete,
  logLevel("info"),
] as const;
export type RenderOptions = OptionsOf<typeof RENDER>;

export const render = command({
  name: "render",
  description: "print the ruleset in nft syntax; needs no privileges",
  flags: RENDER,
  examples: [
    ["Print the rules for a directory", "nft-proxier render --manifests ./manifests"],
    ["Let nft check the IPv4 rules", "nft-proxier render --manifests . --family ip | nft -c -f -"],
  ],
  run: async (options) => (await import("./render.js")).renderCommand(options),
});

const VALIDATE = [...MANIFESTS, output("text", "json")] as const;
export type ValidateOptions = OptionsOf<typeof VALIDATE>;

export const validate = command({
  name: "validate",
  description: "report problems in manifests; needs no privileges",
  flags: VALIDATE,
  notes: "Exit code 0: no problems, or only notes. 1: errors or warnings.",
  examples: [
    ["Check a directory", "nft-proxier validate --manifests ./manifests"],
    ["Check a directory in a CI pipeline", "nft-proxier validate --manifests ./manifests -o json"],
  ],
  run: async (options) => (await import("./validate.js")).validateCommand(options),
});
