import { expect, test } from "vitest";
import {
  CONNTRACK_STATUS,
  type ConntrackFilter,
  type NewConntrackEntry,
} from "../../../src/nft/conntrack/conntrack-table.js";
import type { CurrentConntrackWorld } from "../../support/conntrack-world.ts";
import { all, flow, ping, refusal } from "../../support/conntrack-entries.ts";

const { seenReply, assured, destinationNat } = CONNTRACK_STATUS;

/** Keyed by client port, and for ICMP by id. */
const ENTRIES: Readonly<Record<number, NewConntrackEntry>> = {
  101: flow(
    { clientPort: 101, endpoint: "10.1.0.3", endpointPort: 5353 },
    { mark: 0x4000, status: seenReply | assured },
  ),
  102: flow({ clientPort: 102, endpoint: "10.1.0.4", endpointPort: 5353 }, { mark: 0x4001 }),
  103: flow({ clientPort: 103, vip: "10.96.0.11" }, { zone: 5 }),
  104: flow({ clientPort: 104, client: "10.0.1.9", protocol: 6, port: 80 }, { state: "ESTABLISHED" }),
  105: flow({ clientPort: 105, protocol: 6, port: 80 }, { state: "TIME_WAIT", status: seenReply }),
  106: flow({ clientPort: 106, protocol: 132, port: 53 }, { state: "ESTABLISHED" }),
  107: flow({ clientPort: 107, client: "fd00::7", vip: "fd96::a", endpoint: "fd01::3", endpointPort: 5353 }),
  108: flow({ clientPort: 108, client: "fd00::8", vip: "fd96::b", protocol: 6, port: 80 }, { state: "SYN_SENT" }),
  109: ping("10.0.0.7", "10.96.0.10", 109),
  110: { ...flow({ clientPort: 110 }), original: { ...flow({ clientPort: 110 }).original, zone: 5 } },
};

const ROWS: readonly [ConntrackFilter, readonly number[]][] = [
  [{}, [101, 102, 103, 104, 105, 106, 107, 108, 109, 110]],
  [{ family: "ip" }, [101, 102, 103, 104, 105, 106, 109, 110]],
  [{ family: "ip6" }, [107, 108]],
  [{ protocol: 17 }, [101, 102, 103, 107, 110]],
  [{ protocol: 17, family: "ip" }, [101, 102, 103, 110]],
  [{ protocol: 17, family: "ip6" }, [107]],
  [{ protocol: 1 }, [109]],
  [{ protocol: 1, family: "ip" }, [109]],
  [{ protocol: 200 }, []],
  [{ zone: 0 }, [101, 102, 104, 105, 106, 107, 108, 109]],
  [{ zone: 5 }, [103]],
  [{ mark: { value: 0x4000 } }, [101]],
  [{ mark: { value: 0x4000, mask: 0x4000 } }, [101, 102]],
  [{ mark: { value: 0xffff_4000, mask: 0x4000 } }, [101, 102]],
  [{ mark: { value: 0, mask: 0x4000 }, protocol: 17 }, [103, 107, 110]],
  [{ status: { value: assured, mask: assured } }, [101]],
  [{ status: { value: seenReply, mask: seenReply | assured } }, [105]],
  [{ status: { value: destinationNat, mask: destinationNat } }, [101, 102, 107]],
  [{ status: { value: 0, mask: destinationNat }, family: "ip6" }, [108]],
  [{ status: { value: 1, mask: 0 }, family: "ip6" }, [107, 108]],
  [{ state: "ESTABLISHED" }, [104, 106]],
  [{ state: "ESTABLISHED", protocol: 6 }, [104]],
  [{ state: "SYN_SENT" }, [108]],
  [{ original: { destination: "10.96.0.10" } }, [101, 102, 104, 105, 106, 109, 110]],
  [{ original: { destination: "10.96.0.10" }, protocol: 17 }, [101, 102, 110]],
  [{ original: { destination: "10.96.0.10", destinationPort: 53 }, protocol: 17 }, [101, 102, 110]],
  [{ original: { destination: "10.96.0.10", destinationPort: 53 } }, [101, 102, 106, 110]],
  [{ original: { destinationPort: 53 }, protocol: 132 }, [106]],
  [{ original: { destinationPort: 53 }, protocol: 132, family: "ip" }, [106]],
  [{ original: { destinationPort: 54 }, protocol: 132, family: "ip" }, []],
  [{ original: { sourcePort: 102 } }, [102]],
  [{ original: { sourcePort: 102 }, protocol: 17, family: "ip" }, [102]],
  [{ original: { source: "10.0.1.9" } }, [104]],
  [{ original: { source: "10.0.0.0/24" }, protocol: 6 }, [105]],
  [{ original: { source: "10.0.0.0/23" }, protocol: 6 }, [104, 105]],
  [{ original: { source: "0.0.0.0/0" }, protocol: 6 }, [104, 105]],
  [{ original: { source: "::/0" }, protocol: 6 }, [108]],
  [{ original: { destination: "fd96::a" } }, [107]],
  [{ original: { destination: "fd96::a", destinationPort: 53 }, protocol: 17 }, [107]],
  [{ original: { destination: "fd96::b" }, protocol: 17 }, []],
  [{ original: { source: "fd00::/64" } }, [107, 108]],
  [{ original: { source: "fd00::7", destination: "fd96::a" } }, [107]],
  [{ reply: { source: "10.1.0.3" } }, [101]],
  [{ reply: { source: "10.1.0.0/24", sourcePort: 5353 } }, [101, 102]],
  [{ reply: { source: "10.1.0.3", sourcePort: 5353 }, protocol: 17 }, [101]],
  [{ reply: { source: "10.1.0.3", sourcePort: 53 }, protocol: 17 }, []],
  [{ reply: { source: "fd01::3" } }, [107]],
  [{ reply: { destination: "10.0.0.7", destinationPort: 101 }, protocol: 17 }, [101]],
  [{ addresses: ["10.0.1.9"] }, [104]],
  [{ addresses: ["10.96.0.11", "10.1.0.4"] }, [102, 103]],
  [{ addresses: ["10.96.0.11", "10.1.0.4", "fd00::8", "fd01::3"] }, [102, 103, 107, 108]],
  [{ addresses: ["10.1.0.0/16", "fd96::/16"], protocol: 17 }, [101, 102, 107]],
  [{ addresses: ["10.96.0.10", "fd00::7"], family: "ip6" }, [107]],
  [{ addresses: ["10.0.0.7"], original: { source: "10.0.0.0/24" }, protocol: 6 }, [105]],
  [{ addresses: ["10.0.1.9"], original: { source: "10.0.0.7" } }, []],
  [{ addresses: ["10.0.1.9", "10.0.0.7"], state: "ESTABLISHED" }, [104, 106]],
  [{ addresses: Array.from({ length: 64 }, (_, i) => `10.1.0.${3 + i}`), state: "TIME_WAIT" }, []],
  [{ addresses: Array.from({ length: 64 }, (_, i) => `10.1.0.${3 + i}`) }, [101, 102]],
  [{ original: { destination: "10.96.0.10" }, reply: { source: "10.1.0.4" }, mark: { value: 0x4001 } }, [102]],
];

