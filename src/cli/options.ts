import { parseDuration } from "../config/duration.js";
import type { GcInterval } from "../conntrack/service.js";
import type { LogLevel } from "../base/logger.js";
import type { FlagValues } from "./go-flags.js";
import { SERVICE_COUNTERS, type ServiceCounters } from "../ruleset/service-counters.js";
import { type FlagSpec, flagSpecs } from "./kube-proxy-flags.js";

/** What commands that read manifests are given. */
export interface CommonOptions {
  readonly manifests: string;
  readonly config?: string;
  readonly logLevel: LogLevel;
}

/** What commands that serve manifests, or print what would be, are given. */
export interface ManifestOptions extends CommonOptions {
  readonly allowIncomplete?: boolean;
}

export const VALIDATE_FORMATS = ["text", "json"] as const;

export interface ValidateOptions {
  readonly manifests: string;
  readonly config?: string;
  readonly output: (typeof VALIDATE_FORMATS)[number];
}

export const STATUS_FORMATS = ["text", "json"] as const;

export interface StatusOptions {
  readonly output: (typeof STATUS_FORMATS)[number];
  readonly events?: boolean;
  /** Default: that of this network namespace. */
  readonly socket?: string;
}

export const PREFLIGHT_FORMATS = ["text", "json", "yaml"] as const;

/** Beside kube-proxy's flags. */
export interface PreflightCommandOptions {
  readonly output: (typeof PREFLIGHT_FORMATS)[number];
  /** Directory of manifests to look at; absent: what the API server of the configuration says. */
  readonly manifests?: string;
  /** The kernel may load its own modules for what is asked of it. */
  readonly loadModules?: boolean;
}

export const SERVICE_FORMATS = ["table", "wide", "json", "yaml", "name"] as const;

export interface ServicesOptions {
  readonly output: (typeof SERVICE_FORMATS)[number];
  /** False: `--no-headers`. */
  readonly headers?: boolean;
  /** Go on, and print what changes. */
  readonly watch?: boolean;
  readonly socket?: string;
}

export interface TopOptions {
  /** Screens; absent: until it is ended, and one where there is no terminal. */
  readonly count?: number;
  /** Between two of them, ms. */
  readonly interval: number;
  readonly socket?: string;
}

export interface HandoverOptions {
  /** How long the copy serves new connections, ms. */
  readonly for: number;
  /** Remove the copy instead. */
  readonly remove?: boolean;
  readonly logLevel: LogLevel;
}

export interface DiagnoseOptions {
  /** Path; "-": stdout. Default: a name with host and time, in the working directory. */
  readonly output?: string;
  readonly socket?: string;
}

export interface ExplainOptions {
  readonly output: (typeof STATUS_FORMATS)[number];
  /** Interface that the packet comes in by. */
  readonly in?: string;
  readonly socket?: string;
}

export interface TraceOptions {
  readonly output: (typeof STATUS_FORMATS)[number];
  /** Ends behind so many packets. */
  readonly count?: number;
  /** Ends behind so long, ms; 0: with a signal alone. */
  readonly for: number;
  /** Print only those that end in a reject or a drop. */
  readonly dropped?: boolean;
  readonly allPackets?: boolean;
  /** Although the words may mean all traffic. */
  readonly force?: boolean;
  readonly socket?: string;
}

/** What kube-proxy has no name for. */
export interface OwnOptions {
  /** Directory of manifests to serve instead of what an API server says; undefined: the API server. */
  readonly manifests: string | undefined;
  /** Make the tables with the flags `owner` and `persist`, so that no other process can change them (Linux 6.9). */
  readonly ownTable: boolean;
  /** At the start, an incomplete reading of the manifests may change a table that is in force. */
  readonly allowIncomplete: boolean;
  /** Where `status` and `services` ask; "": nowhere. Default: a path that the network namespace names. */
  readonly controlSocket?: string;
  /** Whether the metrics port has the status page. Default: where it listens on loopback. */
  readonly statusPage?: boolean;
  /** Garbage collection of the connection tracking table in the background. Default "adaptive". */
  readonly gcInterval?: GcInterval;
  /** Which connections are counted. Default "service". */
  readonly serviceCounters?: ServiceCounters;
  /** Series of the metric with connections, at most; 0: no such metric. Default: see ConnectionMetrics. */
  readonly connectionSeries?: number;
  /** Interfaces between which established connections skip the rules, names or beginnings of names with `*`. */
  readonly flowtable?: readonly string[];
}

