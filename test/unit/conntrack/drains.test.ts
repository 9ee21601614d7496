/** When connections to terminating endpoints are ended, for services that request it. */
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Drains } from "../../../src/conntrack/reconcile/drains.js";
import { newModel, service, slice } from "../model/objects.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const READY = { ready: true };
const TERMINATING = { ready: false, serving: true, terminating: true };
const DEAF = { ready: false, serving: false, terminating: true };
const NOT_READY = { ready: false, serving: false };

function setUp(annotations: Record<string, string> = { "nft-proxier.dev/drain-seconds": "30" }, protocol = "TCP") {
  const { model, problems } = newModel({ trackRemovals: true });
  model.upsertService(service("web", { ports: [{ port: 80, protocol }] }, { metadata: { annotations } }));
  const over: string[] = [];
  const drains = new Drains({
    model,
    now: () => Date.now(),
    onOver: (_family, of) => void over.push(of),
  });
  const source = drains.source();
  const endpoints = (...conditions: object[]): void => {
    const list = conditions.map((each, i) => ({ addresses: [`10.1.0.${i + 1}`], conditions: each }));
    model.upsertSlice(slice("web-1", "web", list, { ports: [{ port: 8080, protocol }] }));
  };
  /** "1+": serves, for connections; "1-": does not. */
  const seen = (): string =>
    [...source.targets("ip", "default/web")]
      .flatMap((t) => t.endpoints.map(({ address }, i) => `${address.slice(7)}${t.serving[i] ? "+" : "-"}`))
      .join(" ");
  return { drains, model, problems, endpoints, seen, over };
}

it("keeps connections for the drain time, whether or not the endpoint still serves, and then treats it as removed", () => {
  const { endpoints, seen, over } = setUp();
  endpoints(READY, TERMINATING, DEAF);
  expect(seen()).toBe("1+ 2+ 3+");
  vi.advanceTimersByTime(29_000);
  expect([seen(), over]).toEqual(["1+ 2+ 3+", []]);
  vi.advanceTimersByTime(1000);
  expect(over).toEqual(["default/web"]);
  expect(seen()).toBe("1+");
});

it.each([
  ["UDP", "1+ 2+", "1+"],
  ["SCTP", "1+ 2+", "1+"],
  ["TCP", "1+ 2-", "1+ 2-"],
])(
  "keeps connections of %s to an endpoint that is no longer ready, unless they stay anyway",
  (protocol, kept, later) => {
    const { endpoints, seen, over } = setUp(undefined, protocol);
    endpoints(READY, READY);
    seen();
    endpoints(READY, NOT_READY);
    expect(seen()).toBe(kept);
    vi.advanceTimersByTime(30_000);
    expect([seen(), over.length]).toEqual([later, protocol === "TCP" ? 0 : 1]);
    endpoints(READY, READY);
    expect(seen()).toBe("1+ 2+");
  },
);

it("has a time for each endpoint", () => {
  const { endpoints, seen, over } = setUp();
  endpoints(READY, TERMINATING, READY);
  seen();
  vi.advanceTimersByTime(20_000);
  endpoints(READY, TERMINATING, TERMINATING);
  expect(seen()).toBe("1+ 2+ 3+");
  vi.advanceTimersByTime(10_000);
  expect([seen(), over.length]).toEqual(["1+ 3+", 1]);
  vi.advanceTimersByTime(20_000);
  expect([seen(), over.length]).toEqual(["1+", 2]);
});

it("restarts for an endpoint that was ready again, and never starts for one that receives new connections", () => {
  const { endpoints, seen, over } = setUp();
  endpoints(READY, TERMINATING);
  seen();
  vi.advanceTimersByTime(20_000);
  endpoints(READY, READY);
  seen();
  endpoints(READY, TERMINATING);
  seen();
  vi.advanceTimersByTime(20_000);
  expect([seen(), over]).toEqual(["1+ 2+", []]);
  endpoints(TERMINATING, TERMINATING);
  seen();
  vi.advanceTimersByTime(60_000);
  expect([seen(), over]).toEqual(["1+ 2+", []]);
});

it("ignores services that do not request it, or that are deleted", () => {
  const { endpoints, seen, model, over, drains } = setUp({});
  endpoints(READY, TERMINATING, DEAF);
  expect(seen()).toBe("1+ 2+ 3-");
  expect(vi.getTimerCount()).toBe(0);
  const asking = setUp();
  asking.endpoints(READY, TERMINATING);
  asking.seen();
  expect(vi.getTimerCount()).toBe(1);
  asking.model.removeService("default/web");
  vi.advanceTimersByTime(60_000);
  expect([asking.over, over, vi.getTimerCount()]).toEqual([[], [], 0]);
  drains.stop();
  model.removeService("default/web");
});

it("keeps no connection of a deleted service, even if its time is over", () => {
  const { endpoints, seen, model, over } = setUp();
  endpoints(READY, TERMINATING);
  seen();
  vi.advanceTimersByTime(30_000);
  expect([seen(), over.length, vi.getTimerCount()]).toEqual(["1+", 1, 0]);
  model.removeService("default/web");
  expect(seen()).toBe("");
  model.upsertService(service("web", {}, { metadata: { annotations: { "nft-proxier.dev/drain-seconds": "30" } } }));
  expect(seen()).toBe("1+ 2+");
  vi.advanceTimersByTime(30_000);
  expect([seen(), over.length]).toEqual(["1+", 2]);
});

it("reports that drain-seconds overrides reset-removed-endpoints, and drains", () => {
  const reset = "nft-proxier.dev/reset-removed-endpoints";
  const { endpoints, seen, problems } = setUp({ "nft-proxier.dev/drain-seconds": "30", [reset]: "false" });
  expect(problems).toEqual([
    `Service default/web metadata.annotations["${reset}"]: "false" is ignored: nft-proxier.dev/drain-seconds implies "true"`,
  ]);
  endpoints(READY, TERMINATING);
  seen();
  vi.advanceTimersByTime(30_000);
  expect(seen()).toBe("1+");
  expect(setUp({ "nft-proxier.dev/drain-seconds": "5m", [reset]: "false" }).problems).toHaveLength(1);
  expect(setUp({ "nft-proxier.dev/drain-seconds": "30", [reset]: "true" }).problems).toEqual([]);
  expect(setUp({ "nft-proxier.dev/drain-seconds": "30", [reset]: "yes" }).problems.join()).toContain('using "true"');
});

it("reports an invalid time, and keeps connections until the endpoint is deleted", () => {
  const { endpoints, seen, problems } = setUp({ "nft-proxier.dev/drain-seconds": "5m" });
  expect(problems).toEqual([
    'Service default/web metadata.annotations["nft-proxier.dev/drain-seconds"]: "5m" is not a number from 1 to 86400; it is ignored',
  ]);
  endpoints(READY, TERMINATING);
  seen();
  vi.advanceTimersByTime(1e9);
  expect(seen()).toBe("1+ 2+");
});
