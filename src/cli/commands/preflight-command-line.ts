/** The command `preflight`, with kube-proxy's flags and a few of its own. */
import type { ParseOptionsResult } from "commander";
import { CliCommand, flagOption } from "../cli-command.js";
import { HELP } from "../flags/flags-help.js";
import { type FlagName, KUBE_PROXY_FLAGS } from "../flags/kube-proxy-flags.js";
import { flag, optionsOf } from "../flags/own-flags.js";
import type { PreflightFormat } from "./preflight.js";
import { type FlagsGiven, readFlags } from "../read-flags.js";

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
  flag("manifests", "string", "dir", "check the objects in this directory instead of the API server's"),
  flag("load-modules", "bool", "", "let the kernel load its modules, as the first start does; otherwise skip checks that need them"),
  flag("output", "string", "format", "output format", { read: (text) => text as PreflightFormat, choices: ["text", "json", "yaml"], defaultText: "text", short: "o" }),
] as const;

const KUBE_PROXYS = KUBE_PROXY_FLAGS.filter(({ name }) => !OTHER_TASKS.includes(name));

/** Reads its words in kube-proxy's syntax. Commander only needs its options for the help. */
class PreflightCommand extends CliCommand {
  given: FlagsGiven = { values: {}, problems: [], rest: [] };

  override parseOptions(argv: string[]): ParseOptionsResult {
    this.given = readFlags(argv, [...KUBE_PROXYS, ...OWN, HELP]);
    const { values, problems, rest } = this.given;
    return { operands: problems.length > 0 ? [] : [...rest], unknown: values["help"] === true ? ["--help"] : [] };
  }
}

/** @param done receives the exit code. */
export function addPreflight(root: CliCommand, done: (code: number) => void): void {
  const self = new PreflightCommand("preflight")
    .copyInheritedSettings(root)
    .description("check what replacing kube-proxy would change on this node")
    .setNotes(
      "Changes nothing. Accepts all flags of kube-proxy. Use the flags of its DaemonSet.\n\nExit code 0: no problems found. 1: something would fail or be lost. 2: the node could not be inspected.",
    )
    .setExamples(
      [
        "Check this node with kubeadm's configuration",
        "nft-proxier preflight --config /var/lib/kube-proxy/config.conf",
      ],
      ["Print the report as JSON", "nft-proxier preflight --config kube-proxy.yaml -o json"],
    )
    .action(async () => {
      const { values, problems } = self.given;
      const { flagProblems } = await import("../flags/flag-config.js");
      const wrong = problems.length > 0 ? problems : flagProblems(values);
      if (wrong.length > 0) self.error(`error: ${wrong.join("\nerror: ")}`);
      const { preflightCommand } = await import("./preflight.js");
      done(await preflightCommand(values, optionsOf(values, OWN)));
    });
  const shown = [...KUBE_PROXYS.filter(({ name }) => SHOWN.includes(name)), ...OWN];
  for (const one of shown) self.addOption(flagOption(one));
  root.addCommand(self);
}
