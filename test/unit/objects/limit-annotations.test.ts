/** Annotations that limit connections: their meaning, and the reports of invalid values. */
import { describe, expect, it } from "vitest";
import { newModel, service } from "../model/objects.ts";

function read(annotations: Record<string, unknown>) {
  const { model, problems, view } = newModel();
  const prefixed = Object.entries(annotations).map(([name, value]) => [`nft-proxier.dev/${name}`, value]);
  model.upsertService(service("web", {}, { metadata: { annotations: Object.fromEntries(prefixed) as object } }));
  return { limits: view("web").limits, problems };
}

const STRICTEST_RATE = { count: 1, per: "hour", burst: 1 };
const NONE = { connections: 0, clientConnections: 0, rate: undefined, action: "reject" };

describe("limits", () => {
  it.each([
    [{}, undefined],
    [{ "over-limit": "drop" }, undefined],
    [{ "max-connections": "1000" }, { ...NONE, connections: 1000 }],
    [
      { "max-connections-per-client": "10", "over-limit": "drop" },
      { ...NONE, clientConnections: 10, action: "drop" },
    ],
    [{ "rate-per-client": "10/second" }, { ...NONE, rate: { count: 10, per: "second", burst: 10 } }],
    [{ "rate-per-client": "2/second" }, { ...NONE, rate: { count: 2, per: "second", burst: 5 } }],
    [{ "rate-per-client": "100/minute" }, { ...NONE, rate: { count: 100, per: "minute", burst: 5 } }],
    [{ "rate-per-client": "1/hour burst 3" }, { ...NONE, rate: { count: 1, per: "hour", burst: 3 } }],
  ])("%j", (annotations, limits) => {
    expect(read(annotations)).toEqual({ limits, problems: [] });
  });

  it.each<[string, unknown, object, string]>([
    ["max-connections", "0", { connections: 1 }, '"0" is not a number from 1 to 1000000; using 1'],
    ["max-connections", "ten", { connections: 1 }, '"ten" is not a number from 1 to 1000000; using 1'],
    ["max-connections", 10, { connections: 1 }, "10 is not text (put it in quotes); using 1"],
    [
      "max-connections-per-client",
      "1000001",
      { clientConnections: 1 },
      '"1000001" is not a number from 1 to 1000000; using 1',
    ],
    [
      "rate-per-client",
      "10/day",
      { rate: STRICTEST_RATE },
      '"10/day" is not NUMBER/second|minute|hour [burst NUMBER], with numbers from 1 to 1000000; using 1/hour burst 1',
    ],
    [
      "rate-per-client",
      "10/second burst 0",
      { rate: STRICTEST_RATE },
      '"10/second burst 0" is not NUMBER/second|minute|hour [burst NUMBER], with numbers from 1 to 1000000; using 1/hour burst 1',
    ],
  ])("%s: %j is reported, and is the strictest limit", (name, value, limits, reason) => {
    const path = `Service default/web metadata.annotations["nft-proxier.dev/${name}"]`;
    expect(read({ [name]: value })).toEqual({ limits: { ...NONE, ...limits }, problems: [`${path}: ${reason}`] });
  });

  it("over-limit: an invalid value is reported even if nothing is limited", () => {
    expect(read({ "over-limit": "ignore" })).toEqual({
      limits: undefined,
      problems: [
        'Service default/web metadata.annotations["nft-proxier.dev/over-limit"]: "ignore" is not one of reject, drop; using reject',
      ],
    });
  });

  it("over-limit: an invalid value is reported, and means reject", () => {
    const { limits, problems } = read({ "max-connections": "3", "over-limit": "ignore" });
    expect(limits).toEqual({ ...NONE, connections: 3 });
    expect(problems).toEqual([
      'Service default/web metadata.annotations["nft-proxier.dev/over-limit"]: "ignore" is not one of reject, drop; using reject',
    ]);
  });
});
