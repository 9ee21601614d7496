import { Argument, CommanderError, InvalidArgumentError, Option } from "commander";
import { CliCommand, flagLines } from "../cli-command.js";
import { completionScript, type Shell, SHELLS } from "./completion.js";
import { parseDuration } from "../../config/duration.js";
import { LOG_LEVELS, type LogLevel } from "../../base/logger.js";
import { type CommandOutline, outlineOf } from "../outline.js";
import { printableLines } from "../../base/printable.js";
import { UserError, writeError, writeOut } from "../stdio.js";
import { ALL_FLAGS, allFlagsHelp, COMMON_FLAGS, EFFECTIVE_FLAGS } from "../flags/flags-help.js";
import { optionsOf, OWN_FLAGS, ownOption, type OwnOptions } from "../flags/own-flags.js";
import { addPreflight } from "./preflight-command-line.js";
import { addQuestions } from "./questions-command-line.js";
import type { HandoverOptions, ManifestOptions, ValidateOptions } from "../options.js";
import { type FlagsGiven, readFlags } from "../read-flags.js";
import { printVersion } from "../version.js";

/** Exit codes: 0 done, 1 failed, 2 invalid command line. */
const EXIT_FAILED = 1;
const EXIT_USAGE = 2;

/** Called by this name, the program starts without any argument, like kube-proxy. */
const KUBE_PROXY = "kube-proxy";

const logLevel = (): Option =>
  new Option("--log-level <level>", "minimum level of the messages on stderr").choices(LOG_LEVELS).default("info");
const manifests = (): Option =>
  new Option("--manifests <dir>", "directory of Service, EndpointSlice, Node and ServiceCIDR manifests (required)");
const config = (): Option =>
  new Option("--config <file>", "KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), YAML or JSON");

/** Replaces commander's mandatory options, which report a missing option before a mistyped flag, its likelier cause. */
function withManifests<T extends { readonly manifests?: string }>(
  options: T,
  self: CliCommand,
): T & { manifests: string } {
  const { manifests } = options;
  if (manifests === undefined) return self.error("error: required option '--manifests <dir>' not specified");
  return { ...options, manifests };
}

type Done = (code: number) => void;

/**
 * Declares the commands. Each loads its modules when it runs, because the help needs none of them. Loading all of them would block the event loop,
 * and so the signals, for half a second.
 * @param words the command and its words.
 * @param done receives the exit code of the command that ran.
 */
export async function program(name: string, words: readonly string[], done: Done): Promise<CliCommand> {
  const root = new CliCommand(name)
    .description("Route traffic for Kubernetes Services with nf_tables, in place of kube-proxy.")
    .usage("[flags] | <command> [options]")
    .configureOutput({ writeErr: (text) => process.stderr.write(printableLines(text)) })
    .showSuggestionAfterError(true)
    .showHelpAfterError("(add --help for the options)")
    .helpOption("-h, --help", "show this help")
    .helpCommand(false)
    .exitOverride()
    .setNotes(`Common flags, without a command:\n${flagLines(COMMON_FLAGS)}\n\nAll flags: ${name} help flags`)
    .setExamples(
      ["Serve a cluster, with kubeadm's configuration file", `${name} --config /var/lib/kube-proxy/config.conf`],
      ["Serve a directory of manifests", `${name} run --manifests /etc/nft-proxier`],
      ["Show the status of this node's daemon", `${name} status`],
    );
  addManifestCommands(root, done);
  addPreflight(root, done);
  addQuestions(root, done);
  addCleanup(root, done);
  const conntrack = root
    .command("conntrack")
    .description("list, count, watch and delete connection tracking entries")
    .helpCommand("help [command]", "show the help of a command")
    .setExamples(["List the entries of a Service", "nft-proxier conntrack list --service default/web"]);
  if (words.includes("conntrack")) {
    (await import("./conntrack/command-line.js")).addConntrackCommands(conntrack, done);
  }
  addCompletion(root, done);
  addHelp(root, done);
  // The flags list has it, because the root's own options are read before these commands.
  root.helpOption(false);
  return root;
}

/** Returns all commands, for the manual page and completion. */
export async function commandOutline(): Promise<readonly CommandOutline[]> {
  return outlineOf(await program("nft-proxier", ["conntrack"], () => undefined), EFFECTIVE_FLAGS);
}

