import { Argument, Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { completionScript, type Shell, SHELLS } from "./completion.js";
import { parseInterfaces } from "../flowtable/interfaces.js";
import { closest } from "../base/closest.js";
import { parseDuration } from "../config/duration.js";
import type { GcInterval } from "../conntrack/service.js";
import { LOG_LEVELS, type LogLevel } from "../base/logger.js";
import { type CommandOutline, outlineOf } from "./outline.js";
import { printableLines } from "../base/printable.js";
import { UserError, writeError, writeOut } from "./stdio.js";
import { flagSpec, fromGo, fromGoBehind, readFlags } from "./go-flags.js";
import { flagOption } from "./flag-option.js";
import { type FlagSpec, KUBE_PROXY_FLAGS } from "./kube-proxy-flags.js";
import { ownOptions, ownProblems } from "./own-flags.js";
import { addPreflight, PREFLIGHT } from "./preflight-command-line.js";
import { addQuestions } from "./questions-command-line.js";
import {
  CONTROL_SOCKET_FLAG,
  CONTROL_SOCKET_USAGE,
  COUNTERS_FLAG,
  FLOWTABLE_FLAG,
  FLOWTABLE_RANGE,
  FLOWTABLE_USAGE,
  COUNTERS_USAGE,
  GC_INTERVAL_FLAG,
  GC_INTERVAL_RANGE,
  gcInterval,
  type HandoverOptions,
  type ManifestOptions,
  OWN_FLAGS,
  VALIDATE_FORMATS,
  type ValidateOptions,
} from "./options.js";
import { SERVICE_COUNTERS, type ServiceCounters } from "../ruleset/service-counters.js";
import { printVersion } from "./version.js";

/** Exit codes: 0 done, 1 failed, 2 wrong command line. */
const EXIT_FAILED = 1;
const EXIT_USAGE = 2;

/** The name under which the command line is kube-proxy's alone: it starts without any argument. */
const KUBE_PROXY = "kube-proxy";

function family(value: string): "ip" | "ip6" {
  if (value === "ip" || value === "ip6") return value;
  throw new InvalidArgumentError("Use ip or ip6.");
}

const logLevel = (): Option =>
  new Option("--log-level <level>", "least severe messages to log, on stderr").choices(LOG_LEVELS).default("info");
const manifests = (): Option =>
  new Option("--manifests <dir>", "directory of Service, EndpointSlice, Node and ServiceCIDR manifests (needed)");
const allowIncomplete = (): Option =>
  new Option("--allow-incomplete", "go on although something of the manifests cannot be read or served; exit with 0");
const config = (): Option =>
  new Option("--config <file>", "KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), YAML or JSON");

/** Not commander's own mandatory option: that one is missed before a mistyped flag, which is the likelier reason, is seen. */
function withManifests<T extends { readonly manifests?: string }>(
  options: T,
  self: Command,
): T & { manifests: string } {
  const { manifests } = options;
  if (manifests === undefined) return self.error("error: required option '--manifests <dir>' not specified");
  return { ...options, manifests };
}

type Done = (code: number) => void;

/**
 * The command line, as data. What a command needs is loaded when it runs: the help needs none of it, and one load of everything
 * would hold the event loop, and with it signals, for half a second. `done` receives the exit code of the command that ran. */
async function program(name: string, argv: readonly string[], done: Done): Promise<Command> {
  const root = new Command(name)
    .description("Kubernetes Services on nf_tables: rewrites packets to Service addresses to their endpoints.")
    .usage("[flags] | <command> [options]")
    .configureOutput({ writeErr: (text) => process.stderr.write(printableLines(text)) })
    .showSuggestionAfterError(true)
    .showHelpAfterError("(add --help for the options)")
    .enablePositionalOptions()
    .exitOverride();
  addProxy(root, done);
  addCommands(root, done);
  const conntrack = root
    .command("conntrack")
    .description("the kernel's connection tracking table: see it, count it, clean it, watch it")
    .exitOverride();
  if (argv.includes("conntrack")) (await import("./conntrack/command-line.js")).addConntrackCommands(conntrack, done);
  return root;
}

/** All of it, for what is generated of it. */
export async function commandOutline(): Promise<readonly CommandOutline[]> {
  return outlineOf(await program("nft-proxier", ["conntrack"], () => undefined));
}

/** No sub-command: kube-proxy's flags and ours. */
function addProxy(root: Command, done: Done): void {
  const given: [name: string, value: string][] = [];
  const own = new Map<string, string>();
  for (const spec of KUBE_PROXY_FLAGS) {
    root.addOption(flagOption(spec, (value) => given.push([spec.name, value])));
  }
  for (const spec of OWN_FLAGS) root.addOption(flagOption(spec, (value) => own.set(spec.name, value)));
  root.hook("preSubcommand", (_root, command) => {
    const names = [...given.map(([name]) => name), ...own.keys()].map((name) => `--${name}`);
    if (names.length > 0)
      root.error(`error: ${names.join(", ")}: not ahead of a command; ${command.name()} has its own options`);
  });
  root.argument("[words...]").action(async (words: string[]) => {
    const [word] = words;
    if (word !== undefined) unknownCommand(root, word);
    const { values, problems: others } = readFlags(given);
    const problems = [...others, ...ownProblems(own)];
    const refuse = (wrong: readonly string[]): void => {
      if (wrong.length > 0) root.error(`error: ${wrong.join("\nerror: ")}`);
    };
    if (values.version === "true" || values.version === "raw") {
      // Whatever the values of other flags mean: no configuration is made of them, and nothing that makes one loaded.
      refuse(problems);
      return printVersion(values.version === "raw");
    }
    const { flagProblems } = await import("./flag-config.js");
    refuse(values.version === undefined ? [...problems, ...flagProblems(values)] : problems);
    const { proxyCommand } = await import("./proxy.js");
    done(await proxyCommand({ flags: values, own: ownOptions(own) }));
  });
}

/** Milliseconds. */
function handoverTime(text: string): number {
  const ms = parseDuration(text);
  if (ms !== undefined && ms >= 1000 && ms <= 86_400_000) return ms;
  throw new InvalidArgumentError("It is a duration from 1s to 24h.");
}

function readGcInterval(text: string): GcInterval {
  const interval = gcInterval(text);
  if (interval === undefined) throw new InvalidArgumentError(`It ${GC_INTERVAL_RANGE}.`);
  return interval;
}

function readFlowtable(text: string): readonly string[] {
  const interfaces = parseInterfaces(text);
  if (interfaces === undefined) throw new InvalidArgumentError(`They ${FLOWTABLE_RANGE}.`);
  return interfaces;
}

function unknownCommand(root: Command, word: string): never {
  const guess = closest(
    word,
    root.commands.map((command) => command.name()),
  );
  return root.error(`error: unknown command '${word}'${guess === undefined ? "" : `\n(Did you mean ${guess}?)`}`);
}

/** Not commander's own message: that one takes the value for a part of the name, and is about one flag only. */
function unknownFlags(root: Command, names: readonly string[]): never {
  const lines = names.map((name) => {
    const guess = closest(
      name,
      root.options.map(({ long }) => long ?? ""),
    );
    return `error: unknown option '${name}'${guess === undefined ? "" : `\n(Did you mean ${guess}?)`}`;
  });
  return root.error(lines.join("\n"));
}

function addCommands(root: Command, done: Done): void {
  const command = (name: string, description: string): Command =>
    root.command(name).description(description).exitOverride();

  command("run", "bring the kernel's tables up to the manifests, and keep them so")
    .addOption(manifests())
    .addOption(config())
    .option(
      "--once",
      "write both families once and exit: 0 when all of the manifests is in force; what the kernel refuses is tried for half a minute",
    )
    .addOption(allowIncomplete())
    .option("--own-table", "no other process may change the tables while this runs (Linux 6.9)")
    .addOption(
      new Option(
        `--${GC_INTERVAL_FLAG} <duration>`,
        "between two garbage collections of the connection tracking table; 0: none. By default it adapts, 10s to 30m",
      ).argParser(readGcInterval),
    )
    .option(`--${CONTROL_SOCKET_FLAG} <path>`, CONTROL_SOCKET_USAGE)
    .addOption(new Option(`--${COUNTERS_FLAG} <what>`, COUNTERS_USAGE).choices(SERVICE_COUNTERS).default("service"))
    .addOption(
      new Option(`--${FLOWTABLE_FLAG} <interfaces>`, FLOWTABLE_USAGE).argParser(readFlowtable).conflicts("once"),
    )
    .addOption(logLevel())
    .action(
      async (
        options: Partial<ManifestOptions> & {
          once?: boolean;
          ownTable?: boolean;
          conntrackGcInterval?: GcInterval;
          controlSocket?: string;
          serviceCounters: ServiceCounters;
          flowtable?: readonly string[];
          logLevel: LogLevel;
        },
        self: Command,
      ) => {
        const given = withManifests(options, self);
        const { runCommand } = await import("./serve.js");
        done(await runCommand(given));
      },
    );

  addPreflight(command, done);
  addQuestions(command, done);
  addCompletion(command, done);

  command("render", "print the ruleset as `nft -f` loads it; touches no kernel and needs no rights")
    .addOption(manifests())
    .addOption(config())
    .addOption(new Option("--family <family>", "print only this family: ip or ip6").argParser(family))
    .addOption(allowIncomplete())
    .addOption(logLevel())
    .action(
      async (options: Partial<ManifestOptions> & { family?: "ip" | "ip6"; logLevel: LogLevel }, self: Command) => {
        const given = withManifests(options, self);
        const { renderCommand } = await import("./render.js");
        done(await renderCommand(given));
      },
    );

  command("validate", "print all that is wrong with the manifests; touches no kernel and needs no rights")
    .addOption(manifests())
    .addOption(config())
    .addOption(new Option("-o, --output <format>", "text or json").choices(VALIDATE_FORMATS).default("text"))
    .addHelpText("after", "\nExit code 0: nothing is wrong, or there are only notes; 1: errors or warnings.")
    .action(async (options: Omit<ValidateOptions, "manifests"> & { manifests?: string }, self: Command) => {
      const given = withManifests(options, self);
      const { validateCommand } = await import("./validate.js");
      done(await validateCommand(given));
    });

  command(
    "cleanup",
    "remove the tables ip kube-proxy and ip6 kube-proxy, copies of a handover, the flowtable, and what kube-proxy's other modes left in iptables-nft, in the older iptables and in IPVS",
  )
    .addOption(logLevel())
    .action(async (options: { logLevel: LogLevel }) => {
      const { cleanupCommand } = await import("./cleanup.js");
      done(await cleanupCommand(options));
    });

  command("handover", "leave a copy of what is in force, for new connections until the next program's rules are there")
    .addOption(
      new Option("--for <duration>", "time that it serves, 1s to 24h; it follows no change of services")
        .argParser(handoverTime)
        .default(300_000, "5m"),
    )
    .addOption(
      new Option("--remove", "remove the copy instead; the next start and cleanup do so, too").conflicts("for"),
    )
    .addOption(logLevel())
    .action(async (options: HandoverOptions) => {
      const { handoverCommand } = await import("./handover.js");
      done(await handoverCommand(options));
    });
}

function addCompletion(command: (name: string, description: string) => Command, done: Done): void {
  command("completion", "print a script with which a shell completes this command line")
    .addArgument(new Argument("<shell>", "whose: bash, zsh or fish").choices(SHELLS))
    .addHelpText("after", "\nbash: source <(nft-proxier completion bash); fish: nft-proxier completion fish | source")
    .action(async (shell: Shell) => {
      await writeOut(completionScript(shell, await commandOutline()));
      done(0);
    });
}

const OWN_TYPES = new Map<string, FlagSpec["type"]>(OWN_FLAGS.map((spec) => [spec.name, spec.type]));

/**
 * Runs one command line.
 * @param argv arguments behind the program's name.
 * @param name the name that the program was called by; as kube-proxy it starts without any argument.
 * @returns the exit code.
 */
export async function main(argv: readonly string[], name = "nft-proxier"): Promise<number> {
  let code = 0;
  const root = await program(name, argv, (result) => (code = result));
  if (argv.length === 0 && name !== KUBE_PROXY) {
    root.outputHelp({ error: true });
    return EXIT_USAGE;
  }
  try {
    const { words, unknown } = fromGo(argv, (flagName) => flagSpec(flagName)?.type ?? OWN_TYPES.get(flagName));
    if (unknown.length > 0) unknownFlags(root, unknown);
    const [first, ...behind] = words;
    const spelled = first === PREFLIGHT ? [first, ...fromGoBehind(behind)] : words;
    await root.parseAsync(spelled, { from: "user" });
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
