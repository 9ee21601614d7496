/**
 * Moving from kube-proxy and back, with 1,000 open connections and thousands of new ones a second: none is lost. kube-proxy's rules are
 * removed, and others' rules stay.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { eventually } from "../lab/eventually.ts";
import { FAMILIES } from "../lab/topology.ts";
import { changeOver, createCluster, expectNoFailure, SERVICES } from "../packets/support/change-over.ts";
import { clusterIP, type ServiceSpec } from "../packets/support/objects.ts";
import { checkRow } from "../packets/support/rows.ts";
import { iptables, type Mode, MODES, rulesOf } from "./support/kube-proxy.ts";
import { Node } from "./support/node.ts";
import { kubeProxyMinor } from "./support/program.ts";

let node: Node;
beforeAll(async () => {
  node = await Node.create(SERVICES, await createCluster());
});
afterAll(async () => node.destroy());
afterEach(async () => node.clear());

/** Rules of a firewall and of a CNI plugin, in the tables that kube-proxy writes. */
const OTHERS: readonly (readonly string[])[] = [
  ["-t", "filter", "-N", "FIREWALL"],
  ["-t", "filter", "-A", "FIREWALL", "-m", "comment", "--comment", "of another program", "-j", "RETURN"],
  ["-t", "filter", "-A", "INPUT", "-j", "FIREWALL"],
  ["-t", "mangle", "-N", "QOS"],
  ["-t", "mangle", "-A", "FORWARD", "-j", "QOS"],
  ["-t", "nat", "-N", "CNI-MASQ"],
  ["-t", "nat", "-A", "CNI-MASQ", "-m", "mark", "--mark", "0x2000/0x2000", "-j", "MASQUERADE"],
  ["-t", "nat", "-A", "POSTROUTING", "-j", "CNI-MASQ"],
];
const OTHER_TABLE =
  "table inet other { chain input { type filter hook input priority 10; ip saddr 198.18.0.0/15 drop; }; }";

async function addOthers(mode: Mode): Promise<void> {
  await node.cluster.node.mustRun(["nft", "-f", "-"], { input: OTHER_TABLE });
  if (mode === "nftables") return;
  for (const words of OTHERS) {
    for (const program of ["iptables", "ip6tables"]) await iptables(node.cluster.node, mode, [program, ...words]);
  }
}

/** kube-proxy creates it and never removes it, because it belongs to kubelet as well. */
const KUBELETS = /KUBE-FIREWALL/;

/** Other programs' rules, without counters. */
async function others(mode: Mode): Promise<readonly string[]> {
  const table = await node.cluster.node.mustRun(["nft", "-s", "list", "table", "inet", "other"]);
  if (mode === "nftables") return [table];
  const lines = (await rulesOf(node.cluster.node, mode)).map((text) =>
    text
      .split("\n")
      .filter((line) => /^-A|^:/.test(line) && !KUBELETS.test(line))
      .map((line) => line.replace(/ \[\d+:\d+\]$/, ""))
      .join("\n"),
  );
  return [table, ...lines];
}

/** Patterns that identify kube-proxy's rules. */
const THEIRS: Readonly<Record<Mode, RegExp>> = {
  nftables:
    /(service|local|external|endpoint|firewall|affinity)-[A-Z2-7]{8}-|chain (masquerading|mark-for-masquerade|firewall-check|cluster-ips-check|filter-prerouting |filter-output-post-dnat)/,
  "iptables-nft": /KUBE-(?!FIREWALL)/,
  "iptables-legacy": /KUBE-(?!FIREWALL)/,
};

async function theirs(mode: Mode): Promise<readonly string[]> {
  const texts = await rulesOf(node.cluster.node, mode);
  return texts.flatMap((text) => text.split("\n").filter((line) => THEIRS[mode].test(line)));
}

describe.each(MODES)("kube-proxy in mode %s", (mode) => {
  test("our start after its end loses no connection and removes its rules, and others' rules stay", async () => {
    await addOthers(mode);
    const before = await others(mode);
    const kubeProxy = await node.startKubeProxy(mode);
    expect(await theirs(mode)).not.toEqual([]);
    await expectNoFailure(node.cluster, async () => {
      await kubeProxy.end();
      await node.startNftProxier();
      await eventually(async () => expect(await theirs(mode)).toEqual([]));
    });
    expect(await others(mode)).toEqual(before);
  });

  test("the way back to kube-proxy after a handover loses no connection", async () => {
    await node.startNftProxier();
    await expectNoFailure(node.cluster, async () => {
      expect((await node.cluster.command(["handover"])).code).toBe(0);
      await node.endAll("SIGTERM");
      await node.startKubeProxy(mode);
      await sleep(1500);
    });
  });
});

test("no connection is lost while both run in nftables mode and services are created and changed", async () => {
  await node.startKubeProxy("nftables");
  await expectNoFailure(node.cluster, async () => {
    await node.startNftProxier();
    for (let n = 10; n < 20; n++) {
      const endpoints = n % 2 === 0 ? ["a"] : [];
      await node.putServices([
        { name: `new-${n}`, n, endpoints: ["a"] },
        { name: "changing", n: 20, endpoints },
      ]);
      // Longer than kube-proxy waits between two writes.
      await sleep(1200);
    }
  });
});

test("the way back to the nftables mode needs no handover", async () => {
  await node.startNftProxier();
  await expectNoFailure(node.cluster, async () => {
    await node.endAll("SIGTERM");
    await node.startKubeProxy("nftables");
    // Its second sync removes what it considers stale.
    await sleep(1500);
  });
});

test("on the way back to the iptables mode without a handover, new connections fail, and open ones stay", async () => {
  await node.startNftProxier();
  const { failures } = await changeOver(node.cluster, async () => {
    await node.endAll("SIGTERM");
    await node.startKubeProxy("iptables-nft");
  });
  expect(failures).not.toEqual([]);
});

describe.runIf(kubeProxyMinor() < 31).each(["iptables-nft", "iptables-legacy"] as const)(
  "a return to a kube-proxy before 1.31 in mode %s, which does not know the table of its nftables mode",
  (mode) => {
    const [web] = SERVICES;
    const moved: ServiceSpec = { ...web, endpoints: ["b"] };
    afterEach(async () => node.putServices(SERVICES));

    test("our table stays until it is deleted by hand; then kube-proxy serves", async () => {
      const tables = async (): Promise<string> => node.cluster.node.mustRun(["nft", "list", "tables"]);
      await node.startNftProxier();
      await node.endAll("SIGTERM");
      await node.startKubeProxy(mode, { featureGates: {} });
      expect(await tables()).toMatch(/ kube-proxy$/m);
      for (const family of FAMILIES) await node.cluster.node.mustRun(["nft", "delete", "table", family, "kube-proxy"]);
      await node.putServices([moved]);
      const row = { rule: "", from: "client", to: clusterIP(web), protocols: ["tcp"] } as const;
      await eventually(async () =>
        expect(await checkRow(node.cluster, { ...row, expect: { pods: ["b"], masq: true } })).toEqual([]),
      );
    });
  },
);
