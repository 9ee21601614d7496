/** The commands that ask the daemon, or the kernel if no daemon answers, and print. */
import { InvalidArgumentError, Option } from "commander";
import type { CliCommand } from "../cli-command.js";
import { parseDuration } from "../../config/duration.js";
import {
  type DiagnoseOptions,
  type ExplainOptions,
  type PageOptions,
  type ServicesOptions,
  SORT_BY,
  type StatusOptions,
  type TopOptions,
  type TraceOptions,
} from "../options.js";
import { SERVICE_STATES } from "../../observe/status-report.js";

function positive(text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new InvalidArgumentError("Use a number of at least 1.");
}

/** Returns milliseconds. */
function duration(text: string): number {
  const ms = parseDuration(text);
  if (ms !== undefined && ms >= 0) return ms;
  throw new InvalidArgumentError("Use a duration such as 30s or 5m, or 0.");
}

const output = (...formats: readonly string[]): Option =>
  new Option("-o, --output <format>", "output format").choices(formats).default(formats[0]);
const socket = (): Option =>
  new Option("--socket <path>", "the daemon's control socket (default: the one of this network namespace)");

const namespace = (): Option =>
  new Option("-n, --namespace <namespace>", "only services of this namespace (default: all namespaces)");
const named = (): Option =>
  new Option("-n, --namespace <namespace>", "namespace of a service that is named without one");
/** The default, which people know from kubectl. */
const allNamespaces = (): Option =>
  new Option("-A, --all-namespaces", "services of all namespaces").conflicts("namespace");

const SERVICE = "[NAMESPACE/]NAME[:PORT], ADDRESS[:PORT] of a service or pod, or a node port";
const PACKET = "[tcp|udp|sctp] [SOURCE] DESTINATION:PORT";

type Done = (code: number) => void;

/** @param done receives the exit code of the command that ran. */
export function addQuestions(root: CliCommand, done: Done): void {
  addStatus(root, done);
  addPacketCommands(root, done);
  addServiceCommands(root, done);
}

function addStatus(root: CliCommand, done: Done): void {
  root
    .command("status")
    .description("show the status of this node's daemon, problems first")
    .addOption(output("text", "json", "yaml"))
    .option("--events", "show the last repairs, refusals and takeovers instead")
    .option("-w, --watch", "keep running and print changes")
    .addOption(socket())
    .setNotes("Exit code 0: no problems. 1: problems.")
    .setExamples(
      ["Show the status and all problems", "nft-proxier status"],
      ["Show the last events as JSON", "nft-proxier status --events -o json"],
    )
    .action(async (options: StatusOptions) => {
      const { statusCommand } = await import("./status.js");
      done(await statusCommand(options));
    });

  root
    .command("page")
    .description("print the URL of the status page, if it answers")
    .addOption(socket())
    .setExamples(["Open the page on this machine", 'xdg-open "$(nft-proxier page)"'])
    .action(async (options: PageOptions) => {
      const { pageCommand } = await import("./page.js");
      done(await pageCommand(options));
    });

  root
    .command("diagnose")
    .description("write a file for a bug report, without secrets")
    .option("-o, --output <file>", "file for the gzipped tar; -: stdout (default: named by host and time)")
    .addOption(socket())
    .setNotes("The file has the status, configuration, ruleset, metrics and log of this node's daemon.")
    .setExamples(["Collect everything in one file", "nft-proxier diagnose -o report.tar.gz"])
    .action(async (options: DiagnoseOptions) => {
      const { diagnoseCommand } = await import("./diagnose/command.js");
      done(await diagnoseCommand(options));
    });
}

