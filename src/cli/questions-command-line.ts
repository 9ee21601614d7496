/** The commands that ask the daemon, or the kernel where none answers, and print. */
import { type Command, InvalidArgumentError, Option } from "commander";
import { parseDuration } from "../config/duration.js";
import {
  type DiagnoseOptions,
  type ExplainOptions,
  SERVICE_FORMATS,
  type ServicesOptions,
  STATUS_FORMATS,
  type StatusOptions,
  type TopOptions,
  type TraceOptions,
} from "./options.js";

function positive(text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new InvalidArgumentError("It is a number from 1 on.");
}

/** Milliseconds. */
function duration(text: string): number {
  const ms = parseDuration(text);
  if (ms !== undefined && ms >= 0) return ms;
  throw new InvalidArgumentError("It is a duration: 30s, 5m, 0.");
}

/** @param done receives the exit code of the command that ran. */
export function addQuestions(
  command: (name: string, description: string) => Command,
  done: (code: number) => void,
): void {
  const socket = (): Option =>
    new Option("--socket <path>", "the daemon's, where it was started with --control-socket");

  command("status", "how the daemon of this node stands, problems first; exit code 1 where there are any")
    .addOption(new Option("-o, --output <format>", "text or json").choices(STATUS_FORMATS).default("text"))
    .option("--events", "the last repairs, refusals and takeovers instead")
    .addOption(socket())
    .action(async (options: StatusOptions) => {
      const { statusCommand } = await import("./status.js");
      done(await statusCommand(options));
    });

  command("explain", "what this node's rules do with a packet, step by step; none is sent")
    .argument(
      "<words...>",
      "[tcp|udp|sctp] [SOURCE] DESTINATION:PORT; tcp, and a client outside, where they are not given",
    )
    .addOption(new Option("-o, --output <format>", "text or json").choices(STATUS_FORMATS).default("text"))
    .option("--in <interface>", "that it comes in by, where pods are told by their interface (detectLocalMode)")
    .addOption(socket())
    .action(async (words: string[], options: ExplainOptions, self: Command) => {
      const { explainCommand, PacketError } = await import("./explain.js");
      try {
        done(await explainCommand(words, options));
      } catch (error) {
        if (error instanceof PacketError) self.error(`error: ${error.message}`);
        throw error;
      }
    });

  command("trace", "live packets: where they come in, the endpoint drawn, what becomes of them, and who dropped them")
    .argument(
      "<words...>",
      "[tcp|udp|sctp] [SOURCE] DESTINATION:PORT, or NAMESPACE/NAME[:PORT]; SOURCE and DESTINATION may be networks, DESTINATION `any`",
    )
    .addOption(new Option("--count <packets>", "end behind so many").argParser(positive))
    .addOption(
      new Option("--for <duration>", "end behind so long; 0: with Ctrl-C").argParser(duration).default(30_000, "30s"),
    )
    .option("--dropped", "print only packets that are rejected, dropped, or never seen again")
    .option("--all-packets", "those of open connections, too; by default the first of each, which alone are translated")
    .option("--force", "also for all ports of an address, all addresses of a network, or any destination")
    .addOption(
      new Option("-o, --output <format>", "text or json, a line a packet").choices(STATUS_FORMATS).default("text"),
    )
    .addOption(socket())
    .addHelpText(
      "after",
      "\nExit code 0: packets were printed; 1: none; 2: wrong words. Needs Linux 5.12; its table goes with the command, however it ends.",
    )
    .action(async (words: string[], options: TraceOptions, self: Command) => {
      const { traceCommand, RequestError } = await import("./trace.js");
      try {
        done(await traceCommand(words, options));
      } catch (error) {
        if (error instanceof RequestError) self.error(`error: ${error.message}`);
        throw error;
      }
    });

  command("diagnose", "one file for a bug report: status, configuration, ruleset, metrics, log; secrets are removed")
    .option("-o, --output <file>", "where to write the gzipped tar; -: stdout. By default a name with host and time")
    .addOption(socket())
    .action(async (options: DiagnoseOptions) => {
      const { diagnoseCommand } = await import("./diagnose/command.js");
      done(await diagnoseCommand(options));
    });

  command("services", "services in force on this node, with their endpoints where one is named")
    .argument("[service]", "NAMESPACE/NAME")
    .addOption(
      new Option("-o, --output <format>", SERVICE_FORMATS.join(", ")).choices(SERVICE_FORMATS).default("table"),
    )
    .option("--no-headers", "no line of titles")
    .option("-w, --watch", "go on, and print the lines that change, but for their connections alone")
    .addOption(socket())
    .action(async (name: string | undefined, options: ServicesOptions) => {
      const { servicesCommand } = await import("./services.js");
      done(await servicesCommand(name, options));
    });

  command("top", "services by the connections they get, or one service's endpoints; q ends it")
    .argument("[service]", "NAMESPACE/NAME: its endpoints, where the daemon counts them (--service-counters=endpoint)")
    .addOption(
      new Option(
        "-n, --count <screens>",
        "end behind so many; without a terminal they are printed one after the other, by default one",
      ).argParser(positive),
    )
    .addOption(new Option("-d, --interval <duration>", "between two of them").argParser(duration).default(2000, "2s"))
    .addOption(socket())
    .action(async (name: string | undefined, options: TopOptions) => {
      const { topCommand } = await import("./top.js");
      done(await topCommand(name, options));
    });
}
