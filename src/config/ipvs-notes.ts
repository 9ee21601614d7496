/** Describes how settings of kube-proxy's IPVS mode are treated here, for the log at the start and for `preflight`. */
import { formatDuration } from "./duration.js";
import type { ConfigInput } from "./schema.js";

/** Name of a field as the user wrote it: its path in a file, or its flag. */
export type FieldNames = (path: string) => string;

/** The `ipvs` section as written. */
type IpvsSection = NonNullable<ConfigInput["ipvs"]>;

const UNAWARE = "the kernel selects an endpoint without knowing its number of connections";
const SAME_CLIENT = "the Service annotation `nft-proxier.dev/balance: consistent`";
const WEIGHTS = "the Service annotation `nft-proxier.dev/weights`";
const BY_DESTINATION = `it chooses by the service's address, so all clients of a service share an endpoint. The nearest equivalent is ${SAME_CLIENT}, which chooses by the client's address`;

/**
 * How each scheduler of Linux (net/netfilter/ipvs) is treated: its equivalent here, or why it is unavailable, and the nearest
 * equivalent.
 */
const SCHEDULERS: Readonly<Record<string, string>> = {
  rr: "each connection goes to a random endpoint, all with the same probability",
  wrr: `each connection goes to a random endpoint, all with the same probability, as with the weight 1 that kube-proxy gives each. ${WEIGHTS} sets other weights`,
  sh: `not the default. ${SAME_CLIENT} keeps each client address at the same endpoint`,
  mh: `not the default. ${SAME_CLIENT} keeps each client address at the same endpoint, and moves few clients when endpoints change`,
  lc: `not available: ${UNAWARE}. The nearest equivalent is the default, a random endpoint`,
  wlc: `not available: ${UNAWARE}. The nearest equivalent is the default, a random endpoint, with weights from ${WEIGHTS}`,
  sed: `not available: ${UNAWARE}. The nearest equivalent is the default, a random endpoint, with weights from ${WEIGHTS}`,
  nq: `not available: ${UNAWARE}. The nearest equivalent is the default, a random endpoint`,
  twos: `not available: ${UNAWARE}. The nearest equivalent is the default, a random endpoint`,
  lblc: `not available: ${UNAWARE}, and ${BY_DESTINATION}`,
  lblcr: `not available: ${UNAWARE}, and ${BY_DESTINATION}`,
  dh: `not available: ${BY_DESTINATION}`,
  fo: `not available: no endpoint waits for another to fail, and kube-proxy gives all the same weight. The nearest equivalent is ${WEIGHTS}, with 0 for endpoints that should get no connections`,
  ovf: `not available: ${UNAWARE}, so no endpoint can overflow. The nearest equivalent is ${WEIGHTS}`,
};

export const IPVS_SCHEDULERS: readonly string[] = Object.keys(SCHEDULERS);

/** How a scheduler is treated; the text follows its name and a colon. */
export function schedulerNote(scheduler: string): string {
  const known = Object.hasOwn(SCHEDULERS, scheduler) ? SCHEDULERS[scheduler] : undefined;
  return known ?? "unknown scheduler; each connection goes to a random endpoint, all with the same probability";
}

/**
 * Complete sentences, one per setting that matters. kubeadm writes all of them, most with their default values. @param
 * name returns the name of a field as the user wrote it.
 */
export function ipvsNotes(ipvs: IpvsSection | undefined, name: FieldNames = (path) => path): string[] {
  if (ipvs === undefined) return [];
  const { scheduler = "", excludeCIDRs = [], strictARP = false } = ipvs;
  const notes: string[] = [];
  if (scheduler !== "") notes.push(`${name("ipvs.scheduler")} ${scheduler}: ${schedulerNote(scheduler)}`);
  if (excludeCIDRs.length > 0) {
    notes.push(
      `${name("ipvs.excludeCIDRs")}: virtual servers in ${excludeCIDRs.join(", ")} are kept when those of kube-proxy's IPVS mode are removed`,
    );
  }
  if (strictARP) {
    notes.push(
      `${name("ipvs.strictARP")} is not needed: no interface has a VIP, so no ARP request for one is answered. ` +
        "net.ipv4.conf.all.arp_ignore and arp_announce keep the values that kube-proxy set (1 and 2; the kernel's defaults are 0)",
    );
  }
  return [...notes, ...timeoutNotes(ipvs, name), ...periodNotes(ipvs, name)];
}

function timeoutNotes(ipvs: IpvsSection, name: FieldNames): string[] {
  const told: readonly (readonly ["tcpTimeout" | "tcpFinTimeout" | "udpTimeout", string])[] = [
    [
      "tcpTimeout",
      `${name("conntrack.tcpEstablishedTimeout")} replaces it, and sets how long an idle connection is tracked (24h if not set)`,
    ],
    [
      "tcpFinTimeout",
      `${name("conntrack.tcpCloseWaitTimeout")} replaces it for connections that one end has closed (1h if not set). ` +
        "No setting changes net.netfilter.nf_conntrack_tcp_timeout_fin_wait and _time_wait, which are 120s",
    ],
    [
      "udpTimeout",
      `${name("conntrack.udpTimeout")} replaces it, and ${name("conntrack.udpStreamTimeout")} after the first answer`,
    ],
  ];
  return told.flatMap(([field, what]) => {
    const value = ipvs[field] ?? 0;
    return value === 0
      ? []
      : [`${name(`ipvs.${field}`)} is ${formatDuration(value)}, but applies to IPVS only: ${what}`];
  });
}

/** kube-proxy's default, ms. */
const SYNC_PERIOD_MS = 30_000;

function periodNotes({ syncPeriod = 0, minSyncPeriod = 0 }: IpvsSection, name: FieldNames): string[] {
  const told = (field: "syncPeriod" | "minSyncPeriod", value: number): string =>
    `${name(`ipvs.${field}`)} is ${formatDuration(value)}, but applies to another mode: ${name(`nftables.${field}`)} replaces it`;
  return [
    ...(syncPeriod !== 0 && syncPeriod !== SYNC_PERIOD_MS ? [told("syncPeriod", syncPeriod)] : []),
    ...(minSyncPeriod === 0 ? [] : [told("minSyncPeriod", minSyncPeriod)]),
  ];
}
