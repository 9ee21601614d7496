/**
 * The fields of kubeproxy.config.k8s.io/v1alpha1 (k8s.io/kube-proxy/config/v1alpha1/types.go and the
 * k8s.io/component-base types that it embeds), with what each may hold. Objects are loose: a field that is not listed
 * is a warning, not an error.
 */
import { z } from "zod";
import { parseAddress, parseCIDR } from "../model/address.js";
import { parseDuration } from "./duration.js";

export const API_VERSION = "kubeproxy.config.k8s.io/v1alpha1";
export const KIND = "KubeProxyConfiguration";

const string = z.string("must be a string");
const boolean = z.boolean("must be true or false");
const integer = z.int("must be a whole number");
const count = integer.min(0, "must not be negative");

/** Milliseconds. */
const duration = string.transform((text, context) => {
  const ms = parseDuration(text);
  if (ms !== undefined) return ms;
  context.issues.push({
    code: "custom",
    input: text,
    message: `${JSON.stringify(text)} is not a duration such as "30s" or "1m30s"`,
  });
  return z.NEVER;
});

const period = duration.refine((ms) => ms >= 0, "must not be negative");

const masqueradeBit = integer.min(0, "must be from 0 to 31").max(31, "must be from 0 to 31");

/** Canonical; "" as it is. */
const address = string.transform((text, context) => {
  const canonical = text === "" ? "" : parseAddress(text);
  if (canonical !== undefined) return canonical;
  context.issues.push({ code: "custom", input: text, message: `${JSON.stringify(text)} is not an IP address` });
  return z.NEVER;
});

/** Canonical. */
const cidr = string.transform((text, context) => {
  const prefix = parseCIDR(text.trim());
  if (prefix !== undefined) return prefix.text;
  context.issues.push({ code: "custom", input: text, message: `${JSON.stringify(text)} is not a CIDR` });
  return z.NEVER;
});

const isPort = (text: string) => /^\d{1,5}$/.test(text) && Number(text) <= 65535;

/** "", or "IP:port" with the IP optional and an IPv6 one in brackets; kube-proxy also takes an IP alone. */
const endpoint = string.refine((text) => {
  if (text === "" || parseAddress(text) !== undefined) return true;
  const parts = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d+)$/.exec(text);
  const host = parts?.[1] ?? parts?.[2] ?? "";
  return parts !== null && isPort(parts[3] ?? "") && (host === "" || parseAddress(host) !== undefined);
}, "must be an address and port such as 0.0.0.0:10256");

/** Canonical CIDRs of a comma-separated list, at most one of each family. */
const cidrPerFamily = string.transform((text, context) => {
  if (text.trim() === "") return [];
  const found: string[] = [];
  for (const part of text.split(",")) {
    const prefix = parseCIDR(part.trim());
    const clash = prefix && found.some((other) => other.includes(":") === (prefix.family === "ip6"));
    const written = JSON.stringify(part.trim());
    if (prefix === undefined || clash === true) {
      const message = prefix ? `${written} is a second CIDR of its family` : `${written} is not a CIDR`;
      context.issues.push({ code: "custom", input: text, message });
    } else {
      found.push(prefix.text);
    }
  }
  return found;
});

const nodePortAddresses = z
  .array(z.union([z.literal("primary"), cidr], { error: 'must be a CIDR, or "primary"' }), "must be a list")
  .refine(
    (list) => list.length < 2 || !list.includes("primary"),
    '"primary" stands alone: it cannot be combined with CIDRs',
  );

/** Interface names are shorter than IFNAMSIZ (16, linux/if.h) and hold no slash or white space. */
const interfaceName = string.regex(/^[^\s/]{0,15}$/, "must be an interface name of at most 15 characters");

const logOptions = z
  .looseObject({ splitStream: boolean.optional(), infoBufferSize: z.unknown().optional() })
  .optional();

