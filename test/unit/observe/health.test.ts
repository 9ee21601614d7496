/** When this node reports itself healthy. */
import type { V1Node } from "@kubernetes/client-node";
import { beforeEach, describe, expect, test } from "vitest";
import { ProxyHealth, rfc3339 } from "../../../src/observe/health.js";
import type { IpFamily } from "../../../src/base/ip.js";

const START = Date.parse("2026-01-02T03:04:05Z");
const TIMEOUT = 60_000;

/** ms since the start, on both clocks. */
let elapsed: number;
let health: ProxyHealth;

function make(options: { families?: readonly IpFamily[]; nodeName?: string } = {}): ProxyHealth {
  return new ProxyHealth({
    families: options.families ?? ["ip", "ip6"],
    timeoutMs: TIMEOUT,
    nodeName: options.nodeName,
    clock: { now: () => 1_000 + elapsed },
    now: () => START + elapsed,
  });
}

beforeEach(() => {
  elapsed = 0;
  health = make();
});

const WRITTEN = { ok: true, full: false, ms: 1, settled: true, triggers: [], services: [] };

function synced(family: IpFamily, ok = true, settled = ok): void {
  health.synced({ family, ok, full: false, ms: 1, settled, triggers: [], services: [] });
}

/** A change arrives and is written in both families. */
function written(): void {
  health.queued();
  health.taken();
  synced("ip");
  synced("ip6");
}

function node(parts: Partial<Record<"metadata" | "spec", unknown>> = {}): V1Node {
  return { metadata: { name: "n1" }, ...parts } as V1Node;
}

describe("readyz", () => {
  const readyz = (): unknown[] => {
    const { code, body } = health.readyz();
    return [code, JSON.parse(body)];
  };
  const unready = (reason: string): unknown[] => [503, { ready: false, reason }];
  const STATUS = "nft-proxier status says what is waited for";

  test("503 until both families are written, with what is waited for; then 200", () => {
    expect(readyz()).toEqual(unready(`no IPv4 and IPv6 rules have been written since the start: ${STATUS}`));
    synced("ip");
    expect(readyz()).toEqual(unready(`no IPv6 rules have been written since the start: ${STATUS}`));
    synced("ip6");
    expect(readyz()).toEqual([200, { ready: true }]);
  });

  test("names the Node that has not been seen", () => {
    health = make({ families: ["ip"], nodeName: "n1" });
    expect(readyz()).toEqual(
      unready(expect.stringContaining("start: no Node object named n1 has been seen") as string),
    );
    health.node(node());
    expect(readyz()).toEqual(unready(expect.stringContaining(STATUS) as string));
  });

  test("says that the kernel refuses the first write; a later refusal is no matter of readiness", () => {
    synced("ip");
    synced("ip6", false);
    expect(readyz()).toEqual(unready("the kernel refuses the IPv6 rules: see the log"));
    synced("ip6");
    synced("ip", false);
    expect(readyz()).toEqual([200, { ready: true }]);
  });
});

describe("livez", () => {
  test("well while it starts, however long that takes", () => {
    elapsed = 10 * TIMEOUT;
    expect(health.livez().code).toBe(200);
  });

  test("well without changes, however long there are none", () => {
    written();
    elapsed = 10 * TIMEOUT;
    expect(health.livez().code).toBe(200);
  });

  test("unwell when what another process did to a table has not been undone for the timeout", () => {
    written();
    health.drifted("ip6");
    elapsed = TIMEOUT - 1;
    health.drifted("ip6");
    expect(health.livez().code).toBe(200);
    elapsed = TIMEOUT;
    expect(health.livez().code).toBe(503);
    // A change of a service is written; the repair is still waiting.
    health.synced({ ...WRITTEN, family: "ip6", repairPending: true });
    expect(health.livez().code).toBe(503);
    health.synced({ ...WRITTEN, family: "ip6" });
    expect(health.livez().code).toBe(200);
  });

  test("unwell when a change has waited for the timeout, and well again when it is written", () => {
    health.queued();
    elapsed = TIMEOUT - 1;
    expect(health.livez().code).toBe(200);
    elapsed = TIMEOUT;
    expect(health.livez().code).toBe(503);
    health.taken();
    synced("ip");
    synced("ip6");
    expect(health.livez().code).toBe(200);
  });

  test("the oldest change counts, not the last one", () => {
    health.queued();
    elapsed = TIMEOUT - 1;
    health.queued();
    elapsed = TIMEOUT;
    expect(health.livez().code).toBe(503);
  });

  test("one family that lags behind is enough", () => {
    health.queued();
    health.taken();
    synced("ip");
    synced("ip6", false);
    elapsed = TIMEOUT;
    expect(health.livez().code).toBe(503);
    expect(health.pendingMs("ip")).toBe(0);
    expect(health.pendingMs("ip6")).toBe(TIMEOUT);
  });

  test("a change that comes in while a write is under way waits from then on", () => {
    health.queued();
    health.taken();
    elapsed = 1_000;
    health.queued();
    elapsed = 2_000;
    synced("ip");
    synced("ip6");
    expect(health.pendingMs("ip")).toBe(1_000);
    elapsed = 1_000 + TIMEOUT;
    expect(health.livez().code).toBe(503);
  });

  test("a write that fails again and again does not make the change any younger", () => {
    for (elapsed = 0; elapsed < TIMEOUT; elapsed += 10_000) {
      health.queued();
      health.taken();
      synced("ip", false);
      synced("ip6", false);
    }
    expect(health.pendingMs("ip")).toBe(TIMEOUT);
    expect(health.livez().code).toBe(503);
  });

  test("a write that leaves something out settles nothing", () => {
    health.queued();
    health.taken();
    synced("ip", true, false);
    synced("ip6");
    elapsed = TIMEOUT;
    expect(health.livez().code).toBe(503);
  });
});

