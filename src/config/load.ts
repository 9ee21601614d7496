import { readFile } from "node:fs/promises";
import { isScalar, LineCounter, parseAllDocuments } from "yaml";
import { z } from "zod";
import { closest } from "./closest.js";
import { API_VERSION, configSchema, KIND, type ConfigInput } from "./schema.js";
import { ConfigError, type ConfigProblem, type ProxyConfig } from "./types.js";

const DEFAULT_MASQUERADE_BIT = 14;
const DEFAULT_SYNC_PERIOD_MS = 30_000;

export interface LoadedConfig {
  readonly config: ProxyConfig;
  /** Whole sentences: unknown or repeated fields, settings that have no effect as they are. */
  readonly warnings: string[];
  /** Whole sentences: where kube-proxy would have done something else by default. */
  readonly notes: string[];
}

/** What the command line adds to a file. */
export interface Overrides {
  /** Fields of KubeProxyConfiguration that take the place of the file's, sections field by field. */
  readonly fields?: Readonly<Record<string, unknown>>;
  readonly master?: string;
}

/** The configuration of a program that was given none. */
export function defaultConfig(): ProxyConfig {
  return toConfig({ apiVersion: API_VERSION, kind: KIND });
}

/** Reads a KubeProxyConfiguration, YAML or JSON. Throws `ConfigError` with everything that is wrong. */
export async function loadConfig(path: string, overrides: Overrides = {}): Promise<LoadedConfig> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(path, [{ path: "", message: `cannot be read: ${reason}` }], { cause: error });
  }
  return parseConfig(text, path, overrides);
}

/** As `loadConfig`; `file` names the text in errors. */
export function parseConfig(text: string, file: string, overrides: Overrides = {}): LoadedConfig {
  const warnings: string[] = [];
  const value = merged(withoutNulls(parseText(text, file, warnings)), overrides.fields);
  return complete(value, file, warnings, overrides.master);
}

/** The configuration that a command line alone makes. Throws `ConfigError` with everything that is wrong. */
export function configFromFlags(overrides: Overrides): LoadedConfig {
  const value = merged({ apiVersion: API_VERSION, kind: KIND }, overrides.fields);
  return complete(value, "command line", [], overrides.master);
}

function complete(value: unknown, file: string, warnings: string[], master: string | undefined): LoadedConfig {
  const parsed = configSchema.safeParse(value);
  const problems = parsed.success ? [] : parsed.error.issues.map((issue) => toProblem(issue, value));
  problems.push(...crossChecks(value));
  if (!parsed.success || problems.length > 0) throw new ConfigError(file, problems);
  warnUnknown(configSchema, value, "", warnings);
  const config = Object.freeze({ ...toConfig(parsed.data), master: master ?? "" });
  if (config.detectLocalMode === "ClusterCIDR" && config.clusterCIDRs.length === 0) {
    warnings.push(
      "detectLocalMode is ClusterCIDR and clusterCIDR is empty: traffic of this node's pods is not told from other traffic",
    );
  }
  return { config, warnings, notes: [] };
}

/** `over` on top of `base`, objects key by key. */
function merged(base: unknown, over: unknown): unknown {
  if (over === undefined) return base;
  if (!isObject(base) || !isObject(over)) return over;
  const keys = new Set([...Object.keys(base), ...Object.keys(over)]);
  return Object.fromEntries([...keys].map((key) => [key, merged(base[key], over[key])]));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parseText(text: string, file: string, warnings: string[]): unknown {
  const lines = new LineCounter();
  const documents = parseAllDocuments(text, {
    lineCounter: lines,
    prettyErrors: false,
    stringKeys: true,
    merge: true,
    logLevel: "error",
    uniqueKeys: (a, b) => {
      if (isScalar(a) && isScalar(b) && a.value === b.value && a.value !== "<<") {
        const { line } = lines.linePos(b.range[0]);
        warnings.push(`${String(b.value)} is written twice (line ${line}): the last one counts`);
      }
      return false;
    },
  });
  const list = Array.isArray(documents) ? documents : [];
  const errors = list.flatMap((document) => document.errors);
  if (errors.length > 0) {
    const problems = errors.map((error): ConfigProblem => {
      const { line, col } = lines.linePos(error.pos[0]);
      return { path: "", message: `line ${line}, column ${col}: ${error.message}` };
    });
    throw new ConfigError(file, problems);
  }
  const values = list.map((document): unknown => document.toJS()).filter((value) => value !== null);
  if (values.length === 1) return values[0];
  const message =
    values.length === 0 ? `is empty: a ${KIND} is expected` : `holds ${values.length} documents: one is expected`;
  throw new ConfigError(file, [{ path: "", message }]);
}

/** A field without a value is a field that is not there. */
function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, field]) => field !== null);
  return Object.fromEntries(entries.map(([key, field]) => [key, withoutNulls(field)]));
}

