/** Annotations that limit connections: their meaning, and the reports of invalid values. */
import { describe, expect, it } from "vitest";
import { newModel, service } from "../model/objects.ts";

function read(annotations: Record<string, unknown>) {
  const { model, problems, view } = newModel();
  const prefixed = Object.entries(annotations).map(([name, value]) => [`nft-proxier.dev/${name}`, value]);
  model.upsertService(service("web", {}, { metadata: { annotations: Object.fromEntries(prefixed) as object } }));
  return { limits: view("web").limits, problems };
}

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

  it.each<[string, unknown, string]>([
    ["max-connections", "0", '"0" is not a number from 1 to 1000000; it is ignored'],
    ["max-connections", "ten", '"ten" is not a number from 1 to 1000000; it is ignored'],
    ["max-connections", 10, "10 is not text (put it in quotes); it is ignored"],
    ["max-connections-per-client", "1000001", '"1000001" is not a number from 1 to 1000000; it is ignored'],
    [
      "rate-per-client",
      "10/day",
      '"10/day" is not NUMBER/second|minute|hour [burst NUMBER], with numbers from 1 to 1000000; the rate is not limited',
    ],
    [
      "rate-per-client",
      "10/second burst 0",
      '"10/second burst 0" is not NUMBER/second|minute|hour [burst NUMBER], with numbers from 1 to 1000000; the rate is not limited',
    ],
  ])("%s: %j is reported and ignored", (name, value, reason) => {
    const path = `Service default/web metadata.annotations["nft-proxier.dev/${name}"]`;
    expect(read({ [name]: value })).toEqual({ limits: undefined, problems: [`${path}: ${reason}`] });
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
