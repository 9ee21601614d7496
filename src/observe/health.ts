/** Answers of /livez, /healthz (kube-proxy: pkg/proxy/healthcheck/proxy_health.go) and /readyz. */
import type { V1Node } from "@kubernetes/client-node";
import { FAMILY_NAMES, IP_FAMILIES } from "../base/ip-families.js";
import type { IpFamily } from "../base/ip.js";
import type { ProxierObserver, SyncReport } from "../proxier/observer.js";
import type { Clock } from "../table/table-exports.js";
import type { ProbeCode } from "./metrics.js";

/** Set by the cluster autoscaler on a node that it is about to remove. */
const TO_BE_DELETED_TAINT = "ToBeDeletedByClusterAutoscaler";

export interface ProxyHealthOptions {
  /** The families that are served. */
  readonly families: readonly IpFamily[];
  /** A change that has waited this long makes us unhealthy, ms: twice the sync period. */
  readonly timeoutMs: number;
  /** Whose Node object must exist; undefined: there is no API server that could have it. */
  readonly nodeName: string | undefined;
  /** Monotonic: how long a change has waited does not depend on the time of day being set. */
  readonly clock: Clock;
  /** Unix ms, for what is shown; by default the system's clock. */
  readonly now?: () => number;
}

export interface ProbeReply {
  readonly code: ProbeCode;
  /** JSON, without a line feed at its end. */
  readonly body: string;
}

/** Times are in ms of the monotonic clock, unless it says otherwise. */
interface FamilyState {
  /** When the oldest change came in that no write has taken over yet. */
  waiting: number | undefined;
  /** When the oldest change came in that a write took over, and that the kernel has not taken yet. */
  underWay: number | undefined;
  /** When another process changed the table, unless that has been undone. */
  drifted: number | undefined;
  /** State of the first write since the start: not tried yet, refused by the kernel, or done. */
  first: "waits" | "refused" | "done";
  /** Unix ms. */
  lastUpdated: number;
}

/** Whether the kernel keeps up with the changes, in each family, and whether this node is to get traffic at all. */
export class ProxyHealth implements ProxierObserver {
  readonly #timeoutMs: number;
  readonly #nodeName: string | undefined;
  readonly #clock: Clock;
  readonly #now: () => number;
  readonly #states = new Map<IpFamily, FamilyState>();
  #node: V1Node | undefined;

  constructor(options: ProxyHealthOptions) {
    this.#timeoutMs = options.timeoutMs;
    this.#nodeName = options.nodeName;
    this.#clock = options.clock;
    this.#now = options.now ?? Date.now;
    // The start counts as an update: without a change nothing need ever be written.
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

  /** The node's own Node object came or changed. */
  node(node: V1Node): void {
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

  /** What packets meet is not what we wrote, until it is repaired: as bad as a change that waits. */
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

  /** How long the oldest change that is not in force, or the table's repair, has waited, ms; 0 when none does. */
  pendingMs(family: IpFamily): number {
    const state = this.#states.get(family);
    const since = Math.min(state?.underWay ?? state?.waiting ?? Infinity, state?.drifted ?? Infinity);
    return since === Infinity ? 0 : this.#clock.now() - since;
  }

  /** No family has a change that has waited too long. */
  get healthy(): boolean {
    for (const family of this.#states.keys()) if (!this.#inTime(family)) return false;
    return true;
  }

  /**
   * Why the node is to get no traffic, in words: its Node was never seen, is being deleted, or the autoscaler is about to
   * remove it. Undefined: it is to get some; without a cluster always.
   */
  get nodeIneligibleReason(): string | undefined {
    const name = this.#nodeName;
    const node = this.#node;
    if (name === undefined) return undefined;
    if (node === undefined) {
      const hint = "does a node of this name exist (--hostname-override), and may it be read?";
      return `no Node object named ${name} has been seen: ${hint}`;
    }
    if (node.metadata?.deletionTimestamp != null) return `Node ${name} is being deleted`;
    const tainted = node.spec?.taints?.some(({ key }) => key === TO_BE_DELETED_TAINT) ?? false;
    return tainted ? `Node ${name} has the taint ${TO_BE_DELETED_TAINT}` : undefined;
  }

  livez(): ProbeReply {
    return this.#reply(this.healthy, {});
  }

  /** Whether the rules are in force: of each family the first write since the start is done. Later failures are for livez. */
  readyz(): ProbeReply {
    const reason = this.#unreadyReason;
    return { code: reason === undefined ? 200 : 503, body: JSON.stringify({ ready: reason === undefined, reason }) };
  }

  healthz(): ProbeReply {
    const nodeIneligibleReason = this.nodeIneligibleReason;
    const nodeEligible = nodeIneligibleReason === undefined;
    // JSON drops what is undefined; kube-proxy has no reason there.
    return this.#reply(this.healthy && nodeEligible, { nodeEligible, nodeIneligibleReason });
  }

  get #unreadyReason(): string | undefined {
    const families = (first: FamilyState["first"]): string => {
      const those = [...this.#states].filter(([, state]) => state.first === first);
      return those.map(([family]) => FAMILY_NAMES[family]).join(" and ");
    };
    const [refused, waiting] = [families("refused"), families("waits")];
    if (refused !== "") return `the kernel refuses the ${refused} rules: see the log`;
    if (waiting === "") return undefined;
    const unseen = this.#node === undefined ? this.nodeIneligibleReason : undefined;
    return `no ${waiting} rules have been written since the start: ${unseen ?? "nft-proxier status says what is waited for"}`;
  }

  #inTime(family: IpFamily): boolean {
    return this.pendingMs(family) < this.#timeoutMs;
  }

  /** Fields in the order in which kube-proxy has them. */
  #reply(good: boolean, node: Readonly<Record<string, unknown>>): ProbeReply {
    const now = this.#now();
    const families = IP_FAMILIES.flatMap((family) => {
      const state = this.#states.get(family);
      return state === undefined ? [] : { family, state, healthy: this.#inTime(family) };
    });
    const lastUpdated = Math.max(...families.map(({ state }) => state.lastUpdated));
    const body = {
      // Load balancers of old take it for the time of the last sign of life, hence "now" when all is well.
      lastUpdated: rfc3339(good ? now : lastUpdated),
      currentTime: rfc3339(now),
      ...node,
      // Of the proxier alone, also where the node's eligibility makes the status 503.
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

/** Unix ms as Go writes a time in JSON (RFC3339Nano): the fraction without zeros at its end, or none. */
export function rfc3339(ms: number): string {
  return new Date(ms).toISOString().replace(/\.?0*Z$/, "Z");
}
