/** The command line of `conntrack` and its subcommands. commands.ts does the work. */
import { familyOf, type IpFamily, parseAddress } from "../../../base/ip.js";
import { UsageError } from "../../../base/user-error.js";
import type { ConntrackTuple } from "../../../nft/conntrack/conntrack-table.js";
import { WITH_PORTS } from "../../../nft/conntrack/protocol-states.js";
import { hostAndPort } from "../../../tools/explain/packet-words.js";
import { command, type Command, runCommand } from "../../command.js";
import { logLevel, NO_HEADERS, output, SOCKET } from "../../options.js";
import { BadValue, flag, type OptionsOf } from "../../read-flags.js";
import { FILTER_FLAGS, readPort, readProtocol } from "./filter-options.js";

const commands = () => import("./commands.js");

const FILTER_NOTES = `An entry must match all options of the filter. If a value is invalid, the command reports it and does nothing.

With --manifests, --config or --kubeconfig, entries show the service that they belong to. Without these options, gc, --service and --by service ask this node's daemon.

-o json prints one object per line.`;

const COMMON = [
  output("text", "wide", "json"),
  NO_HEADERS,
  flag("--manifests <dir>", "directory of Service and EndpointSlice manifests, to show services"),
  flag(
    "--config <file>",
    "KubeProxyConfiguration of this node; also names the API server, unless --manifests is given",
  ),
  flag("--kubeconfig <file>", "kubeconfig of the API server, instead of the configuration's"),
  SOCKET,
  logLevel("warn"),
] as const;

const FILTERED = [
  ...FILTER_FLAGS,
  ...COMMON,
  flag("--service <service>", "select only entries of [NAMESPACE/]NAME[:PORT]"),
] as const;
export type FilteredOptions = OptionsOf<typeof FILTERED>;

const list = command({
  name: "list",
  description: "print entries",
  flags: FILTERED,
  notes: FILTER_NOTES,
  examples: [
    ["List the entries of a service", "nft-proxier conntrack list --service default/web"],
    ["List UDP entries without a reply", "nft-proxier conntrack list -p udp --status '!seen-reply'"],
  ],
  run: async (options) => (await commands()).listCommand(options),
});

const COUNT = [
  ...FILTERED,
  flag("--by <property>", "property to count by, highest count first", {
    choices: ["source", "destination", "service"],
  }),
] as const;
export type CountOptions = OptionsOf<typeof COUNT>;

const count = command({
  name: "count",
  description: "count entries; -o wide also prints the limit",
  flags: COUNT,
  notes: FILTER_NOTES,
  examples: [
    ["Count all entries", "nft-proxier conntrack count"],
    ["Count entries per service", "nft-proxier conntrack count --by service"],
  ],
  run: async (options) => (await commands()).countCommand(options),
});

const watch = command({
  name: "watch",
  description: "print connections as they begin (+) and end (-)",
  flags: FILTERED,
  notes: FILTER_NOTES,
  examples: [["Watch connections to one address", "nft-proxier conntrack watch -d 10.96.0.10"]],
  run: async (options) => (await commands()).watchCommand(options),
});

const DRY_RUN = flag("--dry-run", "print the entries, but do not delete them");

const GC = [
  ...FILTER_FLAGS,
  ...COMMON,
  DRY_RUN,
  flag(
    "--orphans",
    "also delete entries to endpoints that no service has; for TCP, only half-open, closing and closed ones, but all with -p tcp",
  ),
] as const;
export type GcOptions = OptionsOf<typeof GC>;

const gc = command({
  name: "gc",
  description: "delete entries whose service no longer exists",
  flags: GC,
  notes: FILTER_NOTES,
  examples: [["Print what would be deleted", "nft-proxier conntrack gc --dry-run"]],
  run: async (options) => (await commands()).gcCommand(options),
});

const DELETE = [...FILTERED, DRY_RUN, flag("--all", "delete every entry; breaks all translated connections")] as const;
export type DeleteOptions = OptionsOf<typeof DELETE>;

const remove = command({
  name: "delete",
  description: "delete and print matching entries",
  flags: DELETE,
  notes: `Needs a filter or --all. ${FILTER_NOTES}`,
  examples: [
    ["Print what would be deleted", "nft-proxier conntrack delete -p udp --dport 53 --dry-run"],
    ["Delete the entries of an endpoint", "nft-proxier conntrack delete --reply-src 10.244.1.5"],
  ],
  run: async (options) => (await commands()).deleteCommand(options),
});

const GET = [...COMMON, flag("--zone <zone>", "conntrack zone", { read: readPort, default: 0 })] as const;
export type GetOptions = OptionsOf<typeof GET>;

const get = command({
  name: "get",
  description: "print the entry of one connection",
  arguments: [
    { term: "<protocol>", usage: "tcp, udp, sctp, … or a number", read: readProtocol },
    { term: "<source>", usage: "the client: ADDRESS:PORT, or [ADDRESS]:PORT for IPv6", read: endOf },
    { term: "<destination>", usage: "the VIP or node port, in the same form", read: endOf },
  ],
  flags: GET,
  examples: [["Show the entry of a DNS query", "nft-proxier conntrack get udp 10.244.1.5:40000 10.96.0.10:53"]],
  run: async (options, words) => (await commands()).getCommand(connectionOf(words), options),
});

const help = command({
  name: "help",
  description: "show the help of a command",
  arguments: [{ term: "[command]", usage: "a command's name" }],
  flags: [],
  examples: [["Show the help of a command", "nft-proxier conntrack help list"]],
  run: (_, words) => runCommand(conntrack, [...words, "--help"], "nft-proxier conntrack"),
});

export const conntrack: Command = {
  name: "conntrack",
  description: "list, count, watch and delete connection tracking entries",
  examples: [["List the entries of a Service", "nft-proxier conntrack list --service default/web"]],
  commands: [list, count, watch, gc, remove, get, help],
};

/** The addresses of a connection. */
export interface Connection {
  readonly family: IpFamily;
  readonly tuple: ConntrackTuple;
}

function connectionOf([protocolText = "", ...ends]: readonly string[]): Connection {
  const protocol = readProtocol(protocolText);
  const [source, destination] = ends.map(endOf);
  if (familyOf(source.address) !== familyOf(destination.address))
    throw new UsageError("source and destination must be of the same address family");
  if (!WITH_PORTS.has(protocol)) throw new UsageError("get works only for protocols with ports");
  if (source.port === 0 || destination.port === 0)
    throw new UsageError("get needs the port of both source and destination");
  const tuple = {
    ...{ protocol, source: source.address, sourcePort: source.port },
    ...{ destination: destination.address, destinationPort: destination.port },
  };
  return { family: familyOf(source.address), tuple };
}

/** Parses "10.0.0.1:80", "10.0.0.1", "[fd00::1]:80" or "fd00::1". The port is 0 if none is given. */
function endOf(text: string): { readonly address: string; readonly port: number } {
  const { host = "", port = 0 } = hostAndPort(text) ?? {};
  const address = parseAddress(text) ?? parseAddress(host);
  if (address === undefined) throw new BadValue("must be ADDRESS:PORT, or [ADDRESS]:PORT for IPv6");
  return { address, port };
}
