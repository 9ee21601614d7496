/** The options of `preflight`: kube-proxy's flags, as its DaemonSet has them, and a few of its own. */
import { type Command, Option } from "commander";
import { flagOption } from "./flag-option.js";
import { readFlags } from "./go-flags.js";
import { KUBE_PROXY_FLAGS } from "./kube-proxy-flags.js";
import { PREFLIGHT_FORMATS, type PreflightCommandOptions } from "./options.js";

export const PREFLIGHT = "preflight";
/** Flags of kube-proxy's that say what is to be done instead of serving. */
const OTHER_ERRANDS: readonly string[] = ["write-config-to", "cleanup", "init-only", "version"];
const MODE = "proxy-mode";
/** Those of the others that its help shows; all are read. */
const SHOWN: readonly string[] = ["config", "hostname-override", "kubeconfig", "nodeport-addresses"];

/** With the command line that the DaemonSet has. */
export function addPreflight(
  command: (name: string, description: string) => Command,
  done: (code: number) => void,
): void {
  const given: [name: string, value: string][] = [];
  const self = command(
    PREFLIGHT,
    "what would change on this node with nft-proxier in kube-proxy's place; changes nothing",
  );
  for (const spec of KUBE_PROXY_FLAGS.filter(({ name }) => !OTHER_ERRANDS.includes(name))) {
    const option = flagOption(spec, (value) => given.push([spec.name, value]));
    self.addOption(SHOWN.includes(spec.name) ? option : option.hideHelp());
  }
  self
    .option("--manifests <dir>", "look at the objects in this directory; no API server is asked")
    .option(
      "--load-modules",
      "the kernel may load its own modules, as the first start has it do; without, what needs it is skipped",
    )
    .addOption(new Option("-o, --output <format>", "text, json or yaml").choices(PREFLIGHT_FORMATS).default("text"))
    .addHelpText(
      "after",
      "\nkube-proxy's other flags mean what they mean to it.\nExit code 0: no problem in what was checked; 1: something would fail or be lost; 2: it could not be looked at.",
    )
    .action(async (options: PreflightCommandOptions) => {
      const { values, problems } = readFlags(given);
      const { flagProblems } = await import("./flag-config.js");
      // Another proxier's mode is what is to be left: a finding, and no mistake in the command line.
      const { [MODE]: _, ...rest } = values;
      const wrong = problems.length > 0 ? problems : flagProblems(rest);
      if (wrong.length > 0) self.error(`error: ${wrong.join("\nerror: ")}`);
      const { preflightCommand } = await import("./preflight.js");
      done(await preflightCommand(values, options));
    });
}
