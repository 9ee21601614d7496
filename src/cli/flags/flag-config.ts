/**
 * Converts flags to the configuration: a file's, with the flags that apply beside a file, or the flags' own (kubernetes
 * cmd/kube-proxy/app/options.go, Complete).
 */
import { configFromFlags, loadConfig, type LoadedConfig, type Overrides } from "../../config/load.js";
import { ConfigError, type ConfigProblem } from "../../config/config-error.js";
import { parseDuration } from "../../config/duration.js";
import { parseAddress, withPort } from "../../base/ip.js";
import { type FlagName, type FlagSpec, type FlagValues, KUBE_PROXY_FLAGS } from "./kube-proxy-flags.js";

const FLAG_OF: ReadonlyMap<string, string> = new Map(
  KUBE_PROXY_FLAGS.flatMap(({ field, name }) => (field === "" ? [] : [[field, `--${name}`] as const])),
);

/** Returns the name of a field's flag ("--nodeport-addresses" for "nodePortAddresses[1]"), or the field if it has none. */
export function flagOf(path: string): string {
  return FLAG_OF.get(path.replace(/\[\d+\]$/, "")) ?? path;
}

function isGiven(flags: FlagValues, name: string): boolean {
  return Object.hasOwn(flags, name);
}

/** A configuration file on the command line, to read now and after changes. */
interface ConfigFile {
  readonly path: string;
  /** The command line's additions. */
  readonly overrides: Overrides;
}

export function configFile(flags: FlagValues): ConfigFile | undefined {
  const { config: path = "" } = flags;
  return path === "" ? undefined : { path, overrides: besideFile(flags) };
}

/** Returns one sentence per value that is invalid in any configuration, whatever a file contains. */
export function flagProblems(flags: FlagValues): string[] {
  const problems: ConfigProblem[] = [];
  const hostname = flags["hostname-override"] ?? "";
  if (hostname !== "" && hostname.trim() === "")
    problems.push({ path: "--hostname-override", message: "must not be blank" });
  if (configFile(flags) === undefined) problems.push(...aloneProblems(flags));
  try {
    configFromFlags(configFile(flags)?.overrides ?? alone(flags), flagOf);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    problems.push(...error.problems.filter(({ path }) => path !== "hostnameOverride"));
  }
  return problems.map(({ path, message }) => `${flagOf(path)}: ${message}`);
}

/** Returns the problems that kube-proxy only finds on a command line. In a file, these values mean the default. */
function aloneProblems(flags: FlagValues): ConfigProblem[] {
  const problems: ConfigProblem[] = [];
  for (const name of ["iptables-sync-period", "config-sync-period"] as const) {
    const period = flags[name];
    if (period !== undefined && parseDuration(period) === 0) {
      problems.push({ path: `--${name}`, message: "must be greater than 0" });
    }
  }
  for (const name of ["healthz-port", "metrics-port"] as const) {
    const port = flags[name];
    if (port !== undefined && (port < 0 || port > 65_535)) {
      problems.push({ path: `--${name}`, message: "must be a port, or 0" });
    }
  }
  return problems;
}

/** @throws {ConfigError} with all problems. */
export async function resolveConfig(flags: FlagValues): Promise<LoadedConfig> {
  const file = configFile(flags);
  const warnings = flagWarnings(flags, file);
  const loaded =
    file === undefined ? configFromFlags(alone(flags), flagOf) : await loadConfig(file.path, file.overrides);
  return { ...loaded, warnings: [...warnings, ...loaded.warnings] };
}

function flagWarnings(flags: FlagValues, file: ConfigFile | undefined): string[] {
  const warnings = KUBE_PROXY_FLAGS.flatMap(({ name, deprecated }) =>
    deprecated === "" || !isGiven(flags, name) ? [] : [`--${name} is deprecated: ${deprecated}`],
  );
  const ignored = KUBE_PROXY_FLAGS.filter((spec) => isGiven(flags, spec.name) && !spec.besideConfig);
  if (file !== undefined && ignored.length > 0) {
    const names = ignored.map(({ name }) => `--${name}`).join(", ");
    warnings.push(
      `ignored because --config is given, as in kube-proxy: ${names}; set ${ignored.length === 1 ? "it" : "them"} in ${file.path}`,
    );
  }
  if (file === undefined) warnings.push(...serverWarnings(flags));
  return warnings;
}

/** kube-proxy treats an empty address like an absent one, whatever its help says. */
function serverWarnings(flags: FlagValues): string[] {
  const warnings = (["healthz", "metrics"] as const).flatMap((server) =>
    flags[`${server}-bind-address`] === ""
      ? [
          `--${server}-bind-address is empty, so the default applies, as in kube-proxy; --${server}-port=0 turns the server off`,
        ]
      : [],
  );
  const off = (["healthz", "metrics"] as const).filter((server) => flags[`${server}-port`] === 0);
  if (isGiven(flags, "write-config-to") && off.length > 0) {
    const names = off.map((server) => `--${server}-port=0`).join(", ");
    warnings.push(`${names}: a configuration file cannot turn a server off, so the default is written`);
  }
  return warnings;
}

/** Returns the flags that apply beside a file. */
function besideFile(flags: FlagValues): Overrides {
  return {
    fields: fieldsOf(
      flags,
      KUBE_PROXY_FLAGS.filter((spec) => spec.besideConfig),
    ),
    master: flags.master ?? "",
  };
}

/** Returns all flags, for a command line without a file. */
function alone(flags: FlagValues): Overrides {
  const fields = {
    ...fieldsOf(flags, KUBE_PROXY_FLAGS),
    healthzBindAddress: listenAddress(flags, "healthz", "0.0.0.0:10256"),
    metricsBindAddress: listenAddress(flags, "metrics", "127.0.0.1:10249"),
  };
  const master = flags.master ?? "";
  // A file cannot turn a server off, so the written file has the default.
  if (isGiven(flags, "write-config-to")) return { fields, master };
  return { fields, master, off: { healthz: flags["healthz-port"] === 0, metrics: flags["metrics-port"] === 0 } };
}

function fieldsOf(flags: FlagValues, specs: readonly FlagSpec[]): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const { field, name } of specs) {
    if (field !== "" && isGiven(flags, name)) setField(fields, field.split("."), Reflect.get(flags, name));
  }
  const hostname = flags["hostname-override"] ?? "";
  if (hostname !== "") fields["hostnameOverride"] = hostname;
  return fields;
}

/** addressFromDeprecatedFlags: an address without a port gets the other flag's. The defaults are IPv4, whatever --bind-address says. */
function listenAddress(flags: FlagValues, server: "healthz" | "metrics", initial: string): string {
  const address = flags[`${server}-bind-address` satisfies FlagName] || initial;
  const port = flags[`${server}-port` satisfies FlagName] ?? 0;
  if (port === 0 || parseAddress(address) === undefined) return address;
  return withPort(address, port);
}

function setField(target: Record<string, unknown>, [key = "", ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0) {
    target[key] = value;
    return;
  }
  const section = (target[key] ??= {}) as Record<string, unknown>;
  setField(section, rest, value);
}
