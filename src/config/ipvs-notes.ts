/** Describes how settings of kube-proxy's IPVS mode are treated here, for the log at the start and for `preflight`. */
import { formatDuration } from "./duration.js";
import type { ConfigInput } from "./schema.js";

/** Name of a field as the user wrote it: its path in a file, or its flag. */
export type FieldNames = (path: string) => string;

/** The `ipvs` section as written. */
export type IpvsSection = NonNullable<ConfigInput["ipvs"]>;

const UNAWARE = "the kernel draws an endpoint without knowing how many connections each has";
const SAME_CLIENT = "the annotation nft-proxier.dev/balance: consistent of a Service";
const WEIGHTS = "the annotation nft-proxier.dev/weights of a Service";
const BY_DESTINATION = `it chooses by the service's address, so that all clients of a service share an endpoint; nearest is ${SAME_CLIENT}, by the client's address`;

/**
 * How each scheduler of Linux (net/netfilter/ipvs) is treated: its equivalent here, or why it is unavailable and what comes
 * nearest.
 */
const SCHEDULERS: Readonly<Record<string, string>> = {
  rr: "each connection draws one of the endpoints at random, all alike",
  wrr: `each connection draws one of the endpoints at random, all alike, as with the weight 1 that kube-proxy gives each; ${WEIGHTS} gives others`,
  sh: `not by default: ${SAME_CLIENT} gives a client's address the same endpoint`,
  mh: `not by default: ${SAME_CLIENT} gives a client's address the same endpoint, with few clients moved when endpoints change`,
  lc: `not available: ${UNAWARE}; nearest is what is done, a draw at random`,
  wlc: `not available: ${UNAWARE}; nearest is what is done, a draw at random, with weights by ${WEIGHTS}`,
  sed: `not available: ${UNAWARE}; nearest is what is done, a draw at random, with weights by ${WEIGHTS}`,
  nq: `not available: ${UNAWARE}; nearest is what is done, a draw at random`,
  twos: `not available: ${UNAWARE}; nearest is what is done, a draw at random`,
  lblc: `not available: ${UNAWARE}, and ${BY_DESTINATION}`,
  lblcr: `not available: ${UNAWARE}, and ${BY_DESTINATION}`,
  dh: `not available: ${BY_DESTINATION}`,
  fo: `not available: no endpoint waits for another to fail, and kube-proxy gives all the same weight; nearest is ${WEIGHTS}, with 0 for those that are to get nothing`,
  ovf: `not available: ${UNAWARE}, so that none can overflow; nearest is ${WEIGHTS}`,
};

export const IPVS_SCHEDULERS: readonly string[] = Object.keys(SCHEDULERS);

/** How a scheduler is treated; the text follows its name and a colon. */
export function schedulerNote(scheduler: string): string {
  const known = Object.hasOwn(SCHEDULERS, scheduler) ? SCHEDULERS[scheduler] : undefined;
  return known ?? "not known; each connection draws one of the endpoints at random, all alike";
}

/**
 * Complete sentences, one for each setting that matters. kubeadm writes all of them, most with their default values. @param
 * name returns the name of a field as the user wrote it.
 */
export function ipvsNotes(ipvs: IpvsSection | undefined, name: FieldNames = (path) => path): string[] {
  if (ipvs === undefined) return [];
  const { scheduler = "", excludeCIDRs = [], strictARP = false } = ipvs;
  const notes: string[] = [];
  if (scheduler !== "") notes.push(`${name("ipvs.scheduler")} ${scheduler}: ${schedulerNote(scheduler)}`);
  if (excludeCIDRs.length > 0) {
    notes.push(
      `${name("ipvs.excludeCIDRs")}: virtual servers in ${excludeCIDRs.join(", ")} stay when those of kube-proxy's IPVS mode are removed`,
    );
  }
  if (strictARP) {
    notes.push(
      `${name("ipvs.strictARP")} is not needed: VIPs are on no interface, so that no ARP request for one is answered; ` +
        "net.ipv4.conf.all.arp_ignore and arp_announce stay as kube-proxy set them (1 and 2; 0 is the kernel's own)",
    );
  }
  return [...notes, ...timeoutNotes(ipvs, name), ...periodNotes(ipvs, name)];
}

function timeoutNotes(ipvs: IpvsSection, name: FieldNames): string[] {
  const told: readonly (readonly ["tcpTimeout" | "tcpFinTimeout" | "udpTimeout", string])[] = [
    [
      "tcpTimeout",
      `${name("conntrack.tcpEstablishedTimeout")} does it: how long an idle connection is tracked (24h if not set)`,
    ],
    [
      "tcpFinTimeout",
      `${name("conntrack.tcpCloseWaitTimeout")} does it where one end has closed (1h if not set); ` +
        "net.netfilter.nf_conntrack_tcp_timeout_fin_wait and _time_wait, which no setting changes, are 120 s",
    ],
    [
      "udpTimeout",
      `${name("conntrack.udpTimeout")} does it, and ${name("conntrack.udpStreamTimeout")} once there were answers`,
    ],
  ];
  return told.flatMap(([field, what]) => {
    const value = ipvs[field] ?? 0;
    return value === 0 ? [] : [`${name(`ipvs.${field}`)} is ${formatDuration(value)}, and is IPVS's: ${what}`];
  });
}

/** kube-proxy's default, ms. */
const SYNC_PERIOD_MS = 30_000;

function periodNotes({ syncPeriod = 0, minSyncPeriod = 0 }: IpvsSection, name: FieldNames): string[] {
  const told = (field: "syncPeriod" | "minSyncPeriod", value: number): string =>
    `${name(`ipvs.${field}`)} is ${formatDuration(value)}, and is another mode's: ${name(`nftables.${field}`)} does it`;
  return [
    ...(syncPeriod !== 0 && syncPeriod !== SYNC_PERIOD_MS ? [told("syncPeriod", syncPeriod)] : []),
    ...(minSyncPeriod === 0 ? [] : [told("minSyncPeriod", minSyncPeriod)]),
  ];
}
