/** Dumps that skip entries that no service needs: the C++ code must agree with maySkip's few lines. */
import { expect, test } from "vitest";
import { PrefilterBuilder } from "../../../src/conntrack/reconcile/prefilter.js";
import { maySkip } from "../../support/may-skip.ts";
import {
  CONNTRACK_STATUS,
  type ConntrackEntry,
  type ConntrackPrefilter,
} from "../../../src/nft/conntrack/conntrack-table.js";
import { type IpFamily, parseAddress } from "../../../src/base/ip.js";
import type { Protocol } from "../../../src/base/protocols.js";
import type { ServiceTarget } from "../../../src/model/service-port-view.js";
import type { CurrentConntrackWorld } from "../../support/conntrack-world.ts";
import { all, flow, refusal } from "../../support/conntrack-entries.ts";

/** Returns "10.0.0.7" in either family. */
function at(family: IpFamily, address: string): string {
  return family === "ip" ? address : (parseAddress(`fd00:${address.replaceAll(".", ":")}::`) ?? "");
}

const NODE = "192.0.2.10";

function target(family: IpFamily, n: number, protocol: Protocol, endpoints: readonly number[]): ServiceTarget {
  return {
    service: `default/s${n}`,
    id: `default/s${n}/${protocol}`,
    protocol,
    port: 53,
    addresses: [at(family, `10.96.0.${n}`)],
    nodePort: 30_000 + n,
    resetRemovedEndpoints: protocol === "TCP",
    drainSeconds: 0,
    draining: undefined,
    endpoints: endpoints.map((e) => ({ address: at(family, `10.1.0.${e}`), port: 53, local: false })),
    serving: endpoints.map((e) => e % 7 !== 0),
  };
}

function prefilterOf(family: IpFamily, nodePorts = at(family, NODE)): ConntrackPrefilter {
  const prefilter = new PrefilterBuilder(family, [nodePorts]);
  for (let n = 1; n <= 9; n++) {
    prefilter.addTarget(
      target(
        family,
        n,
        "UDP",
        Array.from({ length: n * n }, (_, i) => 81 - i),
      ),
    );
    prefilter.addTarget(target(family, n, "TCP", [n, n + 1]));
  }
  prefilter.addFormer({ family, address: at(family, "10.96.0.20"), protocol: "UDP", port: 53 });
  return prefilter.build();
}

export function prefilters(current: CurrentConntrackWorld): void {
  test.each<[IpFamily, nodePorts: string]>([
    ["ip", at("ip", NODE)],
    ["ip6", at("ip6", NODE)],
    ["ip", "0.0.0.0"],
    ["ip6", "::"],
  ])(
    "%s, node ports at %s: wanted entries are passed to the caller, and all entries are counted",
    async (family, nodePorts) => {
      const { table } = current();
      let made = 0;
      for (const vip of [...Array.from({ length: 11 }, (_, n) => `10.96.0.${n}`), "10.96.0.20", NODE, "192.0.2.77"]) {
        for (const protocol of [6, 17]) {
          for (let i = 0; i < 8; i++) {
            const port = vip.startsWith("192") ? 30_000 + ((i * 5) % 12) : 53 + (i % 5 === 0 ? 1 : 0);
            const endpoint = at(family, `10.1.0.${1 + ((made * 13) % 90)}`);
            const ends = { vip: at(family, vip), port, endpoint, endpointPort: i % 6 === 0 ? 54 : 53 };
            const client = { client: at(family, "10.0.0.7"), clientPort: 1000 + made++ };
            const status = i % 3 === 0 ? CONNTRACK_STATUS.seenReply : 0;
            const state = protocol === 6 ? { state: "ESTABLISHED" } : {};
            await table.create(flow({ ...client, ...ends, protocol }, { status, ...state }));
          }
        }
      }
      const other = family === "ip" ? "ip6" : "ip";
      await table.create(flow({ client: at(other, "10.0.0.7"), vip: at(other, "10.96.0.1") }));
      const prefilter = prefilterOf(family, nodePorts);
      const key = ({ original }: ConntrackEntry): string => JSON.stringify(original);
      const every = await all(table, { family });
      const handedOver: string[] = [];
      const result = await table.dump({ family }, (entries) => void handedOver.push(...entries.map(key)), prefilter);
      const expected = every.filter((entry) => !maySkip(prefilter, entry)).map(key);
      expect(handedOver.sort()).toEqual(expected.sort());
      expect(expected.length).toBeGreaterThan(40);
      expect(expected.length).toBeLessThan(made - 40);
      const answered = every.filter(({ status }) => (status & CONNTRACK_STATUS.seenReply) !== 0).length;
      expect(result).toMatchObject({ entries: expected.length, matched: made, answered, interrupted: false });
      const tcp = await table.dump({ family, protocol: 6 }, () => undefined, prefilter);
      expect(tcp.matched).toBe(made / 2);
    },
  );

  test("no entry is passed to the caller if there are no destinations", async () => {
    const { table } = current();
    await table.create(flow());
    const prefilter = new PrefilterBuilder("ip", []).build();
    expect(await table.dump({ family: "ip" }, () => undefined, prefilter)).toMatchObject({ entries: 0, matched: 1 });
  });

  test("a prefilter of a family other than the filter's is refused", async () => {
    const { table } = current();
    for (const filter of [{}, { family: "ip6" as const }]) {
      const error = await refusal(table.dump(filter, () => undefined, prefilterOf("ip")));
      expect([error.code, error.message]).toEqual(["invalid", "dump: prefilter: the filter has another family"]);
    }
  });
}
