/** When this node reports itself healthy. */
import type { NodeRecord } from "../../../src/objects/records.js";
import { nodeRecord } from "../../support/decoded.ts";
import { beforeEach, describe, expect, test } from "vitest";
import { ProxyHealth, rfc3339 } from "../../../src/observe/proxy-health.js";
import type { IpFamily } from "../../../src/base/ip.js";
import { WRITTEN } from "../proxier/support/sync-report.ts";

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

function synced(family: IpFamily, ok = true, settled = ok): void {
  health.synced({ ...WRITTEN, family, ok, settled });
}

/** A change arrives and is written in both families. */
function written(): void {
  health.queued();
  health.taken();
  synced("ip");
  synced("ip6");
}

function node(parts: Partial<Record<"metadata" | "spec", unknown>> = {}): NodeRecord {
  return nodeRecord({ metadata: { name: "n1" }, ...parts });
}

describe("readyz", () => {
  const readyz = (): unknown[] => {
    const { code, body } = health.readyz();
    return [code, JSON.parse(body)];
  };
  const unready = (reason: string): unknown[] => [503, { ready: false, reason }];
  const STATUS = "Run `nft-proxier status` to see what is missing";

  test("is 503 with the reason until both families are written, and then 200", () => {
    expect(readyz()).toEqual(unready(`no IPv4 and IPv6 rules have been written since startup. ${STATUS}`));
    synced("ip");
    expect(readyz()).toEqual(unready(`no IPv6 rules have been written since startup. ${STATUS}`));
    synced("ip6");
    expect(readyz()).toEqual([200, { ready: true }]);
  });

  test("names the Node that has not been read, or does not exist", () => {
    health = make({ families: ["ip"], nodeName: "n1" });
    health.nodeUnread = () => "the API server http://a has not answered";
    expect(readyz()).toEqual(
      unready(
        "no IPv4 rules have been written since startup. Node n1 has not been read yet: the API server http://a has not answered",
      ),
    );
    health.nodeUnread = () => undefined;
    expect(readyz()).toEqual(unready(expect.stringContaining("startup. No Node object named n1 was found") as string));
    health.node(node());
    expect(readyz()).toEqual(unready(expect.stringContaining(STATUS) as string));
  });

  test("reports that the kernel refuses the first write; a later refusal does not affect readiness", () => {
    synced("ip");
    synced("ip6", false);
    expect(readyz()).toEqual(unready("the kernel refuses the IPv6 rules; the log has the error"));
    synced("ip6");
    synced("ip", false);
    expect(readyz()).toEqual([200, { ready: true }]);
  });
});

describe("a family whose first write the kernel refuses", () => {
  const answers = (): number[] => [health.livez(), health.readyz()].map(({ code }) => code);
  beforeEach(() => {
    health.queued();
    health.taken();
    synced("ip");
    synced("ip6", false);
    elapsed = 2 * TIMEOUT;
  });

  test("makes the node unhealthy and not ready if a service has an address of the family", () => {
    expect(answers()).toEqual([503, 503]);
  });

  test("does not as long as no service has one", () => {
    let served = false;
    health.serves = (family) => family === "ip" || served;
    expect(answers()).toEqual([200, 200]);
    served = true;
    expect(answers()).toEqual([503, 503]);
  });

  test("counts again after it was written once, because its rules may then serve packets", () => {
    health.serves = (family) => family === "ip";
    synced("ip6");
    health.queued();
    health.taken();
    synced("ip6", false);
    elapsed += 2 * TIMEOUT;
    expect(health.livez().code).toBe(503);
  });
});