describe("bodies", () => {
  test("well: the time of the last update is now", () => {
    elapsed = 500;
    written();
    elapsed = 1_120;
    expect(health.livez().body).toBe(
      '{"lastUpdated":"2026-01-02T03:04:06.12Z","currentTime":"2026-01-02T03:04:06.12Z","healthy":true,' +
        '"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05.5Z","healthy":true},' +
        '"IPv6":{"lastUpdated":"2026-01-02T03:04:05.5Z","healthy":true}}}',
    );
    expect(health.healthz().body).toBe(
      '{"lastUpdated":"2026-01-02T03:04:06.12Z","currentTime":"2026-01-02T03:04:06.12Z","nodeEligible":true,' +
        '"healthy":true,"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05.5Z","healthy":true},' +
        '"IPv6":{"lastUpdated":"2026-01-02T03:04:05.5Z","healthy":true}}}',
    );
  });

  test("unhealthy: the last update of any family, and which of them lags", () => {
    elapsed = 1_000;
    health.queued();
    health.taken();
    synced("ip6");
    elapsed = 1_000 + TIMEOUT;
    expect(health.livez()).toEqual({
      code: 503,
      body:
        '{"lastUpdated":"2026-01-02T03:04:06Z","currentTime":"2026-01-02T03:05:06Z","healthy":false,' +
        '"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05Z","healthy":false},' +
        '"IPv6":{"lastUpdated":"2026-01-02T03:04:06Z","healthy":true}}}',
    });
  });

  test("one family: the other is not spoken of", () => {
    health = make({ families: ["ip6"] });
    expect(JSON.parse(health.livez().body)).toMatchObject({ status: { IPv6: { healthy: true } } });
    expect(health.livez().body).not.toContain("IPv4");
  });

  test("times as Go writes them", () => {
    expect(["", ".1", ".12", ".123", ".01"].map((part) => rfc3339(Date.parse(`2026-01-02T03:00:00${part}Z`)))).toEqual([
      "2026-01-02T03:00:00Z",
      "2026-01-02T03:00:00.1Z",
      "2026-01-02T03:00:00.12Z",
      "2026-01-02T03:00:00.123Z",
      "2026-01-02T03:00:00.01Z",
    ]);
  });
});

describe("healthz: whether the node is to get traffic", () => {
  beforeEach(() => {
    health = make({ nodeName: "n1" });
  });

  test("without a cluster: it is", () => {
    expect(make().healthz().code).toBe(200);
  });

  /** Returns the status, and why the node is not eligible. */
  function verdict(): [code: number, why: unknown] {
    const { code, body } = health.healthz();
    return [code, (JSON.parse(body) as Record<string, unknown>)["nodeIneligibleReason"]];
  }

  test("not before its Node object is known, and the answer says whose is missing", () => {
    expect(verdict()).toEqual([
      503,
      "no Node object named n1 has been seen: does a node of this name exist (--hostname-override), and may it be read?",
    ]);
    health.node(node());
    expect(verdict()).toEqual([200, undefined]);
  });

  test("not while it is being deleted", () => {
    health.node(node({ metadata: { name: "n1", deletionTimestamp: "2026-01-01T00:00:00Z" } }));
    expect(verdict()).toEqual([503, "Node n1 is being deleted"]);
  });

  test("not when the cluster autoscaler is about to remove it; other taints do not matter", () => {
    health.node(node({ spec: { taints: [{ key: "dedicated", effect: "NoSchedule" }] } }));
    expect(health.healthz().code).toBe(200);
    health.node(node({ spec: { taints: [{ key: "ToBeDeletedByClusterAutoscaler", effect: "NoSchedule" }] } }));
    expect(verdict()).toEqual([503, "Node n1 has the taint ToBeDeletedByClusterAutoscaler"]);
  });

  test("says so, and that the proxier itself is well; livez does not ask", () => {
    const { code, body } = health.healthz();
    expect(code).toBe(503);
    expect(JSON.parse(body)).toMatchObject({ nodeEligible: false, healthy: true });
    expect(health.livez().code).toBe(200);
    expect(health.livez().body).not.toContain("nodeEligible");
  });

  test("a proxier that lags behind is enough, too", () => {
    health.node(node());
    health.queued();
    elapsed = TIMEOUT;
    expect(health.healthz().code).toBe(503);
    expect(JSON.parse(health.healthz().body)).toMatchObject({ nodeEligible: true, healthy: false });
  });
});
