/** Annotations nft-proxier.dev/balance…: what a service asks for, and what is said of values that mean nothing. */
import { describe, expect, it } from "vitest";
import { newModel, service } from "../model/objects.ts";

function read(annotations: Record<string, unknown>, spec: Record<string, unknown> = {}) {
  const { model, problems, view } = newModel();
  model.upsertService(service("web", spec, { metadata: { annotations: prefixed(annotations) } }));
  return { balance: view("web").balance, problems };
}

function prefixed(annotations: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(annotations).map(([name, value]) => [`nft-proxier.dev/${name}`, value]));
}

const named = (name: string, reason: string): string =>
  `Service default/web metadata.annotations["nft-proxier.dev/${name}"]: ${reason}`;

describe("the annotation balance", () => {
  it.each([
    [{}, undefined],
    [{ balance: "random" }, undefined],
    [{ balance: "consistent" }, { by: "source-ip", slots: 0 }],
    [
      { balance: "consistent", "balance-key": "source-ip-port" },
      { by: "source-ip-port", slots: 0 },
    ],
    [
      { balance: "consistent", "balance-slots": "4096" },
      { by: "source-ip", slots: 4096 },
    ],
  ])("%j", (annotations, balance) => {
    expect(read(annotations)).toEqual({ balance, problems: [] });
  });

  it.each<[Record<string, unknown>, string, string]>([
    [{ balance: "maglev" }, "balance", '"maglev" is none of random, consistent; random is assumed'],
    [{ balance: true }, "balance", "true is none of random, consistent; random is assumed"],
    [
      { balance: "consistent", "balance-key": "ip" },
      "balance-key",
      '"ip" is none of source-ip, source-ip-port; source-ip is assumed',
    ],
    [
      { balance: "consistent", "balance-slots": "251" },
      "balance-slots",
      '"251" is none of 0, 256, 1024, 4096, 16384; 0 is assumed',
    ],
  ])("%j is named and ignored", (annotations, name, reason) => {
    expect(read(annotations).problems).toEqual([named(name, reason)]);
  });

  it("is ignored beside ClientIP affinity, which is said", () => {
    const { balance, problems } = read({ balance: "consistent" }, { sessionAffinity: "ClientIP" });
    expect(balance).toBeUndefined();
    expect(problems).toEqual([
      named("balance", "is ignored: with sessionAffinity ClientIP a client keeps its endpoint already"),
    ]);
  });
});
