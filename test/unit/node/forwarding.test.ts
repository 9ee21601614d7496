import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { defaultConfig } from "../../../src/config/load.js";
import { type ForwardingOptions, reportForwarding } from "../../../src/node/forwarding.js";
import { chainsWithRules } from "../../../src/node/legacy-layout.js";
import { FakeKernel } from "../../fakes/fake-kernel.ts";
import type { BaseChain, Family, Op } from "../../../src/nft/kernel/kernel.js";
import { keptIn, type LogLine } from "../../support/log.ts";
import { putFile, temporaryDirectory } from "../../support/temporary-directory.ts";

let root: string;
let lines: LogLine[];
let kernel: FakeKernel;
beforeEach(() => {
  root = temporaryDirectory();
  lines = [];
  kernel = new FakeKernel();
});
const report = (options: Partial<ForwardingOptions> = {}): Promise<void> =>
  reportForwarding({
    kernel,
    families: ["ip", "ip6"],
    config: defaultConfig(),
    log: keptIn(lines, "info"),
    root,
    ...options,
  });

const FORWARD: BaseChain = { type: "filter", hook: 2, priority: 0, policy: "drop" };

async function chain(family: Family, table: string, name: string, base: BaseChain, flags = 0): Promise<void> {
  const ops: Op[] = [
    { op: "add", kind: "table", family, table, ...(flags === 0 ? {} : { flags }) },
    { op: "add", kind: "chain", family, table, chain: name, base },
  ];
  await kernel.commit(ops);
}

describe("a chain that drops forwarded packets by policy", () => {
  test("is named, with the command that accepts services in it", async () => {
    await chain("ip", "filter", "FORWARD", FORWARD);
    await chain("ip6", "filter", "FORWARD", FORWARD);
    await chain("inet", "firewall", "forward", FORWARD);
    await report();
    expect(lines).toMatchObject([
      {
        level: "warn",
        family: "ip",
        table: "filter",
        chain: "FORWARD",
        command: "iptables -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT",
      },
      { family: "ip6", command: "ip6tables -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT" },
      { family: "inet", table: "firewall", command: "nft insert rule inet firewall forward ct status dnat accept" },
    ]);
  });

  test("is not reported if it accepts, hooks elsewhere, is dormant, or belongs to a family that is not served", async () => {
    await chain("ip", "accepts", "forward", { ...FORWARD, policy: "accept" });
    await chain("ip", "input", "input", { ...FORWARD, hook: 1 });
    await chain("ip", "asleep", "forward", FORWARD, 1);
    await chain("bridge", "other", "forward", FORWARD);
    await chain("ip6", "filter", "FORWARD", FORWARD);
    await report({ families: ["ip"] });
    expect(lines).toEqual([]);
  });

  test("may belong to the older iptables", async () => {
    await putFile(root, "proc/net/ip_tables_names", "filter\nnat\nmangle\n");
    const asked: string[] = [];
    await report({
      legacy: {
        forwardDrops: (family, table) => {
          asked.push(`${family} ${table}`);
          return Promise.resolve(table === "filter");
        },
        layout: () => Promise.resolve(""),
      },
    });
    expect(asked).toEqual(["ip filter", "ip mangle"]);
    expect(lines).toMatchObject([
      {
        family: "ip",
        table: "filter of iptables-legacy",
        command: "iptables-legacy -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT",
      },
    ]);
  });

  test("a failed search for such a chain is a warning, and the start continues", async () => {
    await putFile(root, "proc/net/ip_tables_names", "filter\n");
    const legacy = { forwardDrops: () => Promise.reject(new Error("EPERM")), layout: () => Promise.resolve("") };
    await report({ legacy });
    expect(lines).toMatchObject([{ level: "warn", msg: "checking for firewalls failed" }]);
  });
});

describe("pods on a bridge whose packets pass no rules", () => {
  const port = (bridge: string): Promise<void> => putFile(root, `sys/class/net/${bridge}/brif/veth0/x`, "");
  const settings = async (v4: string, v6: string): Promise<void> => {
    await putFile(root, "proc/sys/net/bridge/bridge-nf-call-iptables", v4);
    await putFile(root, "proc/sys/net/bridge/bridge-nf-call-ip6tables", v6);
  };

  test("are reported for each family whose setting is off", async () => {
    await port("cni0");
    await settings("1\n", "0\n");
    await report();
    expect(lines).toMatchObject([
      {
        level: "warn",
        bridge: "cni0",
        setting: "net.bridge.bridge-nf-call-ip6tables",
        present: 0,
        command: expect.stringContaining("sysctl -w net.bridge.bridge-nf-call-ip6tables=1") as string,
      },
    ]);
  });

  test("are reported if br_netfilter is not loaded, whatever the bridge says", async () => {
    await port("cni0");
    await putFile(root, "sys/class/net/cni0/bridge/nf_call_iptables", "1\n");
    await report({ families: ["ip"] });
    expect(lines).toMatchObject([{ bridge: "cni0", present: "br_netfilter is not loaded" }]);
  });

  test("are accepted if the bridge itself calls the rules", async () => {
    await port("cni0");
    await settings("0\n", "1\n");
    await putFile(root, "sys/class/net/cni0/bridge/nf_call_iptables", "1\n");
    await report();
    expect(lines).toEqual([]);
  });

  test("do not exist without a bridge that has a port, unless the configuration names it as the pods'", async () => {
    await mkdir(join(root, "sys/class/net/docker0/brif"), { recursive: true });
    await mkdir(join(root, "sys/class/net/eth0"), { recursive: true });
    await report();
    expect(lines).toEqual([]);
    const config = {
      detectLocalMode: "BridgeInterface",
      detectLocal: { bridgeInterface: "docker0", interfaceNamePrefix: "" },
    } as const;
    await report({ config, families: ["ip"] });
    expect(lines).toMatchObject([{ bridge: "docker0" }]);
  });
});

test("the start and end of an iptables-legacy chain show whether it has rules", () => {
  // An empty filter: INPUT, FORWARD and OUTPUT begin with their policies.
  expect(chainsWithRules("632 4 14 0 0 152 304 0 0 0 152 304 0")).toEqual([]);
  expect(chainsWithRules("784 5 14 0 0 152 456 0 0 0 304 456 0")).toEqual(["FORWARD"]);
  // Offsets of hooks that the table does not use mean nothing.
  expect(chainsWithRules("480 3 9 0 7 7 152 7 0 8 8 152 8")).toEqual([]);
});
