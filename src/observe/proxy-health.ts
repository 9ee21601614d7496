/** Results of /livez, /healthz (kube-proxy: pkg/proxy/healthcheck/proxy_health.go) and /readyz. */
import type { NodeRecord } from "../objects/records.js";
import { FAMILY_NAMES, IP_FAMILIES } from "../base/ip-families.js";
import type { IpFamily } from "../base/ip.js";
import type { ProxierObserver, SyncReport } from "../proxier/observer.js";
import type { Clock } from "../nft/engine-exports.js";
import type { ProbeCode } from "./metrics.js";

/** Set by the cluster autoscaler on a node that it is about to remove. */
const TO_BE_DELETED_TAINT = "ToBeDeletedByClusterAutoscaler";

interface ProxyHealthOptions {
  /** The served families. */
  readonly families: readonly IpFamily[];
  /** Time after which a waiting change makes us unhealthy, ms: twice the sync period. */
  readonly timeoutMs: number;
  /** Name of the Node object that must exist. Undefined if there is no API server that could have it. */
  readonly nodeName: string | undefined;
  /** Monotonic, because setting the time of day must not affect how long a change has waited. */
  readonly clock: Clock;
  /** Unix ms, for display; default: the system's clock. */
  readonly now?: () => number;
}

export interface ProbeReply {
  readonly code: ProbeCode;
  /** JSON without a trailing line feed. */
  readonly body: string;
}

/** Times are in ms of the monotonic clock unless stated otherwise. */
interface FamilyState {
  /** Arrival of the oldest change that no write includes yet. */
  waiting: number | undefined;
  /** Arrival of the oldest change that a write includes and the kernel has not accepted yet. */
  underWay: number | undefined;
  /** When another process changed the table; undefined once that has been reverted. */
  drifted: number | undefined;
  /** State of the first write since startup: not tried yet, rejected by the kernel, or done. */
  first: "waits" | "refused" | "done";
  /** Unix ms. */
  lastUpdated: number;
}

/** Whether the kernel keeps up with the changes in each family, and whether this node should get traffic at all. */
export class ProxyHealth implements ProxierObserver {
  /**
   * Whether a service has an address of the family. If none has, no packet needs its rules. So if the kernel has never accepted them, the
   * node still serves everything, and only `status` reports the refusal.
   */
  serves: (family: IpFamily) => boolean = () => true;
  readonly #timeoutMs: number;
  readonly #nodeName: string | undefined;
  readonly #clock: Clock;
  readonly #now: () => number;
  readonly #states = new Map<IpFamily, FamilyState>();
  #node: NodeRecord | undefined;
  #nodeUnread: () => string | undefined = () => "the program is starting";