export function filters(current: CurrentConntrackWorld): void {
  const fill = async (): Promise<void> => {
    for (const entry of Object.values(ENTRIES)) await current().table.create(entry);
  };
  const names = async (filter: ConntrackFilter): Promise<number[]> => {
    const found = await all(current().table, filter);
    return found.map(({ original }) => original.icmp?.id ?? original.sourcePort).sort((a, b) => a - b);
  };

  test("a dump returns all entries that match the filter, and no others", async () => {
    await fill();
    for (const [filter, expected] of ROWS) expect([filter, await names(filter)]).toEqual([filter, expected]);
  });

  test("deleteMatching deletes the entries that match the filter, and no others", async () => {
    const { table } = current();
    for (const [filter, expected] of ROWS) {
      await table.deleteMatching({});
      await fill();
      const outcome = await table.deleteMatching(filter);
      expect([filter, outcome]).toEqual([filter, { deleted: expected.length, absent: 0, interrupted: false }]);
      const left = Object.keys(ENTRIES).map(Number);
      expect([filter, await names({})]).toEqual([filter, left.filter((name) => !expected.includes(name))]);
    }
  });

  test("a filter that is not fully understood dumps and deletes nothing", async () => {
    const { table } = current();
    await fill();
    const wrong: readonly unknown[] = [
      undefined,
      null,
      [],
      "udp",
      { proto: 17 },
      { protocol: undefined },
      { protocol: "17" },
      { protocol: 17, original: { destination: "10.96.0.300" } },
      { original: { destination: "10.96.0.10", port: 53 } },
      { original: { destination: "10.96.0.10/12" } },
      { original: { source: "10.0.0.7", destination: "fd96::a" } },
      { family: "ip6", original: { destination: "10.96.0.10" } },
      { original: { destinationPort: 70_000 } },
      { original: { destinationPort: "53" } },
      { protocol: 1, original: { destinationPort: 53 } },
      { state: "established" },
      { state: "ESTABLISHED", protocol: 17 },
      { status: { value: 1 } },
      { mark: 5 },
      { zone: -1 },
    ];
    for (const filter of wrong as readonly ConntrackFilter[]) {
      const dumped: unknown[] = [];
      const dump = await refusal(table.dump(filter, (chunk) => void dumped.push(chunk)));
      expect([filter, dump.code, dump.details.action]).toEqual([filter, "invalid", "dump"]);
      const deletion = await refusal(table.deleteMatching(filter));
      expect([filter, deletion.code, deletion.details.action]).toEqual([filter, "invalid", "delete matching"]);
      expect(dumped).toEqual([]);
    }
    expect(await table.count()).toBe(Object.keys(ENTRIES).length);
  });
}
