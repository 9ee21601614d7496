/** Values of the flags that kube-proxy does not have, where there is no command. */
import { parseInterfaces } from "../flowtable/interfaces.js";
import { SERVICE_COUNTERS } from "../ruleset/service-counters.js";
import { problemOf, readBool } from "./go-flags.js";
import {
  connectionSeries,
  CONTROL_SOCKET_FLAG,
  COUNTERS_FLAG,
  FLOWTABLE_FLAG,
  FLOWTABLE_RANGE,
  GC_INTERVAL_FLAG,
  GC_INTERVAL_RANGE,
  gcInterval,
  OWN_FLAGS,
  type OwnOptions,
  SERIES_FLAG,
  serviceCounters,
} from "./options.js";

/** Of our own flags, what the type does not say. */
const VALUE_CHECKS: Readonly<Record<string, { read(text: string): unknown; readonly range: string }>> = {
  [GC_INTERVAL_FLAG]: { read: gcInterval, range: GC_INTERVAL_RANGE },
  [COUNTERS_FLAG]: { read: serviceCounters, range: `must be one of ${SERVICE_COUNTERS.join(", ")}` },
  [SERIES_FLAG]: { read: connectionSeries, range: "must be from 0 to 999999" },
  [FLOWTABLE_FLAG]: { read: parseInterfaces, range: FLOWTABLE_RANGE },
};

/** What is wrong with the values; empty: nothing. `given`: by name of the flag. */
export function ownProblems(given: ReadonlyMap<string, string>): string[] {
  return OWN_FLAGS.flatMap((spec) => {
    const value = given.get(spec.name);
    if (value === undefined) return [];
    const problem = problemOf(spec, value);
    if (problem !== undefined) return problem;
    const check = VALUE_CHECKS[spec.name];
    return check === undefined || check.read(value) !== undefined ? [] : `--${spec.name}=${value}: ${check.range}`;
  });
}

/** Of values that are right. */
export function ownOptions(given: ReadonlyMap<string, string>): OwnOptions {
  const isSet = (name: string): boolean => readBool(given.get(name) ?? "false");
  const interval = gcInterval(given.get(GC_INTERVAL_FLAG) ?? "");
  const flowtable = parseInterfaces(given.get(FLOWTABLE_FLAG) ?? "");
  return {
    manifests: given.get("manifests"),
    ownTable: isSet("own-table"),
    allowIncomplete: isSet("allow-incomplete"),
    gcInterval: interval,
    ...(given.has("status-page") && { statusPage: isSet("status-page") }),
    flowtable,
    ...countingOptions(given.get(COUNTERS_FLAG), given.get(SERIES_FLAG)),
    controlSocket: given.get(CONTROL_SOCKET_FLAG),
  };
}

function countingOptions(what = "", series = ""): Pick<OwnOptions, "serviceCounters" | "connectionSeries"> {
  const counters = serviceCounters(what);
  const most = connectionSeries(series);
  return { serviceCounters: counters, connectionSeries: most };
}