describe("livez", () => {
  test("is healthy during the start, however long that takes", () => {
    elapsed = 10 * TIMEOUT;
    expect(health.livez().code).toBe(200);
  });

  test("is healthy without changes, however long there are none", () => {
    written();
    elapsed = 10 * TIMEOUT;
    expect(health.livez().code).toBe(200);
  });

  test("is unhealthy if another process's change of a table has not been repaired within the timeout", () => {
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

  test("is unhealthy if a change has waited for the timeout, and healthy again after it is written", () => {
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

  test("depends on the oldest change, not the last one", () => {
    health.queued();
    elapsed = TIMEOUT - 1;
    health.queued();
    elapsed = TIMEOUT;
    expect(health.livez().code).toBe(503);
  });

  test("is unhealthy if only one family lags behind", () => {
    health.queued();
    health.taken();
    synced("ip");
    synced("ip6", false);
    elapsed = TIMEOUT;
    expect(health.livez().code).toBe(503);
    expect(health.pendingMs("ip")).toBe(0);
    expect(health.pendingMs("ip6")).toBe(TIMEOUT);
  });

  test("counts a change that arrives during a write from its arrival", () => {
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

  test("does not restart the time of a change when its write fails repeatedly", () => {
    for (elapsed = 0; elapsed < TIMEOUT; elapsed += 10_000) {
      health.queued();
      health.taken();
      synced("ip", false);
      synced("ip6", false);
    }
    expect(health.pendingMs("ip")).toBe(TIMEOUT);
    expect(health.livez().code).toBe(503);
  });

  test("does not count a change as written if a write leaves something out", () => {
    health.queued();
    health.taken();
    synced("ip", true, false);
    synced("ip6");
    elapsed = TIMEOUT;
    expect(health.livez().code).toBe(503);
  });
});

describe("bodies", () => {
  test("healthy: the time of the last update is now", () => {
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

  test("unhealthy: the last update of any family, and the family that lags behind", () => {
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

  test("one family: the other is not mentioned", () => {
    health = make({ families: ["ip6"] });
    expect(JSON.parse(health.livez().body)).toMatchObject({ status: { IPv6: { healthy: true } } });
    expect(health.livez().body).not.toContain("IPv4");
  });

  test("times have Go's format", () => {
    expect(["", ".1", ".12", ".123", ".01"].map((part) => rfc3339(Date.parse(`2026-01-02T03:00:00${part}Z`)))).toEqual([
      "2026-01-02T03:00:00Z",
      "2026-01-02T03:00:00.1Z",
      "2026-01-02T03:00:00.12Z",
      "2026-01-02T03:00:00.123Z",
      "2026-01-02T03:00:00.01Z",
    ]);
  });
});

describe("healthz: whether the node should receive traffic", () => {
  beforeEach(() => {
    health = make({ nodeName: "n1" });
  });

  test("is healthy without a cluster", () => {
    expect(make().healthz().code).toBe(200);
  });

  /** Returns the status, and why the node is not eligible. */
  function verdict(): [code: number, why: unknown] {
    const { code, body } = health.healthz();
    return [code, (JSON.parse(body) as Record<string, unknown>)["nodeIneligibleReason"]];
  }

  test("is unhealthy before its Node object is known, and the answer names it", () => {
    expect(verdict()).toEqual([503, "Node n1 has not been read yet: the program is starting"]);
    health.nodeUnread = () => undefined;
    expect(verdict()).toEqual([
      503,
      "No Node object named n1 was found. Check `--hostname-override`, and the permission to read Nodes",
    ]);
    health.node(node());
    expect(verdict()).toEqual([200, undefined]);
  });

  test("is unhealthy while the Node is being deleted", () => {
    health.node(node({ metadata: { name: "n1", deletionTimestamp: "2026-01-01T00:00:00Z" } }));
    expect(verdict()).toEqual([503, "Node n1 is being deleted"]);
  });

  test("is unhealthy when the cluster autoscaler is about to remove the Node; other taints do not matter", () => {
    health.node(node({ spec: { taints: [{ key: "dedicated", effect: "NoSchedule" }] } }));
    expect(health.healthz().code).toBe(200);
    health.node(node({ spec: { taints: [{ key: "ToBeDeletedByClusterAutoscaler", effect: "NoSchedule" }] } }));
    expect(verdict()).toEqual([503, "Node n1 has the taint ToBeDeletedByClusterAutoscaler"]);
  });

  test("reports that, and that the proxier itself is healthy; livez does not depend on it", () => {
    const { code, body } = health.healthz();
    expect(code).toBe(503);
    expect(JSON.parse(body)).toMatchObject({ nodeEligible: false, healthy: true });
    expect(health.livez().code).toBe(200);
    expect(health.livez().body).not.toContain("nodeEligible");
  });

  test("is also unhealthy if the proxier lags behind", () => {
    health.node(node());
    health.queued();
    elapsed = TIMEOUT;
    expect(health.healthz().code).toBe(503);
    expect(JSON.parse(health.healthz().body)).toMatchObject({ nodeEligible: true, healthy: false });
  });
});
