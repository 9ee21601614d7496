/** The effect of a service's annotations, for operators. */
import { type Balance } from "../../objects/balance.js";
import { slotsIn } from "../../model/balance/endpoint-balance.js";
import type { Limits } from "../../objects/connection-limits.js";
import type { IpFamily } from "../../base/ip.js";
import type { ServicePortView } from "../../model/service-port-view.js";
import type { BalanceStatus, LimitsStatus, ServicePortStatus } from "../../observe/status-report.js";

/** Settings of a service that its views lack, because views have only the result per endpoint. */
interface AskedFor {
  /** As in the annotations, whether or not it is active. */
  readonly balance?: Pick<Balance, "weights">;
  readonly drainSeconds: number;
}

/** Returns an empty object for a service without annotations, as nearly all are. */
export function annotationStatus(
  family: IpFamily,
  view: ServicePortView,
  asked: AskedFor | undefined,
): Pick<ServicePortStatus, "balance" | "limits" | "drainSeconds"> {
  const drainSeconds = asked?.drainSeconds ?? 0;
  return {
    balance: view.balance && balanceStatus(family, view, view.balance, asked),
    limits: view.limits && limitsStatus(view.limits),
    drainSeconds: drainSeconds || undefined,
  };
}

function balanceStatus(
  family: IpFamily,
  { clusterEndpoints, localEndpoints }: ServicePortView,
  balance: NonNullable<ServicePortView["balance"]>,
  asked: AskedFor | undefined,
): BalanceStatus {
  const weights = asked?.balance?.weights;
  const ofFamily = ([address]: readonly [string, number]): boolean => address.includes(":") === (family === "ip6");
  return {
    ...(balance.by === "chance" ? { mode: "random" } : { mode: "consistent", key: balance.by }),
    slots: Math.max(slotsIn(clusterEndpoints, balance), slotsIn(localEndpoints, balance)),
    weights: weights && {
      zones: Object.fromEntries(weights.zones),
      addresses: Object.fromEntries([...weights.addresses].filter(ofFamily)),
    },
  };
}

function limitsStatus({ connections, clientConnections, rate, action }: Limits): LimitsStatus {
  return {
    maxConnections: connections || undefined,
    maxConnectionsPerClient: clientConnections || undefined,
    ratePerClient: rate && { ...rate },
    overLimit: action,
  };
}
