/** Problems that parts of the daemon report for `status`. Nothing is stored; parts are asked on request. */
import { durationText } from "../base/duration-text.js";
import type { ApiStatus, StatusProblem } from "../observe/status-report.js";
import type { Flowtable } from "../flowtable/flowtable.js";
import type { LeftoverRemoval } from "../migration/leftovers/leftover-removal.js";
import { remedyFor } from "../migration/leftovers/returned-rules.js";
import type { NodeGate } from "../node/node-gate.js";
import type { HttpServer } from "../observe/http-server.js";
import type { ServiceHealth } from "../observe/service-health.js";
import type { ManifestSource } from "../objects/manifests/manifest-source.js";
import { FAMILY_NAMES } from "../base/ip-families.js";
import type { IpFamily } from "../base/ip.js";
import type { RefusalReadings } from "../proxier/refusal-readings.js";
import { few, LOG_LISTS } from "../observe/few-problems.js";
import type { Cluster } from "./cluster.js";

export function apiProblems({ source, server }: Cluster): StatusProblem[] {
  const then = source.complete
    ? "The last known state stays active"
    : "Until its objects are read, no rules are written, and the kernel keeps those of an earlier run";
  return source.health.failures.map(({ message, reason, hint, ms }) => {
    const what = `${message} (${server}, for ${durationText(ms)}): ${reason}`;
    return { what, remedy: hint ?? `check that the API server is up, and that this node reaches it. ${then}` };
  });
}

/** Why the Node has not been read since startup. Undefined if it has, or does not exist. */
export function nodeUnread({ source, server }: Cluster): string | undefined {
  if (source.isListed("Node")) return undefined;
  if (source.health.silentMs === undefined) return `the API server ${server} has not answered`;
  return `the API server ${server} has not listed it; the log has the reason`;
}

export function apiStatus({ source, server }: Cluster): ApiStatus {
  const { failures, silentMs } = source.health;
  const connected = failures.length === 0 && silentMs !== undefined;
  return { server, connected, ...(silentMs !== undefined && { silentMs: Math.round(silentMs) }) };
}

/** As of the last reading. */
export function refusalProblems(readings: Pick<RefusalReadings, "of">, families: readonly IpFamily[]): StatusProblem[] {
  return families
    .filter((family) => readings.of(family).isFull)
    .map((family) => ({
      what: `too many ${FAMILY_NAMES[family]} addresses were refused connections to count all, so refused connections and failing services may be missing here`,
      remedy: `run \`nft list set ${family} kube-proxy refusals\`, and the same for icmp-errors, to see the addresses; old counts are deleted`,
    }));
}

export function manifestProblems(source: Pick<ManifestSource, "problems">): readonly StatusProblem[] {
  const problems = source.problems().map(({ file, line, column, reason, remedy, served, unknown }): StatusProblem => {
    const place = [file, line, column].filter((part) => part !== undefined).join(":");
    const of = unknown === undefined ? "" : `${unknown.object}: ${unknown.field}: `;
    const stays = served === "last" ? "; its last good version is served" : "";
    return {
      what: `manifest ${place}: ${of}${reason}${stays}`,
      remedy: remedy ?? "correct it; `nft-proxier validate` shows all problems",
    };
  });
  return few(
    problems,
    ["manifest has a problem", "manifests have problems"],
    "`nft-proxier validate` shows all problems",
  );
}

export function nodeProblems(gate: Pick<NodeGate, "missing" | "waiting" | "node">, nodeName: string): StatusProblem[] {
  const { missing, waiting, node } = gate;
  if (missing === undefined) return [];
  const what = missing === "addresses" ? "address" : "podCIDRs";
  const lacks = { unread: "has not been read yet", absent: "does not exist", present: `has no ${what}` }[node];
  const then = waiting ? "no rules are written yet" : "node ports are reachable on all local addresses";
  const remedy =
    node === "unread"
      ? "check the permission to list Nodes (ClusterRole system:node-proxier)"
      : missing === "addresses"
        ? "check `--hostname-override`, or set bindAddress"
        : "check the controller that allocates podCIDRs";
  return [
    {
      what: `Node ${nodeName} ${lacks}, so ${then}`,
      remedy: `run \`kubectl get node ${nodeName} -o wide\`; ${remedy}`,
    },
  ];
}

export function listenerProblems(listeners: readonly Pick<HttpServer, "failure">[]): StatusProblem[] {
  return listeners.flatMap(({ failure }) =>
    failure === undefined
      ? []
      : [{ what: failure, remedy: "run `ss -ltnp` to find the program that uses it, and end it; retried every 5s" }],
  );
}

export function healthCheckProblems(health: Pick<ServiceHealth, "failures">): readonly StatusProblem[] {
  const problems = Array.from(health.failures(), ({ service, reason }) => ({
    what: `health check of ${service}: ${reason}`,
    concerns: [{ service }],
    remedy:
      "run `ss -ltnp` to find the program that uses the port, and end it; retried. Until then, load balancers treat this node as one without endpoints of the service",
  }));
  return few(problems, ["health check has a problem", "health checks have problems"], LOG_LISTS);
}

export function leftoverProblems({ returned }: Pick<LeftoverRemoval, "returned">): StatusProblem[] {
  if (returned.length === 0) return [];
  const what = `kube-proxy's iptables mode has rules beside ours (${returned.join(", ")}), so kube-proxy runs on this node, or ended after nft-proxier started`;
  return [{ what, remedy: remedyFor(returned) }];
}

export function flowtableProblems(flowtable: Pick<Flowtable, "unsupported" | "failures">): readonly StatusProblem[] {
  const stay = "connections use the rules";
  const { unsupported } = flowtable;
  if (unsupported !== undefined)
    return [
      {
        what: `no flowtable: ${unsupported}`,
        remedy: `remove \`--flowtable\`, or use a kernel with flowtables. Until then, ${stay}`,
      },
    ];
  const problems = flowtable.failures().map((what) => ({
    what: `flowtable: ${what}`,
    remedy: `remove the interface from \`--flowtable\`, if its driver has no flowtables; retried. Until then, ${stay}`,
  }));
  return few(
    problems,
    ["interface of the flowtable has a problem", "interfaces of the flowtable have problems"],
    LOG_LISTS,
  );
}
