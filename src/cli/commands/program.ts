import { printableLines } from "../../base/printable.js";
import { UsageError } from "../../base/user-error.js";
import { command, type Command, EXIT_USAGE, flagLines, runCommand } from "../command.js";
import { ALL_FLAGS, allFlagsHelp, COMMON_FLAGS, EFFECTIVE_FLAGS } from "../flags/flags-help.js";
import { OWN_FLAGS } from "../flags/own-flags.js";
import { type FlagsGiven, optionsOf, readFlags } from "../read-flags.js";
import { KernelError } from "../../nft/kernel/errors.js";
import { UserError, writeError, writeOut } from "../stdio.js";
import { printVersion } from "../version.js";
import { completionScript, type Shell, SHELLS } from "./completion.js";
import { conntrack } from "./conntrack/command-line.js";
import { cleanup, handover } from "./kernel-commands.js";
import { render, run, validate } from "./manifest-commands.js";
import { preflight } from "./preflight-command.js";
import { diagnose, explain, page, services, status, top, trace } from "./question-commands.js";

const EXIT_FAILED = 1;

/** Called by this name, the program starts without any argument, like kube-proxy. */
const KUBE_PROXY = "kube-proxy";

const version = command({
  name: "version",
  description: "print the version",
  flags: [],
  examples: [["Print the version", "nft-proxier version"]],
  run: async () => {
    await printVersion(false);
    return 0;
  },
});

const completion = command({
  name: "completion",
  description: "print a completion script for a shell",
  arguments: [{ term: "<shell>", usage: "the shell", choices: SHELLS }],
  flags: [],
  examples: [
    ["Enable completion in the current bash", "source <(nft-proxier completion bash)"],
    ["Enable completion in the current fish", "nft-proxier completion fish | source"],
  ],
  run: async (_, [shell]) => {
    await writeOut(completionScript(shell as Shell, programNamed()));
    return 0;
  },
});

const COMMANDS: readonly Command[] = [
  ...[run, render, validate, preflight],
  ...[status, page, diagnose, explain, trace, services, top, version],
  ...[handover, cleanup, conntrack, completion],
];

const help = command({
  name: "help",
  description: "show the help of a command, or all flags",
  arguments: [
    {
      term: "[topic]",
      usage: "a command's name, or flags",
      choices: [...COMMANDS.map(({ name }) => name), "help", "flags"],
    },
    { term: "[subcommand]", usage: "a subcommand's name" },
  ],
  flags: [],
  examples: [
    ["List all flags", "nft-proxier help flags"],
    ["Show the help of a command", "nft-proxier help conntrack list"],
  ],
  run: async (_, [topic, ...others]) => {
    if (topic === "flags") {
      await writeOut(allFlagsHelp());
      return 0;
    }
    const { commands = [] } = COMMANDS.find(({ name }) => name === topic) ?? {};
    const unknown = others.find((other) => !commands.some(({ name }) => name === other));
    if (unknown !== undefined) throw new UsageError(`${topic} has no command '${unknown}'`);
    const words = topic === undefined ? [] : [topic, ...others];
    return runCommand(programNamed(), [...words, "--help"], "nft-proxier");
  },
});

/** The program as a command, with all others below it. */
export function programNamed(name = "nft-proxier"): Command {
  return {
    name,
    description: "Route traffic for Kubernetes Services with nf_tables, in place of kube-proxy.",
    usage: "[flags] | <command> [options]",
    flags: EFFECTIVE_FLAGS,
    notes: `Common flags, without a command:\n${flagLines(COMMON_FLAGS)}\n\nAll flags: ${name} help flags`,
    examples: [
      ["Serve a cluster, with kubeadm's configuration file", `${name} --config /var/lib/kube-proxy/config.conf`],
      ["Serve a directory of manifests", `${name} run --manifests /etc/nft-proxier`],
      ["Show the status of this node's daemon", `${name} status`],
    ],
    commands: [...COMMANDS, help],
  };
}

function refuse(problems: readonly string[]): void {
  if (problems.length > 0) throw new UsageError(problems.join("\nerror: "));
}

/** Runs a command line without a command: serves a cluster, or does a flag's task instead. Returns the exit code. */
async function withoutCommand({ values, problems }: FlagsGiven, name: string): Promise<number> {
  const { help: isHelp, version: shown } = values;
  if (isHelp === true || shown === "true" || shown === "raw") {
    // The meanings of other flags are not checked, because this would load the modules that create configurations.
    refuse(problems);
    if (isHelp === true) return runCommand(programNamed(name), ["--help"], name);
    await printVersion(shown === "raw");
    return 0;
  }
  const { flagProblems } = await import("../flags/flag-config.js");
  refuse(shown === undefined ? [...problems, ...flagProblems(values)] : problems);
  const { proxyCommand } = await import("./proxy.js");
  return proxyCommand({ flags: values, own: optionsOf(values, OWN_FLAGS) });
}

async function runLine(argv: readonly string[], name: string): Promise<number> {
  const given = readFlags(argv, ALL_FLAGS);
  const { values, rest } = given;
  const [word = ""] = rest;
  const isBare = argv.length === 0 && name !== KUBE_PROXY;
  if (!isBare && (word === "" || values["help"] === true)) return withoutCommand(given, name);
  const names = Object.keys(values).map((flag) => `--${flag}`);
  const program = programNamed(name);
  const problems = [...given.problems];
  if (names.length > 0 && program.commands?.some((each) => each.name === word) === true)
    problems.push(`${names.join(", ")}: not allowed before a command; see ${word} --help`);
  if (/^(?:true|false)$/.test(word))
    problems.push(`${word} is not a command; a boolean flag takes its value as --flag=${word}`);
  refuse(problems);
  return runCommand(program, rest, name);
}

/**
 * Runs one command line.
 * @param argv arguments after the program's name.
 * @param name the name that the program was called by. As kube-proxy, it starts without any argument.
 * @returns the exit code: 0 done, 1 failed, 2 invalid command line.
 */
export async function main(argv: readonly string[], name = "nft-proxier"): Promise<number> {
  try {
    return await runLine(argv, name);
  } catch (error) {
    if (error instanceof UsageError) {
      process.stderr.write(printableLines(`error: ${error.message}\n(add --help for the options)\n`));
      return EXIT_USAGE;
    }
    if (!(error instanceof UserError) && !(error instanceof KernelError)) throw error;
    writeError(error.message, name);
    return EXIT_FAILED;
  }
}
