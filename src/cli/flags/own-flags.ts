/** Our own flags, which the program accepts beside kube-proxy's without a command. Commands have options with the same names. */
import { Option } from "commander";
import { parseDuration } from "../../config/duration.js";
import type { GcInterval } from "../../conntrack/conntrack-service.js";
import { parseInterfaces } from "../../flowtable/interfaces.js";
import { SERVICE_COUNTERS, type ServiceCounters } from "../../ruleset/service-counters.js";
import { flagOption } from "../cli-command.js";
import { BadValue, type Flag, type FlagType, type ValueOf } from "../read-flags.js";

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

interface OwnFlag<N extends string, T> extends Flag {
  readonly name: N;
  readonly read?: (text: string) => T;
}

/** Declares a flag. Its value has the type that `read` returns, if there is one. */
export function flag<N extends string, F extends FlagType, T = ValueOf<F>>(
  name: N,
  type: F,
  placeholder: string,
  usage: string,
  more: Pick<OwnFlag<N, T>, "short" | "read" | "choices" | "defaultText"> = {},
): OwnFlag<N, T> {
  return { name, type, placeholder, usage, ...more };
}

// prettier-ignore
export const OWN_FLAGS = [
  flag("manifests", "string", "dir", "serve the objects in this directory instead of the API server's"),
  flag("allow-incomplete", "bool", "", "continue even if some manifests cannot be read or served"),
  flag("own-table", "bool", "", "prevent other processes from changing the tables (Linux 6.9); run cleanup before you return to kube-proxy"),
  flag("control-socket", "string", "path", "unix socket for status and other commands, for root only; empty: none (default: in /run/nft-proxier, named by the network namespace)"),
  flag("status-page", "bool", "", "serve a status page at /status of the metrics port, with names and addresses of services (default: if that port listens on loopback)"),
  flag("service-counters", "string", "what", "connection counters (endpoint: at least 16 bytes per CPU and endpoint; needs Linux 5.7)", { read: (text) => text as ServiceCounters, choices: SERVICE_COUNTERS, defaultText: "service" }),
  flag("connection-series", "integer", "number", "maximum number of service ports in the metric nftproxier_service_connections_total; 0: no such metric (default 2000)", { read: readSeries }),
  flag("flowtable", "string", "interfaces", "let established TCP connections to services bypass all rules between these interfaces: names, or prefixes with *, separated by commas (Linux 6.4 to 6.13; see docs/flowtable.md)", { read: readFlowtable }),
  flag("conntrack-gc-interval", "duration", "duration", "interval of garbage collections of connection tracking; 0: none (default: adaptive, 10s to 30m)", { read: readGcInterval }),
] as const;

export type OwnFlagName = (typeof OWN_FLAGS)[number]["name"];

type CamelCase<S extends string> = S extends `${infer A}-${infer B}` ? `${A}${Capitalize<CamelCase<B>>}` : S;
type Value<F> = F extends OwnFlag<string, infer T> ? T : never;

/** The values of flags, by commander's names for options: "own-table" is `ownTable`. */
type OptionsOf<F extends Flag> = { readonly [G in F as CamelCase<G["name"]>]?: Value<G> };

/** The values of our own flags, for the daemon and `run`. */
export type OwnOptions = OptionsOf<(typeof OWN_FLAGS)[number]>;

/** Returns the values of these flags from the result of `readFlags`. */
export function optionsOf<F extends Flag>(
  values: Readonly<Record<string, unknown>>,
  flags: readonly F[],
): OptionsOf<F> {
  const given = flags.filter(({ name }) => Object.hasOwn(values, name));
  return Object.fromEntries(
    given.map(({ name }) => [new Option(`--${name}`).attributeName(), values[name]]),
  ) as OptionsOf<F>;
}

/** Returns the flag as an option of a command. */
export function ownOption(name: OwnFlagName): Option {
  return flagOption(OWN_FLAGS.find((one) => one.name === name) ?? OWN_FLAGS[0]);
}
