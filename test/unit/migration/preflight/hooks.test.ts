import { describe, expect, test } from "vitest";
import { CmpOp, Hook, MetaKey, Priority } from "../../../../src/netlink/constants.js";
import type { BaseChain, Expr } from "../../../../src/netlink/kernel.js";
import {
  checkHooks,
  type ForeignChain,
  type HookFacts,
  readForeignChains,
} from "../../../../src/migration/preflight/hooks.js";
import type { ModeFacts } from "../../../../src/migration/preflight/mode.js";
import { FakeKernel } from "../../../fakes/fake-kernel.ts";
import { NO_MODE } from "./no-mode.ts";
import { type ChainWithRules, jump, tableWith, verdict } from "../../../support/operations.ts";

const accept = verdict("accept");
/** nft_compat's attribute: NFTA_TARGET_NAME, padded to 32 bytes. */
function target(name: string): Expr {
  const data = new Uint8Array(36);
  data.set([36, 0, 1, 0]);
  data.set(Buffer.from(name), 4);
  return { type: "opaque", name: "target", data };
}
const FORWARD: BaseChain = { type: "filter", hook: Hook.forward, priority: 0, policy: "drop" };
const NAT: BaseChain = { type: "nat", hook: Hook.prerouting, priority: Priority.dstnat };

async function read(table: string, chains: Readonly<Record<string, ChainWithRules>>): Promise<ForeignChain[]> {
  const kernel = new FakeKernel();
  await kernel.commit(tableWith({ family: "ip", table }, chains));
  return readForeignChains(kernel, ["ip", "ip6"]);
}

const IPTABLES: ModeFacts = {
  ...NO_MODE,
  iptables: [{ family: "ip", table: "filter", chains: 5, jumps: 4, kept: [] }],
};
const said = (facts: Partial<HookFacts>): string[] =>
  checkHooks({
    ...{ mode: NO_MODE, chains: [], legacyNat: [], dropping: [], bridges: [], interfaces: [], masqueradeBit: 14 },
    firewalls: { problems: [] },
    ...facts,
  }).map(({ level, what }) => `${level}: ${what}`);
const DROPPING = [{ family: "ip", table: "filter", chain: "FORWARD", command: "iptables -I FORWARD" }];