/** A command line without a sub-command, every value checked by itself. */
export interface ProxyOptions {
  readonly flags: FlagValues;
  readonly own: OwnOptions;
}

export const CONTROL_SOCKET_FLAG = "control-socket";
export const CONTROL_SOCKET_USAGE =
  "unix socket on which `status` and `services` ask, for root alone; empty: none. By default /run/nft-proxier/ with a name of this network namespace's own";

export const COUNTERS_FLAG = "service-counters";
export const COUNTERS_USAGE =
  "what the kernel counts of connections: service, endpoint (each of them too: 16 bytes for each CPU and list of theirs), or off (Linux 5.7)";
export const SERIES_FLAG = "connection-series";
export const SERIES_USAGE =
  "services' ports that the metric nftproxier_service_connections_total names at most, the first by name (default 2000); 0: no such metric";

export const FLOWTABLE_FLAG = "flowtable";
export const FLOWTABLE_USAGE =
  "established TCP connections to services skip all rules, other programs' too, between these interfaces: names, or beginnings of names with *, with commas between them (Linux 6.4 to 6.13; docs/flowtable.md)";
export const FLOWTABLE_RANGE =
  "must be names of interfaces, or beginnings of names with * at the end, with commas between them";

/** What is counted, of the flag's value; undefined: that one is none. */
export function serviceCounters(text: string): ServiceCounters | undefined {
  return SERVICE_COUNTERS.find((one) => one === text);
}

/** Of the flag's value; undefined: that one is none. */
export function connectionSeries(text: string): number | undefined {
  return /^\d{1,6}$/.test(text) ? Number(text) : undefined;
}

export const GC_INTERVAL_FLAG = "conntrack-gc-interval";
export const GC_INTERVAL_RANGE = "must be 0, or from 10s to 24h";
/** As two runs are apart at least, early ones too. */
const LEAST_GC_MS = 10_000;
const MOST_GC_MS = 24 * 3_600_000;

/** Our own flags, beside kube-proxy's. */
// prettier-ignore
export const OWN_FLAGS: readonly FlagSpec[] = flagSpecs(false, [
  ["manifests", "string", "dir", "", "", "serve the objects in this directory; no API server is asked"],
  ["allow-incomplete", "bool", "", "", "", "with --manifests: write at the start although something of them cannot be read or served"],
  ["own-table", "bool", "", "", "", "no other process may change the tables while this runs (Linux 6.9; kube-proxy needs `cleanup` first then)"],
  [CONTROL_SOCKET_FLAG, "string", "path", "", "", CONTROL_SOCKET_USAGE],
  ["status-page", "bool", "", "", "", "a page for people at /status of the metrics port; it shows names and addresses of services to all who can reach that. By default where the port listens on loopback"],
  [COUNTERS_FLAG, "string", "what", "service", "", `${COUNTERS_USAGE} (default "service")`],
  [SERIES_FLAG, "integer", "number", "2000", "", SERIES_USAGE],
  [FLOWTABLE_FLAG, "string", "interfaces", "", "", FLOWTABLE_USAGE],
  [GC_INTERVAL_FLAG, "duration", "duration", "", "", "between two garbage collections of the connection tracking table; 0: none in the background. By default it adapts to what they find, 10s to 30m"],
]);

/** The interval of the flag's value; undefined: that one is none. */
export function gcInterval(text: string): GcInterval | undefined {
  const ms = parseDuration(text);
  if (ms === 0) return "off";
  return ms === undefined || ms < LEAST_GC_MS || ms > MOST_GC_MS ? undefined : ms;
}
