/** Loads the configuration from a file, from flags, or from defaults alone: parsed, checked, completed, frozen. */
import { readFile } from "node:fs/promises";
import { isFields, reasonOf } from "../base/unknown.js";
import { type Off, SECTIONS, SYNC_PERIOD_MS, withDefaults, writtenFor } from "./defaults.js";
import { type ConfigDocument, toDocument } from "./document.js";
import { type Findings, Invalid } from "./config-fields.js";
import { type FieldNames, notesOf, warningsOf } from "./notes.js";
import { parseText } from "./parse.js";
import { API_VERSION, type ConfigInput, configSchema, KIND } from "./schema.js";
import { ConfigError, type ConfigProblem } from "./config-error.js";
import { type ProxyConfig, toConfig } from "./proxy-config.js";
import { unknownFields } from "./unknown-fields.js";
import { parseClusterCIDR } from "./values.js";

export interface LoadedConfig {
  readonly config: ProxyConfig;
  /** The same configuration in kube-proxy's format, including settings of other modes. */
  readonly document: ConfigDocument;
  /** Complete sentences about unknown or repeated fields, and settings without effect. */
  readonly warnings: readonly string[];
  /** Complete sentences about settings that mean something else to kube-proxy. */
  readonly notes: readonly string[];
  /** The fields as written, checked, without defaults. */
  readonly input: ConfigInput;
  /** The file's content; undefined if there was no file. */
  readonly text: string | undefined;
}

/** Settings from the command line. */
export interface Overrides {
  /** Fields of KubeProxyConfiguration that replace a file's: sections field by field, lists as a whole. */
  readonly fields?: Readonly<Record<string, unknown>>;
  /** URL of the API server. */
  readonly master?: string;
  readonly off?: Off;
}

/** The configuration for a program that was given none. */
export function defaultConfig(): ProxyConfig {
  return configFromFlags({}).config;
}

/** Reads a KubeProxyConfiguration, YAML or JSON. Throws `ConfigError` with all errors. */
export async function loadConfig(path: string, overrides: Overrides = {}): Promise<LoadedConfig> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    const reason = reasonOf(error);
    throw new ConfigError(path, [{ path: "", message: `cannot be read: ${reason}` }], { cause: error });
  }
  return parseConfig(text, path, overrides);
}

/** Like `loadConfig`; errors refer to the text as `file`. */
export function parseConfig(text: string, file: string, overrides: Overrides = {}): LoadedConfig {
  const repeated: ConfigProblem[] = [];
  const value = merged(parseText(text, file, repeated), overrides.fields);
  const loaded = complete(value, { file, overrides, repeated, name: (path) => path });
  return { ...loaded, text };
}

/**
 * Makes the configuration from the command line alone. Throws `ConfigError` with all errors.
 * @param name returns the flag for a field.
 */
export function configFromFlags(overrides: Overrides, name: FieldNames = (path) => path): LoadedConfig {
  const value = merged({ apiVersion: API_VERSION, kind: KIND }, overrides.fields);
  return complete(value, { file: "command line", overrides, repeated: [], name });
}

interface Origin {
  readonly file: string;
  readonly overrides: Overrides;
  /** Fields that occur twice in the file. */
  readonly repeated: readonly ConfigProblem[];
  readonly name: FieldNames;
}

function complete(value: unknown, { file, overrides, repeated, name }: Origin): LoadedConfig {
  const findings: Findings = { problems: [], unknown: [] };
  const input = configSchema.read(value, "", findings);
  const { problems } = findings;
  problems.push(...crossChecks(input ?? {}, new Set(problems.map(({ path }) => path))));
  // Further remarks about another kind of object would not help.
  const ofOurKind = !problems.some(({ path }) => path === "kind");
  const slips = ofOurKind ? [...repeated, ...unknownFields(findings.unknown)] : [];
  if (input === undefined || problems.length > 0) throw new ConfigError(file, [...problems, ...slips]);
  const effective = withDefaults(input, overrides.off);
  return {
    config: toConfig(effective, overrides.master ?? ""),
    document: toDocument(effective),
    warnings: [...slips.map(({ path, message }) => `${path} ${message}`), ...warningsOf(input, effective, name)],
    notes: notesOf(input, effective, name),
    input,
    text: undefined,
  };
}

/** Puts `over` on top of `base`, key by key for objects. */
function merged(base: unknown, over: unknown): unknown {
  if (over === undefined) return base;
  if (!isFields(base) || !isFields(over)) return over;
  const keys = new Set([...Object.keys(base), ...Object.keys(over)]);
  return Object.fromEntries([...keys].map((key) => [key, merged(base[key], over[key])]));
}

/** Checks that involve several fields. @param invalid fields with problems of their own; `input` does not have them. */
function crossChecks(input: ConfigInput, invalid: ReadonlySet<string>): ConfigProblem[] {
  const problems: ConfigProblem[] = [];
  const mode = invalid.has("detectLocalMode") ? undefined : input.detectLocalMode || "ClusterCIDR";
  for (const [wants, field] of [
    ["BridgeInterface", "bridgeInterface"],
    ["InterfaceNamePrefix", "interfaceNamePrefix"],
  ] as const) {
    const path = `detectLocal.${field}`;
    if (mode === wants && !input.detectLocal?.[field] && !invalid.has(path)) {
      problems.push({ path, message: `must be set in mode ${wants}` });
    }
  }
  const pods = parseClusterCIDR(input.clusterCIDR ?? "");
  if (mode === "ClusterCIDR" && pods instanceof Invalid) {
    problems.push({ path: "clusterCIDR", message: pods.message });
  }
  return [...problems, ...periodProblems(input)];
}

/** Checks the periods that are used. kube-proxy checks those of another mode's section only in that mode. */
function periodProblems(input: ConfigInput): ConfigProblem[] {
  const used = (field: "syncPeriod" | "minSyncPeriod", initial: number) => {
    const { periods } = SECTIONS[writtenFor(input)];
    const section = periods.find((name) => input[name]?.[field]) ?? "nftables";
    return { path: `${section}.${field}`, ms: input[section]?.[field] || initial };
  };
  const [minimum, period] = [used("minSyncPeriod", 0), used("syncPeriod", SYNC_PERIOD_MS)];
  const negative = [minimum, period].filter(({ ms }) => ms < 0);
  if (negative.length > 0) return negative.map(({ path }) => ({ path, message: "must not be negative" }));
  return minimum.ms <= period.ms ? [] : [{ path: minimum.path, message: `must not be longer than ${period.path}` }];
}
