/** The command `conntrack` with its sub-commands: options in, src/cli/conntrack/commands.ts does the work. */
import { type Command, InvalidArgumentError, Option } from "commander";
import { WITH_PORTS } from "../../conntrack/table/protocol-states.js";
import type { ConntrackFilter, ConntrackTuple } from "../../conntrack/table/conntrack-table.js";
import { familyOf, parseAddress } from "../../base/ip.js";
import { LOG_LEVELS } from "../../base/logger.js";
import type {
  CommonConntrackOptions,
  CountCommandOptions,
  DeleteCommandOptions,
  GcCommandOptions,
} from "./commands.js";
import { addFilterOptions, type FilterOptions, filterOf, parseNumber, parseProtocol } from "./filter-options.js";
import { COUNTED_BY } from "./counted-by.js";
import { FORMATS } from "./format.js";

/** What the commands need is loaded when one runs. */
const commands = () => import("./commands.js");

type Done = (code: number) => void;

const FILTER_HELP = `
Every option of the filter that is given must hold. What cannot be understood is refused, and nothing done.
Where services are known (--manifests, or --config or --kubeconfig for what its API server says), entries show whose they are.
gc, --service and --by service ask the daemon of this node if none of these options is given.
-o json prints one object per line.`;

/** Adds the sub-commands to the command; `done` receives the exit code. */
export function addConntrackCommands(group: Command, done: Done): void {
  const command = (name: string, description: string): Command =>
    group.command(name).description(description).exitOverride();
  const filtered = (name: string, description: string): Command =>
    addCommonOptions(addFilterOptions(command(name, description)))
      .option("--service <namespace/name>", "only entries to this service")
      .addHelpText("after", FILTER_HELP);
  const withFilter =
    <T extends CommonConntrackOptions>(run: (filter: ConntrackFilter, options: T) => Promise<number>) =>
    async (options: T & FilterOptions, self: Command): Promise<void> => {
      done(await run(filterOf(options, self), options));
    };

  filtered("list", "print entries as they come").action(
    withFilter(async (filter, options) => (await commands()).listCommand(filter, options)),
  );
  filtered("count", "how many there are; -o wide: also how many fit")
    .addOption(new Option("--by <what>", "count by this, the most first").choices(COUNTED_BY))
    .action(
      withFilter<CountCommandOptions>(async (filter, options) => (await commands()).countCommand(filter, options)),
    );
  filtered("watch", "print connections as they come (+) and go (-)").action(
    withFilter(async (filter, options) => (await commands()).watchCommand(filter, options)),
  );
  addCommonOptions(addFilterOptions(command("gc", "delete entries that have lost their service")))
    .option("--dry-run", "say what would be deleted, and delete nothing", false)
    .option(
      "--orphans",
      "also entries whose endpoint no service has; of TCP those that are half-open, closing or over, and with -p tcp all",
      false,
    )
    .addHelpText("after", FILTER_HELP)
    .action(async (options: GcCommandOptions & FilterOptions, self: Command) => {
      done(await (await commands()).gcCommand(filterOf(options, self), options));
    });
  filtered("delete", "delete the entries that match, whosever they are, and print them; needs a filter or --all")
    .option("--dry-run", "print what would be deleted, and delete nothing", false)
    .option("--all", "every entry there is: all connections that are translated break", false)
    .action(async (options: DeleteCommandOptions & FilterOptions & { all: boolean }, self: Command) => {
      const filter = filterOf(options, self);
      const wide = Object.keys(filter).length === 0 && options.service === undefined;
      if (wide !== options.all) {
        self.error(
          wide
            ? "error: delete: which entries? Give a filter (see --help), or --all for every one"
            : "error: delete: --all is every entry; leave it out, or the filter",
        );
      }
      done(await (await commands()).deleteCommand(filter, options));
    });
  addCommonOptions(command("get", "print the one entry of a connection"))
    .argument("<protocol>", "tcp, udp, sctp, … or a number", parseProtocol)
    .argument("<source>", "who opened it: ADDRESS:PORT, [ADDRESS]:PORT for IPv6", parseEnd)
    .argument("<destination>", "where to: the VIP or node port, in the same way", parseEnd)
    .addOption(zone())
    .action(
      async (
        protocol: number,
        source: End,
        destination: End,
        options: CommonConntrackOptions & { zone: number },
        self: Command,
      ) => {
        if (source.family !== destination.family) {
          self.error("error: source and destination are addresses of two families");
        }
        const tuple = tupleOf(protocol, source, destination);
        if (!WITH_PORTS.has(protocol)) self.error("error: get: only entries of protocols with ports can be named so");
        if (source.port === 0 || destination.port === 0) self.error("error: get: both ends need their port");
        done(await (await commands()).getCommand(source.family, tuple, options.zone, options));
      },
    );
}

function addCommonOptions(command: Command): Command {
  return command
    .addOption(new Option("-o, --output <format>", "how to print entries").choices(FORMATS).default("text"))
    .option("--no-headers", "no line of titles")
    .option("--manifests <dir>", "directory of Service and EndpointSlice manifests: whose entries are they")
    .option(
      "--config <file>",
      "KubeProxyConfiguration: of this node, and of the API server where there are no manifests",
    )
    .option("--kubeconfig <file>", "kubeconfig of the API server, instead of the configuration's")
    .option("--socket <path>", "the daemon's, where it was started with --control-socket")
    .addOption(
      new Option("--log-level <level>", "least severe messages to log, on stderr").choices(LOG_LEVELS).default("warn"),
    );
}

function zone(): Option {
  return new Option("--zone <zone>", "conntrack zone").argParser((text) => parseNumber(text, 65_535)).default(0);
}

interface End {
  readonly family: "ip" | "ip6";
  readonly address: string;
  /** 0: none given. */
  readonly port: number;
}

/** "10.0.0.1:80", "10.0.0.1", "[fd00::1]:80", "fd00::1". */
function parseEnd(text: string): End {
  const [, inBrackets, bracketPort, plain, plainPort] =
    /^\[([^\]]+)\](?::(\d+))?$|^([^:]+)(?::(\d+))?$/.exec(text) ?? [];
  const address = parseAddress(inBrackets ?? plain ?? text);
  if (address === undefined) throw new InvalidArgumentError("Use ADDRESS:PORT, or [ADDRESS]:PORT for IPv6.");
  const port = bracketPort ?? plainPort;
  return { family: familyOf(address), address, port: port === undefined ? 0 : parseNumber(port, 65_535) };
}

function tupleOf(protocol: number, source: End, destination: End): ConntrackTuple {
  return {
    protocol,
    source: source.address,
    sourcePort: source.port,
    destination: destination.address,
    destinationPort: destination.port,
  };
}
