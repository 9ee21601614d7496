/** The commands that ask the daemon, or the kernel if no daemon answers, and print. */
import { SERVICE_STATES } from "../../observe/status-report.js";
import { command } from "../command.js";
import { duration, NO_HEADERS, output, positive, SOCKET } from "../options.js";
import { BadValue, flag, type OptionsOf } from "../read-flags.js";

const NAMESPACE = [
  flag("-n, --namespace <namespace>", "only services of this namespace (default: all namespaces)"),
  // The default, which people know from kubectl.
  flag("-A, --all-namespaces", "services of all namespaces", { conflicts: "namespace" }),
] as const;
const NAMESPACE_OF_NAME = flag("-n, --namespace <namespace>", "namespace of a service that is named without one");

const SERVICE = "[NAMESPACE/]NAME[:PORT], ADDRESS[:PORT] of a service or pod, or a node port";
const PACKET = "[tcp|udp|sctp] [SOURCE] DESTINATION:PORT";

const STATUS = [
  output("text", "json", "yaml"),
  flag("--events", "show the last repairs, refusals and takeovers instead"),
  flag("-w, --watch", "keep running and print changes"),
  SOCKET,
] as const;
export type StatusOptions = OptionsOf<typeof STATUS>;

export const status = command({
  name: "status",
  description: "show the status of this node's daemon, problems first",
  flags: STATUS,
  notes: "Exit code 0: no problems. 1: problems.",
  examples: [
    ["Show the status and all problems", "nft-proxier status"],
    ["Show the last events as JSON", "nft-proxier status --events -o json"],
  ],
  run: async (options) => (await import("./status.js")).statusCommand(options),
});

export const page = command({
  name: "page",
  description: "print the URL of the status page, if it answers",
  flags: [SOCKET],
  examples: [["Open the page on this machine", 'xdg-open "$(nft-proxier page)"']],
  run: async ({ socket }) => (await import("./page.js")).pageCommand(socket),
});

const DIAGNOSE = [
  flag("-o, --output <file>", "file for the gzipped tar; -: stdout (default: named by host and time)"),
  SOCKET,
] as const;
export type DiagnoseOptions = OptionsOf<typeof DIAGNOSE>;

export const diagnose = command({
  name: "diagnose",
  description: "write a file for a bug report, without secrets",
  flags: DIAGNOSE,
  notes: "The file has the status, configuration, ruleset, metrics and log of this node's daemon.",
  examples: [["Collect everything in one file", "nft-proxier diagnose -o report.tar.gz"]],
  run: async (options) => (await import("./diagnose/command.js")).diagnoseCommand(options),
});

const EXPLAIN = [
  output("text", "json"),
  NAMESPACE_OF_NAME,
  flag("--in <interface>", "incoming interface (needed if detectLocalMode identifies pods by interface)"),
  SOCKET,
] as const;
export type ExplainOptions = OptionsOf<typeof EXPLAIN>;

export const explain = command({
  name: "explain",
  description: "show what this node's rules do with a packet, step by step",
  arguments: [
    { term: "<packet...>", usage: `${PACKET}, or a service (default: tcp, from a client outside the cluster)` },
  ],
  flags: EXPLAIN,
  notes: "Sends no packets.",
  examples: [
    ["Explain a connection from outside to a node port", "nft-proxier explain 192.0.2.1:30080"],
    ["Explain a DNS query from a pod", "nft-proxier explain udp 10.244.1.5 kube-system/kube-dns:53"],
  ],
  run: async (options, words) => (await import("./explain.js")).explainCommand(words, options),
});

const TRACE = [
  NAMESPACE_OF_NAME,
  flag("--count <lines>", "stop after this many lines", { read: positive }),
  flag("--for <duration>", "stop after this long; 0: until Ctrl-C", {
    read: duration,
    default: 30_000,
    defaultText: "30s",
  }),
  flag("--refused", "show connections that the endpoint refuses (more such options: one of them)"),
  flag("--unanswered", "show connections without an answer"),
  flag("--dropped", "show connections that rules drop or reject, or that are lost"),
  flag("--all-packets", "show all packets of a connection, not only the first"),
  flag("--force", "allow all ports of an address, all addresses of a network, or any destination"),
  output("text", "json"),
  SOCKET,
] as const;
export type TraceOptions = OptionsOf<typeof TRACE>;

export const trace = command({
  name: "trace",
  description: "show live connections, one line each: their endpoint and outcome",
  arguments: [
    {
      term: "<packets...>",
      usage: `${PACKET}, or [NAMESPACE/]NAME[:PORT]; SOURCE and DESTINATION can be networks, DESTINATION also \`any\``,
    },
  ],
  flags: TRACE,
  notes:
    "Shows the endpoint, the rule that dropped the connection, or whether an answer came. Needs Linux 5.12. Its table is removed when the command ends, even if it is killed.\n\nExit code 0: lines were printed. 1: none. 2: invalid arguments.",
  examples: [
    ["Trace connections to a Service for 30s", "nft-proxier trace default/web"],
    [
      "Trace the next dropped connection from a network",
      "nft-proxier trace 192.0.2.0/24 10.96.0.10:53 --dropped --count 1",
    ],
  ],
  run: async (options, words) => (await import("./trace.js")).traceCommand(words, options),
});

/** Splits words at commas, and checks each. */
function states(text: string): readonly string[] {
  const words = text.split(",");
  if (words.every((word) => (SERVICE_STATES as readonly string[]).includes(word))) return words;
  throw new BadValue(`must be some of ${SERVICE_STATES.join(", ")}`);
}

const SERVICES = [
  ...NAMESPACE,
  flag("--state <state,...>", `only ports in these states: ${SERVICE_STATES.join(", ")}`, { read: states }),
  flag("--sort-by <column>", "sort by this column", { choices: ["name", "state", "ready", "connections", "rate"] }),
  output("table", "wide", "json", "yaml", "name"),
  NO_HEADERS,
  flag("-w, --watch", "keep running and print changed lines, except for changes in connections only"),
  SOCKET,
] as const;
export type ServicesOptions = OptionsOf<typeof SERVICES>;

export const services = command({
  name: "services",
  description: "list the services of this node, or describe some with their endpoints",
  arguments: [{ term: "[service...]", usage: SERVICE }],
  flags: SERVICES,
  notes: "Lines fit the terminal, or the width in COLUMNS. -o wide shows all columns.",
  examples: [
    ["List all services", "nft-proxier services"],
    ["List services that refuse or drop connections", "nft-proxier services --state rejected,no-local-endpoint"],
    ["Describe a service with its endpoints", "nft-proxier services default/web"],
  ],
  run: async (options, words) => (await import("./services.js")).servicesCommand(words, options),
});

const TOP = [
  ...NAMESPACE,
  flag("--count <screens>", "stop after this many screens (default without a terminal: 1)", { read: positive }),
  flag("-d, --interval <duration>", "time between screens", { read: duration, default: 2000, defaultText: "2s" }),
  SOCKET,
] as const;
export type TopOptions = OptionsOf<typeof TOP>;

export const top = command({
  name: "top",
  description: "show the busiest services, or a service's endpoints",
  arguments: [
    {
      term: "[service...]",
      usage: `${SERVICE}; its endpoints need a daemon with --service-counters=endpoint`,
    },
  ],
  flags: TOP,
  notes: "Press q to quit.",
  examples: [
    ["Show the busiest services", "nft-proxier top"],
    ["Show a service's endpoints every 10s", "nft-proxier top default/web -d 10s"],
  ],
  run: async (options, words) => (await import("./top.js")).topCommand(words, options),
});