function addManifestCommands(root: CliCommand, done: Done): void {
  root
    .command("run")
    .description("serve the Services in a directory of manifests")
    .addOption(manifests())
    .addOption(config())
    .option("--once", "write both families once, with retries for 30s, and exit with 0 if everything is active")
    .addOption(ownOption("allow-incomplete"))
    .addOption(ownOption("own-table"))
    .addOption(ownOption("conntrack-gc-interval"))
    .addOption(ownOption("control-socket"))
    .addOption(ownOption("service-counters"))
    .addOption(ownOption("flowtable").conflicts("once"))
    .addOption(logLevel())
    .setExamples(
      ["Serve a directory, and follow its changes", "nft-proxier run --manifests /etc/nft-proxier"],
      ["Write the tables once", "nft-proxier run --manifests /etc/nft-proxier --once"],
    )
    .action(
      async (
        options: OwnOptions & Omit<ManifestOptions, "manifests"> & { readonly once?: boolean },
        self: CliCommand,
      ) => {
        const given = withManifests(options, self);
        const { runCommand } = await import("./serve.js");
        done(await runCommand(given));
      },
    );

  root
    .command("render")
    .description("print the ruleset in nft syntax; needs no privileges")
    .addOption(manifests())
    .addOption(config())
    .addOption(new Option("--family <family>", "print only this family: ip or ip6").argParser(family))
    .addOption(ownOption("allow-incomplete"))
    .addOption(logLevel())
    .setExamples(
      ["Print the rules for a directory", "nft-proxier render --manifests ./manifests"],
      ["Let nft check the IPv4 rules", "nft-proxier render --manifests . --family ip | nft -c -f -"],
    )
    .action(async (options: Partial<ManifestOptions> & { family?: "ip" | "ip6"; logLevel: LogLevel }, self) => {
      const given = withManifests(options, self);
      const { renderCommand } = await import("./render.js");
      done(await renderCommand(given));
    });

  root
    .command("validate")
    .description("report problems in manifests; needs no privileges")
    .addOption(manifests())
    .addOption(config())
    .addOption(new Option("-o, --output <format>", "output format").choices(["text", "json"]).default("text"))
    .setNotes("Exit code 0: no problems, or only notes. 1: errors or warnings.")
    .setExamples(
      ["Check a directory", "nft-proxier validate --manifests ./manifests"],
      ["Check a directory in a CI pipeline", "nft-proxier validate --manifests ./manifests -o json"],
    )
    .action(async (options: Omit<ValidateOptions, "manifests"> & { manifests?: string }, self) => {
      const given = withManifests(options, self);
      const { validateCommand } = await import("./validate.js");
      done(await validateCommand(given));
    });
}

function family(value: string): "ip" | "ip6" {
  if (value === "ip" || value === "ip6") return value;
  throw new InvalidArgumentError("Use ip or ip6.");
}

function addCleanup(root: CliCommand, done: Done): void {
  root
    .command("handover")
    .description("leave a copy of the rules that serves until the next proxy is ready")
    .setNotes("The copy serves new connections that no other rules serve. It does not follow changes of services.")
    .addOption(
      new Option("--for <duration>", "serve for this long, from 1s to 24h")
        .argParser(handoverTime)
        .default(300_000, "5m"),
    )
    .addOption(
      new Option("--remove", "remove the copy now; the next start and cleanup also remove it").conflicts("for"),
    )
    .addOption(logLevel())
    .setExamples(
      ["Serve for ten minutes while another program starts", "nft-proxier handover --for 10m"],
      ["Remove the copy", "nft-proxier handover --remove"],
    )
    .action(async (options: HandoverOptions) => {
      const { handoverCommand } = await import("./handover.js");
      done(await handoverCommand(options));
    });

  root
    .command("cleanup")
    .description("remove all rules of nft-proxier and kube-proxy from the kernel")
    .addOption(logLevel())
    .setNotes(
      "Removes the tables ip kube-proxy and ip6 kube-proxy, copies of a handover, the flowtable, and the remains of kube-proxy's other modes in iptables-nft, iptables-legacy and IPVS.",
    )
    .setExamples(["Remove all rules before another proxy starts", "nft-proxier cleanup"])
    .action(async (options: { logLevel: LogLevel }) => {
      const { cleanupCommand } = await import("./cleanup.js");
      done(await cleanupCommand(options));
    });
}