export const configSchema = z.looseObject({
  apiVersion: z.literal(API_VERSION, `must be ${API_VERSION}`),
  kind: z.literal(KIND, `must be ${KIND}`),
  featureGates: z.record(z.string(), boolean, "must be an object of true or false").optional(),
  clientConnection: z
    .looseObject(
      {
        kubeconfig: string.optional(),
        acceptContentTypes: string.optional(),
        contentType: string.optional(),
        qps: z.number("must be a number").optional(),
        burst: integer.optional(),
      },
      "must be an object",
    )
    .optional(),
  logging: z
    .looseObject(
      {
        format: z.literal(["", "text", "json"], "must be text or json").optional(),
        flushFrequency: z
          .union([integer, duration], { error: "must be a duration, or a number of nanoseconds" })
          .optional(),
        verbosity: count.optional(),
        vmodule: z.unknown().optional(),
        options: z.looseObject({ text: logOptions, json: logOptions }, "must be an object").optional(),
      },
      "must be an object",
    )
    .optional(),
  hostnameOverride: string.optional(),
  bindAddress: address.optional(),
  healthzBindAddress: endpoint.optional(),
  metricsBindAddress: endpoint.optional(),
  bindAddressHardFail: boolean.optional(),
  enableProfiling: boolean.optional(),
  showHiddenMetricsForVersion: string.optional(),
  mode: z
    .literal(["", "nftables"], {
      error: (issue) => `${JSON.stringify(issue.input)} is another proxier's: set mode to "nftables", or leave it out`,
    })
    .optional(),
  iptables: z
    .looseObject(
      {
        masqueradeBit: masqueradeBit.optional(),
        masqueradeAll: boolean.optional(),
        localhostNodePorts: boolean.optional(),
        syncPeriod: period.optional(),
        minSyncPeriod: period.optional(),
      },
      "must be an object",
    )
    .optional(),
  ipvs: z
    .looseObject(
      {
        syncPeriod: period.optional(),
        minSyncPeriod: period.optional(),
        scheduler: string.optional(),
        excludeCIDRs: z.array(string, "must be a list").optional(),
        strictARP: boolean.optional(),
        tcpTimeout: period.optional(),
        tcpFinTimeout: period.optional(),
        udpTimeout: period.optional(),
      },
      "must be an object",
    )
    .optional(),
  nftables: z
    .looseObject(
      {
        masqueradeBit: masqueradeBit.optional(),
        masqueradeAll: boolean.optional(),
        syncPeriod: period.optional(),
        minSyncPeriod: period.optional(),
      },
      "must be an object",
    )
    .optional(),
  winkernel: z
    .looseObject(
      {
        networkName: string.optional(),
        sourceVip: string.optional(),
        enableDSR: boolean.optional(),
        rootHnsEndpointName: string.optional(),
        forwardHealthCheckVip: boolean.optional(),
      },
      "must be an object",
    )
    .optional(),
  detectLocalMode: z
    .literal(
      ["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"],
      "must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
    )
    .optional(),
  detectLocal: z
    .looseObject(
      { bridgeInterface: interfaceName.optional(), interfaceNamePrefix: interfaceName.optional() },
      "must be an object",
    )
    .optional(),
  clusterCIDR: cidrPerFamily.optional(),
  nodePortAddresses: nodePortAddresses.optional(),
  oomScoreAdj: integer.min(-1000, "must be from -1000 to 1000").max(1000, "must be from -1000 to 1000").optional(),
  conntrack: z
    .looseObject(
      {
        maxPerCore: count.optional(),
        min: count.optional(),
        tcpEstablishedTimeout: period.optional(),
        tcpCloseWaitTimeout: period.optional(),
        tcpBeLiberal: boolean.optional(),
        udpTimeout: period.optional(),
        udpStreamTimeout: period.optional(),
      },
      "must be an object",
    )
    .optional(),
  configSyncPeriod: period.optional(),
  portRange: string.optional(),
  windowsRunAsService: boolean.optional(),
});

export type ConfigInput = z.output<typeof configSchema>;
