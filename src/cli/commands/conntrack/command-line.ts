/** The command line of `conntrack` and its subcommands. commands.ts does the work. */
import { InvalidArgumentError, Option } from "commander";
import type { CliCommand } from "../../cli-command.js";
import { WITH_PORTS } from "../../../nft/conntrack/protocol-states.js";
import type { ConntrackFilter, ConntrackTuple } from "../../../nft/conntrack/conntrack-table.js";
import { familyOf, parseAddress } from "../../../base/ip.js";
import { LOG_LEVELS } from "../../../base/logger.js";
import type {
  CommonConntrackOptions,
  CountCommandOptions,
  DeleteCommandOptions,
  GcCommandOptions,
} from "./commands.js";
import { addFilterOptions, type FilterOptions, filterOf, parseNumber, parseProtocol } from "./filter-options.js";
import { COUNTED_BY } from "./counted-by.js";
import { FORMATS } from "./entry-columns.js";

/** The commands' modules are loaded when one runs. */
const commands = () => import("./commands.js");

type Done = (code: number) => void;

const FILTER_NOTES = `An entry must match all options of the filter. If a value is invalid, the command reports it and does nothing.

With --manifests, --config or --kubeconfig, entries show the service that they belong to. Without these options, gc, --service and --by service ask this node's daemon.

-o json prints one object per line.`;

/** Adds the subcommands to the command. `done` receives the exit code. */
export function addConntrackCommands(group: CliCommand, done: Done): void {
  const command = (name: string, description: string): CliCommand => group.command(name).description(description);
  const filtered = (name: string, description: string): CliCommand =>
    addCommonOptions(addFilterOptions(command(name, description)))
      .option("--service <service>", "select only entries of [NAMESPACE/]NAME[:PORT]")
      .setNotes(FILTER_NOTES);
  const withFilter =
    <T extends CommonConntrackOptions>(run: (filter: ConntrackFilter, options: T) => Promise<number>) =>
    async (options: T & FilterOptions, self: CliCommand): Promise<void> => {
      done(await run(filterOf(options, self), options));
    };

  filtered("list", "print entries")
    .setExamples(
      ["List the entries of a service", "nft-proxier conntrack list --service default/web"],
      ["List UDP entries without a reply", "nft-proxier conntrack list -p udp --status '!seen-reply'"],
    )
    .action(withFilter(async (filter, options) => (await commands()).listCommand(filter, options)));
  filtered("count", "count entries; -o wide also prints the limit")
    .addOption(new Option("--by <property>", "property to count by, highest count first").choices(COUNTED_BY))
    .setExamples(
      ["Count all entries", "nft-proxier conntrack count"],
      ["Count entries per service", "nft-proxier conntrack count --by service"],
    )
    .action(
      withFilter<CountCommandOptions>(async (filter, options) => (await commands()).countCommand(filter, options)),
    );
  filtered("watch", "print connections as they begin (+) and end (-)")
    .setExamples(["Watch connections to one address", "nft-proxier conntrack watch -d 10.96.0.10"])
    .action(withFilter(async (filter, options) => (await commands()).watchCommand(filter, options)));
  addGc(addCommonOptions(addFilterOptions(command("gc", "delete entries whose service no longer exists"))), done);
  addDelete(filtered("delete", "delete and print matching entries"), done);
  addGet(addCommonOptions(command("get", "print the entry of one connection")), done);
}

function addGc(command: CliCommand, done: Done): void {
  command
    .option("--dry-run", "print the entries, but do not delete them", false)
    .option(
      "--orphans",
      "also delete entries to endpoints that no service has; for TCP, only half-open, closing and closed ones, but all with -p tcp",
      false,
    )
    .setNotes(FILTER_NOTES)
    .setExamples(["Print what would be deleted", "nft-proxier conntrack gc --dry-run"])
    .action(async (options: GcCommandOptions & FilterOptions, self: CliCommand) => {
      done(await (await commands()).gcCommand(filterOf(options, self), options));
    });
}

function addDelete(command: CliCommand, done: Done): void {
  command
    .option("--dry-run", "print the entries, but do not delete them", false)
    .setNotes(`Needs a filter or --all. ${FILTER_NOTES}`)
    .option("--all", "delete every entry; breaks all translated connections", false)
    .setExamples(
      ["Print what would be deleted", "nft-proxier conntrack delete -p udp --dport 53 --dry-run"],
      ["Delete the entries of an endpoint", "nft-proxier conntrack delete --reply-src 10.244.1.5"],
    )
    .action(async (options: DeleteCommandOptions & FilterOptions & { all: boolean }, self: CliCommand) => {
      const filter = filterOf(options, self);
      const wide = Object.keys(filter).length === 0 && options.service === undefined;
      if (wide !== options.all) {
        self.error(
          wide
            ? "error: delete needs a filter (see --help), or --all for all entries"
            : "error: delete takes a filter or --all, not both",
        );
      }
      done(await (await commands()).deleteCommand(filter, options));
    });
}

function addGet(command: CliCommand, done: Done): void {
  command
    .argument("<protocol>", "tcp, udp, sctp, … or a number", parseProtocol)
    .argument("<source>", "the client: ADDRESS:PORT, or [ADDRESS]:PORT for IPv6", parseEnd)
    .argument("<destination>", "the VIP or node port, in the same form", parseEnd)
    .addOption(zone())
    .setExamples(["Show the entry of a DNS query", "nft-proxier conntrack get udp 10.244.1.5:40000 10.96.0.10:53"])
    .action(
      async (
        protocol: number,
        source: End,
        destination: End,
        options: CommonConntrackOptions & { zone: number },
        self: CliCommand,
      ) => {
        if (source.family !== destination.family) {
          self.error("error: source and destination must be of the same address family");
        }
        const tuple = tupleOf(protocol, source, destination);
        if (!WITH_PORTS.has(protocol)) self.error("error: get works only for protocols with ports");
        if (source.port === 0 || destination.port === 0)
          self.error("error: get needs the port of both source and destination");
        done(await (await commands()).getCommand(source.family, tuple, options.zone, options));
      },
    );
}

function addCommonOptions(command: CliCommand): CliCommand {
  return command
    .addOption(new Option("-o, --output <format>", "output format").choices(FORMATS).default("text"))
    .option("--no-headers", "omit the column titles")
    .option("--manifests <dir>", "directory of Service and EndpointSlice manifests, to show services")
    .option(
      "--config <file>",
      "KubeProxyConfiguration of this node; also names the API server, unless --manifests is given",
    )
    .option("--kubeconfig <file>", "kubeconfig of the API server, instead of the configuration's")
    .option("--socket <path>", "the daemon's control socket (default: the one of this network namespace)")
    .addOption(
      new Option("--log-level <level>", "minimum level of the messages on stderr").choices(LOG_LEVELS).default("warn"),
    );
}

function zone(): Option {
  return new Option("--zone <zone>", "conntrack zone").argParser((text) => parseNumber(text, 65_535)).default(0);
}

interface End {
  readonly family: "ip" | "ip6";
  readonly address: string;
  /** 0 if none is given. */
  readonly port: number;
}

/** Parses "10.0.0.1:80", "10.0.0.1", "[fd00::1]:80" or "fd00::1". */
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