/** Returns milliseconds. */
function handoverTime(text: string): number {
  const ms = parseDuration(text);
  if (ms !== undefined && ms >= 1000 && ms <= 86_400_000) return ms;
  throw new InvalidArgumentError("Use a duration from 1s to 24h.");
}

function addCompletion(root: CliCommand, done: Done): void {
  root
    .command("completion")
    .description("print a completion script for a shell")
    .addArgument(new Argument("<shell>", "the shell").choices(SHELLS))
    .setExamples(
      ["Enable completion in the current bash", "source <(nft-proxier completion bash)"],
      ["Enable completion in the current fish", "nft-proxier completion fish | source"],
    )
    .action(async (shell: Shell) => {
      await writeOut(completionScript(shell, await commandOutline()));
      done(0);
    });
}

function addHelp(root: CliCommand, done: Done): void {
  const names = [...root.commands.map((command) => command.name()), "help", "flags"];
  root
    .command("help")
    .description("show the help of a command, or all flags")
    .addArgument(new Argument("[topic]", "a command's name, or flags").choices(names))
    .argument("[subcommand]", "a subcommand's name")
    .setExamples(
      ["List all flags", "nft-proxier help flags"],
      ["Show the help of a command", "nft-proxier help conntrack list"],
    )
    .action(async (topic?: string, subcommand = "") => {
      const command = root.commands.find((each) => each.name() === topic);
      if (subcommand !== "" && !command?.commands.some((each) => each.name() === subcommand)) {
        root.error(`error: ${topic} has no command '${subcommand}'`);
      }
      if (topic === undefined) root.outputHelp();
      else if (topic === "flags") await writeOut(allFlagsHelp());
      else await root.parseAsync([topic, ...(subcommand === "" ? [] : [subcommand]), "--help"], { from: "user" });
      done(0);
    });
}

/** Ends with exit code 2 if a command line has problems. */
function refuse(root: CliCommand, problems: readonly string[]): void {
  if (problems.length > 0) root.error(`error: ${problems.join("\nerror: ")}`);
}

/** Runs a command line without a command: serves a cluster, or does a flag's task instead. Returns the exit code. */
async function withoutCommand({ values, problems }: FlagsGiven, root: CliCommand): Promise<number> {
  const { help, version } = values;
  if (help === true || version === "true" || version === "raw") {
    // The meanings of other flags are not checked, because this would load the modules that create configurations.
    refuse(root, problems);
    if (help === true) root.outputHelp();
    else await printVersion(version === "raw");
    return 0;
  }
  const { flagProblems } = await import("../flags/flag-config.js");
  refuse(root, version === undefined ? [...problems, ...flagProblems(values)] : problems);
  const { proxyCommand } = await import("./proxy.js");
  return proxyCommand({ flags: values, own: optionsOf(values, OWN_FLAGS) });
}

/**
 * Runs one command line.
 * @param argv arguments after the program's name.
 * @param name the name that the program was called by. As kube-proxy, it starts without any argument.
 * @returns the exit code.
 */
export async function main(argv: readonly string[], name = "nft-proxier"): Promise<number> {
  let code = 0;
  const given = readFlags(argv, ALL_FLAGS);
  const { values, rest } = given;
  const problems = [...given.problems];
  const root = await program(name, rest, (result) => (code = result));
  if (argv.length === 0 && name !== KUBE_PROXY) {
    root.outputHelp({ error: true });
    return EXIT_USAGE;
  }
  try {
    if (rest.length === 0 || values["help"] === true) return await withoutCommand(given, root);
    const names = Object.keys(values).map((flag) => `--${flag}`);
    const [word] = rest;
    const isCommand = root.commands.some((command) => command.name() === word);
    if (isCommand && names.length > 0) {
      problems.push(`${names.join(", ")}: not allowed before a command; see ${word} --help`);
    }
    if (/^(?:true|false)$/.test(word))
      problems.push(`${word} is not a command; a boolean flag takes its value as --flag=${word}`);
    refuse(root, problems);
    await root.parseAsync(rest, { from: "user" });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT_USAGE;
    if (error instanceof UserError) {
      writeError(error.message, name);
      return EXIT_FAILED;
    }
    throw error;
  }
}