  constructor(options: ProxyHealthOptions) {
    this.#timeoutMs = options.timeoutMs;
    this.#nodeName = options.nodeName;
    this.#clock = options.clock;
    this.#now = options.now ?? Date.now;
    // The start counts as an update: without a change, nothing may ever need to be written.
    for (const family of options.families) {
      this.#states.set(family, {
        waiting: undefined,
        underWay: undefined,
        drifted: undefined,
        first: "waits",
        lastUpdated: this.#now(),
      });
    }
  }

  /** @param ask why this node's Node object has not been read yet; undefined if it has, or is known not to exist. */
  set nodeUnread(ask: () => string | undefined) {
    this.#nodeUnread = ask;
  }

  /** Called with each version of this node's own Node object. */
  node(node: NodeRecord): void {
    this.#node = node;
  }

  queued(): void {
    const now = this.#clock.now();
    for (const state of this.#states.values()) state.waiting ??= now;
  }

  taken(): void {
    for (const state of this.#states.values()) {
      state.underWay ??= state.waiting;
      state.waiting = undefined;
    }
  }

  /** Until the repair, packets do not meet the rules that we wrote. This counts like a waiting change. */
  drifted(family: IpFamily): void {
    const state = this.#states.get(family);
    if (state !== undefined) state.drifted ??= this.#clock.now();
  }

  synced({ family, ok, settled, oldestMs, repairPending = false }: SyncReport): void {
    const state = this.#states.get(family);
    if (state === undefined) return;
    if (state.first !== "done") state.first = ok ? "done" : "refused";
    if (!ok) return;
    state.lastUpdated = this.#now();
    if (settled) state.underWay = undefined;
    else if (oldestMs !== undefined) state.underWay = this.#clock.now() - oldestMs;
    if (!repairPending) state.drifted = undefined;
  }

  /** Age of the oldest pending change or repair, ms; 0 if none is pending. */
  pendingMs(family: IpFamily): number {
    const state = this.#states.get(family);
    const since = Math.min(state?.underWay ?? state?.waiting ?? Infinity, state?.drifted ?? Infinity);
    return since === Infinity ? 0 : this.#clock.now() - since;
  }

  get healthy(): boolean {
    for (const family of this.#states.keys()) if (!this.#inTime(family)) return false;
    return true;
  }

  /**
   * Why the node should get no traffic, and what to do. Its Node was not read yet, does not exist or is being deleted, or the
   * autoscaler is about to remove it. Returns undefined if it should get traffic, which is always so without a cluster.
   */
  get nodeIneligible(): readonly [reason: string, remedy: string] | undefined {
    const name = this.#nodeName;
    const node = this.#node;
    if (name === undefined) return undefined;
    if (node === undefined) {
      const unread = this.#nodeUnread();
      if (unread !== undefined) {
        return [`Node ${name} has not been read yet: ${unread}`, "check the connection to the API server, and the log"];
      }
      const hint = "Check `--hostname-override`, and the permission to read Nodes";
      return [`No Node object named ${name} was found. ${hint}`, "run `kubectl get nodes` to see their names"];
    }
    if (node.deleted) {
      return [`Node ${name} is being deleted`, "if it is to stay, restart the kubelet when the Node is gone"];
    }
    if (!node.taints.includes(TO_BE_DELETED_TAINT)) return undefined;
    const remedy = `if it is to stay, run \`kubectl taint node ${name} ${TO_BE_DELETED_TAINT}-\``;
    return [`Node ${name} has the taint ${TO_BE_DELETED_TAINT}`, remedy];
  }

  livez(): ProbeReply {
    return this.#reply(this.healthy, {});
  }

  /** Whether the rules are active: the first write since startup is done for every family. /livez reports later failures. */
  readyz(): ProbeReply {
    const reason = this.#unreadyReason;
    return { code: reason === undefined ? 200 : 503, body: JSON.stringify({ ready: reason === undefined, reason }) };
  }

  healthz(): ProbeReply {
    const nodeIneligibleReason = this.nodeIneligible?.[0];
    const nodeEligible = nodeIneligibleReason === undefined;
    // JSON drops undefined fields; kube-proxy has no reason in this answer.
    return this.#reply(this.healthy && nodeEligible, { nodeEligible, nodeIneligibleReason });
  }

  get #unreadyReason(): string | undefined {
    const families = (first: FamilyState["first"]): string => {
      const those = [...this.#states].filter(([family, state]) => state.first === first && !this.#isUnused(family));
      return those.map(([family]) => FAMILY_NAMES[family]).join(" and ");
    };
    const [refused, waiting] = [families("refused"), families("waits")];
    if (refused !== "") return `the kernel refuses the ${refused} rules; the log has the error`;
    if (waiting === "") return undefined;
    const unseen = this.#node === undefined ? this.nodeIneligible?.[0] : undefined;
    return `no ${waiting} rules have been written since startup. ${unseen ?? "Run `nft-proxier status` to see what is missing"}`;
  }

  #inTime(family: IpFamily): boolean {
    return this.pendingMs(family) < this.#timeoutMs || this.#isUnused(family);
  }

  /** Whether the kernel has refused all rules of the family, and no service needs them. */
  #isUnused(family: IpFamily): boolean {
    return this.#states.get(family)?.first === "refused" && !this.serves(family);
  }

  /** The fields are in kube-proxy's order. */
  #reply(good: boolean, node: Readonly<Record<string, unknown>>): ProbeReply {
    const now = this.#now();
    const families = IP_FAMILIES.flatMap((family) => {
      const state = this.#states.get(family);
      return state === undefined ? [] : { family, state, healthy: this.#inTime(family) };
    });
    const lastUpdated = Math.max(...families.map(({ state }) => state.lastUpdated));
    const body = {
      // Older load balancers take this as the time of the last sign of life, so it is "now" if all is well.
      lastUpdated: rfc3339(good ? now : lastUpdated),
      currentTime: rfc3339(now),
      ...node,
      // Covers only the proxier, even if the node's eligibility makes the status 503.
      healthy: this.healthy,
      status: Object.fromEntries(
        families.map(({ family, state, healthy }) => [
          FAMILY_NAMES[family],
          { lastUpdated: rfc3339(state.lastUpdated), healthy },
        ]),
      ),
    };
    return { code: good ? 200 : 503, body: JSON.stringify(body) };
  }
}

/** Formats Unix ms as Go writes a time in JSON (RFC3339Nano): the fraction has no trailing zeros, and is absent if it is 0. */
export function rfc3339(ms: number): string {
  return new Date(ms).toISOString().replace(/\.?0*Z$/, "Z");
}
