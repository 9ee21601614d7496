/**
 * kube-proxy's metrics of node ports on loopback (Kubernetes 1.37, KEP-6032; alpha), registered if such ports are requested.
 * kube-proxy opens TCP listeners in its process, and rejects the other protocols. Here, rules do everything, so that no
 * listener can fail and no protocol is rejected.
 */
import { Counter, Gauge, type Registry } from "prom-client";
import type { IpFamily } from "../base/ip.js";
import type { FamilyRuleset } from "../ruleset/family-ruleset.js";
import { FAMILY_LABELS } from "./kube-proxy-metrics.js";

const PREFIX = "kubeproxy_nftables_localhost_nodeport_";

interface LocalhostFamily {
  readonly family: IpFamily;
  readonly ready: boolean;
  readonly ruleset: Pick<FamilyRuleset, "localhostNodePorts">;
}

export function registerLocalhostMetrics(registry: Registry, families: readonly LocalhostFamily[]): void {
  const registers = [registry];
  const listeners: Gauge<"ip_family"> = new Gauge({
    name: `${PREFIX}listeners`,
    help: "[ALPHA] Number of node ports reachable on loopback addresses, by protocol",
    labelNames: ["ip_family"],
    registers,
    collect: () => {
      for (const one of families)
        listeners.set(FAMILY_LABELS[one.family], one.ready ? one.ruleset.localhostNodePorts : 0);
    },
  });
  const failures = new Counter({
    name: `${PREFIX}listener_creation_failures_total`,
    help: "[ALPHA] Number of node ports that could not be listened on; always 0, because rules answer instead of sockets",
    labelNames: ["ip_family"],
    registers,
  });
  const rejected = new Counter({
    name: `${PREFIX}rejected_packets_total`,
    help: "[ALPHA] Number of packets rejected on localhost node ports for their protocol; always 0, because all protocols are served",
    labelNames: ["ip_family", "protocol"],
    registers,
  });
  for (const { family } of families) {
    failures.inc(FAMILY_LABELS[family], 0);
    for (const protocol of ["UDP", "SCTP"]) rejected.inc({ ...FAMILY_LABELS[family], protocol }, 0);
  }
}