describe("a policy that drops forwarded packets", () => {
  test("is a problem if only kube-proxy's rules accept", async () => {
    const chains = await read("filter", {
      FORWARD: { base: FORWARD, rules: [[jump("KUBE-FORWARD")]] },
      "KUBE-FORWARD": { rules: [[accept]] },
    });
    expect(said({ chains, dropping: DROPPING, mode: IPTABLES })).toEqual([
      expect.stringMatching(/^problem: chain FORWARD of table ip filter drops .* no rule that accepts any/),
    ]);
  });

  test("is a note if another program's rule may accept, even in its own chain", async () => {
    const chains = await read("filter", {
      FORWARD: { base: FORWARD, rules: [[jump("KUBE-FORWARD")], [jump("FLANNEL-FWD")]] },
      "KUBE-FORWARD": {},
      "FLANNEL-FWD": { rules: [[accept]] },
    });
    expect(said({ chains, dropping: DROPPING, mode: IPTABLES })).toEqual([
      expect.stringMatching(/^note: chain FORWARD .*; kube-proxy's rules there accept its own packets/),
    ]);
  });

  test("is a note for the older iptables, whose rules are not read", () => {
    expect(said({ dropping: DROPPING })).toEqual([expect.stringMatching(/^note: chain FORWARD/)]);
  });
});

describe("rules that drop packets to services", () => {
  const problems = [{ what: "chain f drops packets to default/web", remedy: "accept them" }];

  test("are problems, and notes if they are kube-proxy's rules in iptables, which are removed", () => {
    expect(said({ firewalls: { problems } })).toEqual(["problem: chain f drops packets to default/web"]);
    expect(said({ firewalls: { problems }, mode: IPTABLES })).toEqual(["note: chain f drops packets to default/web"]);
  });

  test("a drop by a chain's policy is reported once: for all packets, or for these services", async () => {
    const dropped = "chain FORWARD (hook forward) of table ip filter drops packets to default/web: by policy";
    const policyOf = "ip filter FORWARD";
    const firewalls = { problems: [{ what: dropped, remedy: "accept them", policyOf }, ...problems] };
    const others = "problem: chain f drops packets to default/web";
    // Nobody can know whether one of the policy chain's rules accepts them; the tried packets are certain.
    expect(said({ dropping: DROPPING, firewalls })).toEqual([`problem: ${dropped}`, others]);
    const chains = await read("filter", { FORWARD: { base: FORWARD } });
    const forAll = expect.stringMatching(/^problem: chain FORWARD .* has no rule that accepts any/) as string;
    expect(said({ chains, dropping: DROPPING, firewalls })).toEqual([forAll, others]);
  });

  test("are not ruled out for services that were not checked, or if the result depends on unknown facts", () => {
    const check = {
      checked: 2,
      services: 3,
      unjudged: 1,
      unjudgedRule: "ip ttl 63 drop",
      unread: ["ip big (5000 rules)"],
    };
    expect(said({ firewalls: { problems: [], check } })).toEqual([
      "note: other programs may drop packets to services: only 2 of 3 services were checked; " +
        "for 1 of 3 services the result depends on facts that are not visible here, as in this rule: ip ttl 63 drop; not read: ip big (5000 rules)",
    ]);
  });

  test("are not looked for without services", () => {
    expect(said({ firewalls: undefined })).toEqual([
      "ok: no other program's chains block services; their rules were not tried with packets to services",
    ]);
  });
});

describe("NAT", () => {
  test("does not include kube-proxy's own jumps", async () => {
    const chains = await read("nat", {
      PREROUTING: { base: NAT, rules: [[jump("KUBE-SERVICES")]] },
      "KUBE-SERVICES": { rules: [[accept]] },
    });
    expect(said({ chains })).toEqual(["ok: no other program's rules block services"]);
  });

  test("NAT of other programs is named with its owner", async () => {
    const chains = await read("nat", {
      PREROUTING: { base: NAT, rules: [[jump("CNI-HOSTPORT-DNAT")]] },
      "CNI-HOSTPORT-DNAT": { rules: [[accept]] },
    });
    expect(said({ chains })).toEqual([
      "note: chain PREROUTING of table ip nat (the CNI plug-in portmap, nat at prerouting, priority -100), which jumps to CNI-HOSTPORT-DNAT, sees packets before nft-proxier's rules",
    ]);
  });

  test("NAT of the older iptables is named, too", () => {
    expect(said({ legacyNat: [{ family: "ip", chains: ["DOCKER"] }] })).toEqual([
      "note: nat of iptables-legacy (ip) has chains of other programs (Docker: DOCKER), which may see packets before nft-proxier's rules",
    ]);
  });
});

test("does not include nft-proxier's own tables", async () => {
  for (const table of ["kube-proxy", "nft-proxier-handover", "nft-proxier-flowtable"]) {
    expect(await read(table, { "nat-prerouting": { base: NAT, rules: [[accept]] } })).toEqual([]);
  }
});

describe("untracked packets", () => {
  const raw: BaseChain = { type: "filter", hook: Hook.prerouting, priority: Priority.raw };

  const ways: readonly (readonly [name: string, expr: Expr])[] = [
    ["nft's own", { type: "notrack" }],
    ["iptables' CT", target("CT")],
    ["the older NOTRACK", target("NOTRACK")],
  ];
  test.each(ways)("%s is a note", async (_, expr) => {
    const chains = await read("raw", { PREROUTING: { base: raw, rules: [[expr]] } });
    expect(said({ chains })).toEqual([
      expect.stringMatching(/^note: table ip raw exempts packets from connection tracking \(chain PREROUTING\)/),
    ]);
  });

  test("other targets are not reported", async () => {
    const chains = await read("raw", { PREROUTING: { base: raw, rules: [[target("LOG")]] } });
    expect(said({ chains })).toEqual([expect.stringMatching(/^ok/)]);
  });
});

test("flowtables, bridges and Cilium are notes", async () => {
  const kernel = new FakeKernel();
  const ref = { family: "inet", table: "fast" } as const;
  const base: BaseChain = { ...FORWARD, policy: "accept" };
  await kernel.commit([
    { op: "add", kind: "table", ...ref },
    { op: "add", kind: "chain", ...ref, chain: "forward", base },
  ]);
  const exprs: Expr[] = [{ type: "flow_offload", flowtable: "f" }];
  kernel.rules = () => Promise.resolve([{ ...ref, chain: "forward", handle: 2n, exprs }]);
  const chains = await readForeignChains(kernel, ["ip", "ip6"]);
  const bridges = [
    { bridge: "cni0", setting: "net.bridge.bridge-nf-call-iptables", present: 0, command: "modprobe br_netfilter" },
  ];
  expect(said({ chains, bridges, interfaces: ["lo", "cilium_host"] })).toEqual([
    expect.stringMatching(/^note: table inet fast offloads connections to a flowtable/),
    expect.stringMatching(/^note: packets between ports of bridge cni0 skip/),
    expect.stringMatching(/^note: Cilium has interfaces on this node/),
  ]);
});

describe("the masquerade bit of the packet mark", () => {
  const word = (value: number): Uint8Array => new Uint8Array(Uint32Array.of(value).buffer);
  const load: Expr = { type: "meta", key: MetaKey.mark, dreg: 1 };
  const store: Expr = { type: "meta", key: MetaKey.mark, sreg: 1 };
  const bitwise = (mask: number, xor: number): Expr => {
    return { type: "bitwise", sreg: 1, dreg: 1, len: 4, mask: word(mask), xor: word(xor) };
  };
  const or = (value: number): Expr[] => [load, bitwise(~value >>> 0, value), store];
  const cmp: Expr = { type: "cmp", sreg: 1, op: CmpOp.neq, data: word(0) };
  /** nft_compat's attributes: NAME, REV and INFO. */
  const compat = (kind: "match" | "target", name: string, revision: number, ...words: number[]): Expr => {
    const data = Buffer.alloc(36 + 8 + 4 + words.length * 4);
    const view = new DataView(data.buffer, data.byteOffset);
    const little = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;
    const header = (at: number, length: number, type: number): void => {
      view.setUint16(at, length, little);
      view.setUint16(at + 2, type, little);
    };
    header(0, 36, 1);
    data.write(name, 4);
    header(36, 8, 2);
    data.writeUInt32BE(revision, 40);
    header(44, 4 + words.length * 4, 3);
    for (const [i, one] of words.entries()) data.set(word(one), 48 + i * 4);
    return { type: "opaque", name: kind, data: new Uint8Array(data) };
  };
  const forward: BaseChain = { ...FORWARD, policy: "accept" };
  const mangle: BaseChain = { type: "filter", hook: Hook.prerouting, priority: -150, policy: "accept" };
  const input: BaseChain = { ...forward, hook: Hook.input };
  const late: BaseChain = { ...forward, hook: Hook.postrouting, priority: 200 };
  const SETS =
    /^problem: rules of table ip cni set bit 14 of the packet mark \(0x4000\) \(chain marks, from base\), so /;
  const CLEARS = /^problem: rules of table ip cni overwrite bit 14 .* are not masqueraded$/;
  const LOOKS = /^note: rules of table ip cni read bit 14 .*which nft-proxier sets/;

  test.each<[string, BaseChain, Expr[], RegExp | undefined]>([
    ["set with others", forward, or(0x14000), SETS],
    ["set with the whole mark", mangle, [{ type: "immediate", dreg: 1, data: word(0x4000) }, store], SETS],
    ["set by iptables' MARK", mangle, [compat("target", "MARK", 2, 0x4000, 0x4000)], SETS],
    ["set after the last masquerading", input, or(0x4000), undefined],
    ["set after our rules", late, or(0x4000), undefined],
    ["another bit is set", forward, or(0x2000), undefined],
    ["another bit is set by MARK", mangle, [compat("target", "MARK", 2, 0x2000, 0x2000)], undefined],
    ["cleared with the whole mark", forward, [{ type: "immediate", dreg: 1, data: word(1) }, store], CLEARS],
    ["cleared by a stored mark", forward, [{ type: "ct", key: 3, dreg: 1 }, store], CLEARS],
    [
      "cleared by CONNMARK --restore-mark",
      forward,
      [compat("target", "CONNMARK", 1, 0, ~0 >>> 0, ~0 >>> 0, 2)],
      CLEARS,
    ],
    ["another bit restored", forward, [compat("target", "CONNMARK", 1, 0, 0x80, 0x80, 2)], undefined],
    ["cleared before it is set", mangle, [{ type: "immediate", dreg: 1, data: word(1) }, store], undefined],
    ["matched", forward, [load, bitwise(0x4000, 0), cmp], LOOKS],
    ["matched by iptables' mark", forward, [compat("match", "mark", 1, 0x4000, 0x4000, 0)], LOOKS],
    ["another bit matched", forward, [load, bitwise(0x8000, 0), cmp], undefined],
    ["the whole mark matched", forward, [load, cmp], undefined],
    [
      "the mark of the connection",
      forward,
      [load, bitwise(~0x4000 >>> 0, 0x4000), { type: "ct", key: 3, sreg: 1 }],
      undefined,
    ],
  ])("%s", async (_, base, rule, expected) => {
    const kernel = new FakeKernel();
    const ref = { family: "ip", table: "cni" } as const;
    await kernel.commit([
      { op: "add", kind: "table", ...ref },
      { op: "add", kind: "chain", ...ref, chain: "base", base },
      { op: "add", kind: "chain", ...ref, chain: "marks" },
    ]);
    // The fake does not support nft_compat's expressions.
    kernel.rules = (_of, chain) =>
      Promise.resolve([{ ...ref, chain: chain ?? "", handle: 2n, exprs: chain === "base" ? [jump("marks")] : rule }]);
    const chains = await readForeignChains(kernel, ["ip"]);
    expect(said({ chains })).toEqual([expect.stringMatching(expected ?? /^ok/)]);
    expect(said({ chains, masqueradeBit: 19 }).filter((one) => one.includes(" bit 19 "))).toEqual(
      expected === CLEARS ? [expect.stringMatching(/^problem: .* overwrite bit 19/)] : [],
    );
  });
});