function toProblem(issue: z.core.$ZodIssue, value: unknown): ConfigProblem {
  const path = issue.path.map((key) => (typeof key === "number" ? `[${key}]` : `.${String(key)}`)).join("");
  const message = issue.path.length === 0 ? `is no ${KIND}` : issue.message;
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

/** What no field can say alone. Read from the text's value, so that they are told along with everything else. */
function crossChecks(value: unknown): ConfigProblem[] {
  const problems: ConfigProblem[] = [];
  const mode = fieldAt(value, ["detectLocalMode"]);
  for (const [wants, field] of [
    ["BridgeInterface", "bridgeInterface"],
    ["InterfaceNamePrefix", "interfaceNamePrefix"],
  ] as const) {
    if (mode === wants && (fieldAt(value, ["detectLocal", field]) ?? "") === "") {
      problems.push({ path: `detectLocal.${field}`, message: `must be set in mode ${wants}` });
    }
  }
  const { shape } = configSchema.shape.nftables.unwrap();
  const minimum = shape.minSyncPeriod.safeParse(fieldAt(value, ["nftables", "minSyncPeriod"]));
  const period = shape.syncPeriod.safeParse(fieldAt(value, ["nftables", "syncPeriod"]));
  if (minimum.success && period.success && (minimum.data ?? 0) > (period.data || DEFAULT_SYNC_PERIOD_MS)) {
    problems.push({ path: "nftables.minSyncPeriod", message: "must not be longer than nftables.syncPeriod" });
  }
  return problems;
}

function warnUnknown(schema: z.ZodObject, value: unknown, prefix: string, warnings: string[]): void {
  if (typeof value !== "object" || value === null) return;
  const known = Object.keys(schema.shape);
  for (const [key, field] of Object.entries(value)) {
    const inner: unknown = Object.hasOwn(schema.shape, key) ? schema.shape[key] : undefined;
    if (inner === undefined) {
      const guess = closest(key, known);
      warnings.push(`${prefix}${key} is not a field of ${KIND}${guess ? `: did you mean ${prefix}${guess}?` : ""}`);
      continue;
    }
    const section = inner instanceof z.ZodOptional ? inner.unwrap() : inner;
    if (section instanceof z.ZodObject) warnUnknown(section, field, `${prefix}${key}.`, warnings);
  }
}

function toConfig(input: ConfigInput): ProxyConfig {
  const featureGates = Object.freeze({ ...input.featureGates });
  const nodePortAddresses = input.nodePortAddresses ?? [];
  const { clientConnection = {}, nftables = {}, conntrack = {} } = input;
  return Object.freeze({
    featureGates,
    allowExternalIPs: featureGates["AllowServiceExternalIPs"] ?? true,
    clientConnection: Object.freeze({
      kubeconfig: clientConnection.kubeconfig ?? "",
      acceptContentTypes: clientConnection.acceptContentTypes ?? "",
      contentType: clientConnection.contentType || "application/vnd.kubernetes.protobuf",
      qps: clientConnection.qps || 5,
      burst: clientConnection.burst || 10,
    }),
    master: "",
    logging: Object.freeze({
      format: input.logging?.format ?? "",
      flushFrequencyMs: 5000,
      verbosity: input.logging?.verbosity ?? 0,
      vmodule: "",
    }),
    hostnameOverride: (input.hostnameOverride ?? "").trim().toLowerCase(),
    bindAddress: input.bindAddress || "0.0.0.0",
    healthzBindAddress: input.healthzBindAddress || "0.0.0.0:10256",
    metricsBindAddress: input.metricsBindAddress || "127.0.0.1:10249",
    bindAddressHardFail: input.bindAddressHardFail ?? false,
    enableProfiling: input.enableProfiling ?? false,
    showHiddenMetricsForVersion: input.showHiddenMetricsForVersion ?? "",
    clusterCIDRs: Object.freeze([...(input.clusterCIDR ?? [])]),
    detectLocalMode: input.detectLocalMode || "ClusterCIDR",
    detectLocal: Object.freeze({
      bridgeInterface: input.detectLocal?.bridgeInterface ?? "",
      interfaceNamePrefix: input.detectLocal?.interfaceNamePrefix ?? "",
    }),
    nodePortAddresses: Object.freeze(nodePortAddresses.length > 0 ? [...nodePortAddresses] : ["primary"]),
    nftables: Object.freeze({
      masqueradeAll: nftables.masqueradeAll ?? false,
      masqueradeBit: nftables.masqueradeBit ?? DEFAULT_MASQUERADE_BIT,
      minSyncPeriodMs: nftables.minSyncPeriod ?? 0,
      // kube-proxy's default too stands for a period of zero.
      syncPeriodMs: nftables.syncPeriod || DEFAULT_SYNC_PERIOD_MS,
    }),
    oomScoreAdj: input.oomScoreAdj ?? -999,
    conntrack: Object.freeze({
      maxPerCore: conntrack.maxPerCore ?? 32_768,
      min: conntrack.min ?? 131_072,
      tcpEstablishedTimeoutMs: conntrack.tcpEstablishedTimeout ?? 86_400_000,
      tcpCloseWaitTimeoutMs: conntrack.tcpCloseWaitTimeout ?? 3_600_000,
      tcpBeLiberal: conntrack.tcpBeLiberal ?? false,
      udpTimeoutMs: conntrack.udpTimeout ?? 0,
      udpStreamTimeoutMs: conntrack.udpStreamTimeout ?? 0,
    }),
    configSyncPeriodMs: input.configSyncPeriod || 900_000,
  });
}
