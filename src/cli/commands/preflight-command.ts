/** The command `preflight`, with kube-proxy's flags and a few of its own. */
import { UsageError } from "../../base/user-error.js";
import { command } from "../command.js";
import { type FlagName, KUBE_PROXY_FLAGS } from "../flags/kube-proxy-flags.js";
import { output } from "../options.js";
import { flag, type OptionsOf, optionsOf } from "../read-flags.js";

/** kube-proxy's flags for tasks other than serving. */
const OTHER_TASKS: readonly string[] = ["write-config-to", "cleanup", "init-only", "version"] satisfies FlagName[];
/** kube-proxy's flags that the help shows. */
const SHOWN: readonly string[] = [
  "config",
  "hostname-override",
  "kubeconfig",
  "nodeport-addresses",
] satisfies FlagName[];

// prettier-ignore
const OWN = [
  flag("--manifests <dir>", "check the objects in this directory instead of the API server's"),
  flag("--load-modules", "let the kernel load its modules, as the first start does; otherwise skip checks that need them"),
  output("text", "json", "yaml"),
] as const;
export type PreflightOptions = OptionsOf<typeof OWN>;

const KUBE_PROXYS = KUBE_PROXY_FLAGS.filter(({ name }) => !OTHER_TASKS.includes(name));

export const preflight = command({
  name: "preflight",
  description: "check what replacing kube-proxy would change on this node",
  flags: [...KUBE_PROXYS, ...OWN],
  shown: [...KUBE_PROXYS.filter(({ name }) => SHOWN.includes(name)), ...OWN],
  notes:
    "Changes nothing. Accepts all flags of kube-proxy. Use the flags of its DaemonSet.\n\nExit code 0: no problems found. 1: something would fail or be lost. 2: the node could not be inspected.",
  examples: [
    ["Check this node with kubeadm's configuration", "nft-proxier preflight --config /var/lib/kube-proxy/config.conf"],
    ["Print the report as JSON", "nft-proxier preflight --config kube-proxy.yaml -o json"],
  ],
  run: async (_, __, values) => {
    const { flagProblems } = await import("../flags/flag-config.js");
    const wrong = flagProblems(values);
    if (wrong.length > 0) throw new UsageError(wrong.join("\nerror: "));
    return (await import("./preflight.js")).preflightCommand(values, optionsOf(values, OWN));
  },
});
