/** Our own flags, which the program accepts beside kube-proxy's without a command. Commands have options with the same names. */
import { parseDuration } from "../../config/duration.js";
import type { GcInterval } from "../../conntrack/conntrack-service.js";
import { parseInterfaces } from "../../flowtable/interfaces.js";
import { SERVICE_COUNTERS } from "../../ruleset/service-counters.js";
import { BadValue, flag, type OptionsOf } from "../read-flags.js";

const LEAST_GC_MS = 10_000;
const MOST_GC_MS = 24 * 3_600_000;

function readGcInterval(text: string): GcInterval {
  const ms = parseDuration(text);
  if (ms === 0) return "off";
  if (ms !== undefined && ms >= LEAST_GC_MS && ms <= MOST_GC_MS) return ms;
  throw new BadValue("must be 0, or from 10s to 24h");
}

function readSeries(text: string): number {
  if (/^\d{1,6}$/.test(text)) return Number(text);
  throw new BadValue("must be from 0 to 999999");
}

function readFlowtable(text: string): readonly string[] {
  const interfaces = parseInterfaces(text);
  if (interfaces !== undefined) return interfaces;
  throw new BadValue("must be interface names, or prefixes that end with *, separated by commas");
}

// prettier-ignore
export const OWN = {
  manifests: flag("--manifests <dir>", "serve the objects in this directory instead of the API server's"),
  allowIncomplete: flag("--allow-incomplete", "continue even if some manifests cannot be read or served"),
  ownTable: flag("--own-table", "prevent other processes from changing the tables (Linux 6.9); run cleanup before you return to kube-proxy"),
  controlSocket: flag("--control-socket <path>", "unix socket for status and other commands, for root only; empty: none (default: in /run/nft-proxier, named by the network namespace)"),
  statusPage: flag("--status-page", "serve a status page at /status of the metrics port, with names and addresses of services (default: if that port listens on loopback)"),
  serviceCounters: flag("--service-counters <what>", "connection counters (endpoint: at least 16 bytes per CPU and endpoint; needs Linux 5.7)", { choices: SERVICE_COUNTERS, defaultText: "service" }),
  connectionSeries: flag("--connection-series <number>", "maximum number of service ports in the metric nftproxier_service_connections_total; 0: no such metric (default 2000)", { type: "integer", read: readSeries }),
  flowtable: flag("--flowtable <interfaces>", "let established TCP connections to services bypass all rules between these interfaces: names, or prefixes with *, separated by commas (Linux 6.4 to 6.13; see docs/flowtable.md)", { read: readFlowtable, conflicts: "once" }),
  conntrackGcInterval: flag("--conntrack-gc-interval <duration>", "interval of garbage collections of connection tracking; 0: none (default: adaptive, 10s to 30m)", { type: "duration", read: readGcInterval }),
} as const;

export const OWN_FLAGS = Object.values(OWN);

/** The values of our own flags, for the daemon and `run`. */
export type OwnOptions = OptionsOf<typeof OWN_FLAGS>;
