/**
 * kube-proxy's metrics of node ports on loopback (Kubernetes 1.37, KEP-6032; alpha), registered if such ports are requested.
 * kube-proxy opens TCP listeners in its process, and rejects the other protocols. Here, rules do everything, so that no
 * listener can fail and no protocol is rejected.
 */
import type { Registry } from "prom-client";
import type { IpFamily } from "../base/ip.js";
import type { FamilyRuleset } from "../ruleset/family-ruleset.js";
import { FAMILY_LABELS, MetricMaker } from "./metric-maker.js";

const PREFIX = "kubeproxy_nftables_localhost_nodeport_";

interface LocalhostFamily {
  readonly family: IpFamily;
  readonly ready: boolean;
  readonly ruleset: Pick<FamilyRuleset, "localhostNodePorts">;
}

export function registerLocalhostMetrics(registry: Registry, families: readonly LocalhostFamily[]): void {
  const make = new MetricMaker(
    registry,
    families.map(({ family }) => family),
    "[ALPHA] ",
  );
  make.familyGauge(
    `${PREFIX}listeners`,
    "Number of node ports reachable on loopback addresses, by protocol",
    (asked) => families.find(({ family, ready }) => ready && family === asked)?.ruleset.localhostNodePorts ?? 0,
  );
  make.familyCounter(
    `${PREFIX}listener_creation_failures_total`,
    "Number of node ports that could not be listened on; always 0, because rules answer instead of sockets",
  );
  const rejected = make.counter(
    `${PREFIX}rejected_packets_total`,
    "Number of packets rejected on localhost node ports for their protocol; always 0, because all protocols are served",
    ["ip_family", "protocol"],
  );
  for (const { family } of families)
    for (const protocol of ["UDP", "SCTP"]) rejected.inc({ ...FAMILY_LABELS[family], protocol }, 0);
}
