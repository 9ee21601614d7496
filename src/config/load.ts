/** Loads the configuration from a file, from flags, or from defaults alone: parsed, checked, completed, frozen. */
import { readFile } from "node:fs/promises";
import type { z } from "zod";
import { parseCIDR } from "../base/ip.js";
import { isFields, reasonOf } from "../base/unknown.js";
import { type Effective, type Off, SECTIONS, SYNC_PERIOD_MS, withDefaults, writtenFor } from "./defaults.js";
import { type ConfigDocument, formatEndpoint, toDocument } from "./document.js";
import { ALLOW_SERVICE_EXTERNAL_IPS, type FieldNames, LOCALHOST_NODE_PORTS, notesOf, warningsOf } from "./notes.js";
import { parseText } from "./parse.js";
import { API_VERSION, type ConfigInput, configSchema, KIND } from "./schema.js";
import { ConfigError, type ConfigProblem, type ProxyConfig } from "./proxy-config.js";
import { unknownFields } from "./unknown-fields.js";
import { duration, parseClusterCIDR } from "./values.js";

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
  const parsed = configSchema.safeParse(value);
  const problems = parsed.success ? [] : parsed.error.issues.map((issue) => toProblem(issue, value));
  problems.push(...crossChecks(value));
  // Further remarks about another kind of object would not help.
  const ofOurKind = !problems.some(({ path }) => path === "kind");
  const slips = ofOurKind ? [...repeated, ...unknownFields(value)] : [];
  if (!parsed.success || problems.length > 0) throw new ConfigError(file, [...problems, ...slips]);
  const effective = withDefaults(parsed.data, overrides.off);
  return {
    config: toConfig(effective, overrides.master ?? ""),
    document: toDocument(effective),
    warnings: [...slips.map(({ path, message }) => `${path} ${message}`), ...warningsOf(parsed.data, effective, name)],
    notes: notesOf(parsed.data, effective, name),
    input: parsed.data,
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

function toProblem(issue: z.core.$ZodIssue, value: unknown): ConfigProblem {
  const path = issue.path.map((key) => (typeof key === "number" ? `[${key}]` : `.${String(key)}`)).join("");
  const message = issue.path.length === 0 ? `is not a ${KIND}` : issue.message;
  const known = path.replace(/^\./, "");
  if (fieldAt(value, issue.path) === undefined && issue.path.length > 0) {
    return { path: known, message: `is missing: it ${message}` };
  }
  return { path: known, message };
}

function fieldAt(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (at, key) => (typeof at === "object" && at !== null ? Reflect.get(at, key) : undefined),
    value,
  );
}

/** Checks that involve several fields. They read the parsed text, so that their errors are reported along with all others. */
function crossChecks(value: unknown): ConfigProblem[] {
  const problems: ConfigProblem[] = [];
  const mode = fieldAt(value, ["detectLocalMode"]) || "ClusterCIDR";
  for (const [wants, field] of [
    ["BridgeInterface", "bridgeInterface"],
    ["InterfaceNamePrefix", "interfaceNamePrefix"],
  ] as const) {
    if (mode === wants && (fieldAt(value, ["detectLocal", field]) ?? "") === "") {
      problems.push({ path: `detectLocal.${field}`, message: `must be set in mode ${wants}` });
    }
  }
  const pods = fieldAt(value, ["clusterCIDR"]);
  if (mode === "ClusterCIDR" && typeof pods === "string") {
    const parsed = parseClusterCIDR(pods);
    if ("problem" in parsed) problems.push({ path: "clusterCIDR", message: parsed.problem });
  }
  problems.push(...periodProblems(value));
  return problems;
}

/** Checks the periods that are used. kube-proxy checks those of another mode's section only in that mode. */
function periodProblems(value: unknown): ConfigProblem[] {
  const mode = configSchema.shape.mode.safeParse(fieldAt(value, ["mode"])).data;
  const used = (field: "syncPeriod" | "minSyncPeriod", initial: number) => {
    for (const section of SECTIONS[writtenFor({ mode })].periods) {
      const ms = duration.safeParse(fieldAt(value, [section, field])).data;
      if (ms) return { path: `${section}.${field}`, ms, checked: section === "nftables" };
    }
    return { path: `nftables.${field}`, ms: initial, checked: true };
  };
  const [minimum, period] = [used("minSyncPeriod", 0), used("syncPeriod", SYNC_PERIOD_MS)];
  const negative = [minimum, period].filter(({ ms, checked }) => ms < 0 && !checked);
  if (negative.length > 0) return negative.map(({ path }) => ({ path, message: "must not be negative" }));
  if (period.ms < 0 || minimum.ms <= period.ms) return [];
  return [{ path: minimum.path, message: `must not be longer than ${period.path}` }];
}

function toConfig(effective: Effective, master: string): ProxyConfig {
  const { featureGates, logging, nftables, conntrack, healthz, metrics } = effective;
  const { kubeconfig, qps, burst } = effective.clientConnection;
  const pods = parseClusterCIDR(effective.clusterCIDR);
  return frozen({
    allowExternalIPs: featureGates[ALLOW_SERVICE_EXTERNAL_IPS] ?? true,
    clientConnection: { kubeconfig, qps, burst },
    master,
    logging: { format: logging.format, verbosity: logging.verbosity },
    hostnameOverride: effective.hostnameOverride,
    bindAddress: effective.bindAddress,
    healthzBindAddress: formatEndpoint(healthz),
    metricsBindAddress: formatEndpoint(metrics),
    bindAddressHardFail: effective.bindAddressHardFail,
    enableProfiling: effective.enableProfiling,
    clusterCIDRs: "problem" in pods ? [] : pods.cidrs,
    detectLocalMode: effective.detectLocalMode,
    detectLocal: effective.detectLocal,
    nodePortAddresses: effective.nodePortAddresses,
    localhostNodePorts: featureGates[LOCALHOST_NODE_PORTS] ?? true,
    nftables: {
      masqueradeAll: nftables.masqueradeAll,
      masqueradeBit: nftables.masqueradeBit,
      minSyncPeriodMs: nftables.minSyncPeriod,
      syncPeriodMs: nftables.syncPeriod,
    },
    ipvs: { excludeCIDRs: (effective.ipvs.excludeCIDRs ?? []).flatMap((text) => parseCIDR(text)?.text ?? []) },
    oomScoreAdj: effective.oomScoreAdj,
    conntrack: {
      maxPerCore: conntrack.maxPerCore,
      min: conntrack.min,
      tcpEstablishedTimeoutMs: conntrack.tcpEstablishedTimeout,
      tcpCloseWaitTimeoutMs: conntrack.tcpCloseWaitTimeout,
      tcpBeLiberal: conntrack.tcpBeLiberal,
      udpTimeoutMs: conntrack.udpTimeout,
      udpStreamTimeoutMs: conntrack.udpStreamTimeout,
    },
  });
}

/** Freezes the value recursively. */
function frozen<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  Object.values(value).forEach(frozen);
  return Object.freeze(value);
}
