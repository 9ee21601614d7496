import { describe, expect, test } from "vitest";
import { checkMode, type ModeFacts, modesOf } from "../../../../src/migration/preflight/mode.js";
import { NO_MODE } from "./no-mode.ts";

const NAT = { family: "ip", table: "nat", chains: 12, jumps: 3, kept: [] } as const;
const IPVS = { kind: "ipvs", seen: "interface kube-ipvs0", command: "ip link delete kube-ipvs0" } as const;
const LEGACY = { kind: "iptables-legacy", seen: "ip nat: KUBE-SERVICES", command: "kube-proxy --cleanup" } as const;

const said = (facts: Partial<ModeFacts>): string[] =>
  checkMode({ ...NO_MODE, ...facts }).map(({ level, what }) => `${level}: ${what}`);

describe("modesOf", () => {
  test.each([
    ["nothing", NO_MODE, []],
    ["kube-proxy's tables", { tables: [{ family: "ip", whose: "kube-proxy's" }] }, ["nftables"]],
    ["ours", { tables: [{ family: "ip", whose: "ours" }] }, ["nft-proxier"]],
    ["chains in iptables-nft", { iptables: [NAT] }, ["iptables"]],
    ["the older iptables", { foreign: [LEGACY] }, ["iptables"]],
    ["IPVS, whose mode has chains in iptables, too", { iptables: [NAT], foreign: [IPVS] }, ["ipvs"]],
    [
      "an earlier change of mode",
      { tables: [{ family: "ip", whose: "kube-proxy's" }], iptables: [NAT] },
      ["nftables", "iptables"],
    ],
  ] as const)("%s", (_, facts, modes) => {
    expect(modesOf({ ...NO_MODE, ...facts })).toEqual(modes);
  });
});

describe("checkMode", () => {
  test("no tables of kube-proxy are ok", () => {
    expect(said({})).toEqual(["ok: kube-proxy has no rules on this node, so nothing is taken over or removed"]);
  });

  test("a handover's copy is not another program's, and is removed", () => {
    expect(said({ handover: ["ip"] })).toEqual([
      "ok: table ip nft-proxier-handover is a handover copy; nft-proxier removes it when its own rules are active",
    ]);
  });

  test("chains that other programs jump to are a note next to the removed ones", () => {
    const kept = [{ chain: "KUBE-MARK-MASQ", user: "a rule of chain CNI-HOSTPORT-SETMARK" }];
    expect(said({ iptables: [{ ...NAT, kept }] })).toEqual([
      "ok: kube-proxy has 12 chains in ip nat of iptables-nft; nft-proxier removes them, with 3 jumps, when its own rules are active",
      "note: rules of other programs jump to chains of kube-proxy in ip nat of iptables-nft, so these chains are kept: KUBE-MARK-MASQ (a rule of chain CNI-HOSTPORT-SETMARK)",
    ]);
  });

  test("a table that another program owns is a problem, whatever its contents", () => {
    const [first] = checkMode({
      ...NO_MODE,
      tables: [{ family: "ip6", whose: "kube-proxy's", owner: 7 }],
    });
    expect(first).toMatchObject({
      level: "problem",
      what: expect.stringContaining("table ip6 kube-proxy is owned") as string,
    });
  });

  test("a table that a running nft-proxier owns is a note", () => {
    const [first] = checkMode({ ...NO_MODE, tables: [{ family: "ip", whose: "ours", owner: 7 }] });
    expect(first).toMatchObject({ level: "note" });
  });
});