function addPacketCommands(root: CliCommand, done: Done): void {
  root
    .command("explain")
    .description("show what this node's rules do with a packet, step by step")
    .argument("<packet...>", `${PACKET}, or a service (default: tcp, from a client outside the cluster)`)
    .addOption(output("text", "json"))
    .addOption(named())
    .option("--in <interface>", "incoming interface (needed if detectLocalMode identifies pods by interface)")
    .addOption(socket())
    .setNotes("Sends no packets.")
    .setExamples(
      ["Explain a connection from outside to a node port", "nft-proxier explain 192.0.2.1:30080"],
      ["Explain a DNS query from a pod", "nft-proxier explain udp 10.244.1.5 kube-system/kube-dns:53"],
    )
    .action(async (words: string[], options: ExplainOptions, self: CliCommand) => {
      const { explainCommand, PacketError } = await import("./explain.js");
      try {
        done(await explainCommand(words, options));
      } catch (error) {
        if (error instanceof PacketError) self.error(`error: ${error.message}`);
        throw error;
      }
    });

  root
    .command("trace")
    .description("show live connections, one line each: their endpoint and outcome")
    .argument(
      "<packets...>",
      `${PACKET}, or [NAMESPACE/]NAME[:PORT]; SOURCE and DESTINATION can be networks, DESTINATION also \`any\``,
    )
    .addOption(named())
    .addOption(new Option("--count <lines>", "stop after this many lines").argParser(positive))
    .addOption(
      new Option("--for <duration>", "stop after this long; 0: until Ctrl-C")
        .argParser(duration)
        .default(30_000, "30s"),
    )
    .option("--refused", "show connections that the endpoint refuses (more such options: one of them)")
    .option("--unanswered", "show connections without an answer")
    .option("--dropped", "show connections that rules drop or reject, or that are lost")
    .option("--all-packets", "show all packets of a connection, not only the first")
    .option("--force", "allow all ports of an address, all addresses of a network, or any destination")
    .addOption(output("text", "json"))
    .addOption(socket())
    .setNotes(
      "Shows the endpoint, the rule that dropped the connection, or whether an answer came. Needs Linux 5.12. Its table is removed when the command ends, even if it is killed.\n\nExit code 0: lines were printed. 1: none. 2: invalid arguments.",
    )
    .setExamples(
      ["Trace connections to a Service for 30s", "nft-proxier trace default/web"],
      [
        "Trace the next dropped connection from a network",
        "nft-proxier trace 192.0.2.0/24 10.96.0.10:53 --dropped --count 1",
      ],
    )
    .action(async (words: string[], options: TraceOptions, self: CliCommand) => {
      const { traceCommand, RequestError } = await import("./trace.js");
      try {
        done(await traceCommand(words, options));
      } catch (error) {
        if (error instanceof RequestError) self.error(`error: ${error.message}`);
        throw error;
      }
    });
}

/** Splits words at commas, and checks each. */
function states(text: string): readonly string[] {
  const words = text.split(",");
  const unknown = words.find((word) => !(SERVICE_STATES as readonly string[]).includes(word));
  if (unknown !== undefined) throw new InvalidArgumentError(`Use ${SERVICE_STATES.join(", ")}.`);
  return words;
}

function addServiceCommands(root: CliCommand, done: Done): void {
  root
    .command("services")
    .description("list the services of this node, or describe some with their endpoints")
    .argument("[service...]", SERVICE)
    .addOption(namespace())
    .addOption(allNamespaces())
    .addOption(
      new Option("--state <state,...>", `only ports in these states: ${SERVICE_STATES.join(", ")}`).argParser(states),
    )
    .addOption(new Option("--sort-by <column>", "sort by this column").choices(SORT_BY))
    .addOption(output("table", "wide", "json", "yaml", "name"))
    .option("--no-headers", "omit the column titles")
    .option("-w, --watch", "keep running and print changed lines, except for changes in connections only")
    .addOption(socket())
    .setNotes("Lines fit the terminal, or the width in COLUMNS. -o wide shows all columns.")
    .setExamples(
      ["List all services", "nft-proxier services"],
      ["List services that refuse or drop connections", "nft-proxier services --state rejected,no-local-endpoint"],
      ["Describe a service with its endpoints", "nft-proxier services default/web"],
    )
    .action(async (words: readonly string[], options: ServicesOptions) => {
      const { servicesCommand } = await import("./services.js");
      done(await servicesCommand(words, options));
    });

  root
    .command("top")
    .description("show the busiest services, or a service's endpoints")
    .argument("[service...]", `${SERVICE}; its endpoints need a daemon with --service-counters=endpoint`)
    .addOption(namespace())
    .addOption(allNamespaces())
    .addOption(
      new Option("--count <screens>", "stop after this many screens (default without a terminal: 1)").argParser(
        positive,
      ),
    )
    .addOption(new Option("-d, --interval <duration>", "time between screens").argParser(duration).default(2000, "2s"))
    .addOption(socket())
    .setNotes("Press q to quit.")
    .setExamples(
      ["Show the busiest services", "nft-proxier top"],
      ["Show a service's endpoints every 10s", "nft-proxier top default/web -d 10s"],
    )
    .action(async (words: readonly string[], options: TopOptions) => {
      const { topCommand } = await import("./top.js");
      done(await topCommand(words, options));
    });

  root
    .command("version")
    .description("print the version")
    .setExamples(["Print the version", "nft-proxier version"])
    .action(async () => {
      const { printVersion } = await import("../version.js");
      await printVersion(false);
      done(0);
    });
}
