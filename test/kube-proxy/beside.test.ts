/** kube-proxy and nft-proxier on one node at once: which one serves, what is reported, and what happens to kube-proxy's leftovers. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { eventually } from "../lab/eventually.ts";
import { patience } from "../lab/patience.ts";
import { clusterIP, nodePort, type ServiceSpec } from "../packets/support/objects.ts";
import { checkRow } from "../packets/support/rows.ts";
import { type KubeProxy, kubeProxyCleanup, type Mode, rulesOf } from "./support/kube-proxy.ts";
import { type NftProxier, Node } from "./support/node.ts";
import { kubeProxyMinor } from "./support/program.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a"] };
const moved: ServiceSpec = { ...web, endpoints: ["b"] };
const IPTABLES_MODES: readonly Mode[] = ["iptables-nft", "iptables-legacy"];

let node: Node;
beforeAll(async () => {
  node = await Node.create([web]);
});
afterAll(async () => node.destroy());
afterEach(async () => {
  await node.clear();
  await node.putServices([web]);
});

async function expectServed(...pods: readonly string[]): Promise<void> {
  const row = { rule: "", from: "client", to: [clusterIP(web), nodePort(web)], expect: { pods, masq: true } };
  // UDP connections end with their endpoint, a moment after the rules have changed.
  await eventually(async () => expect(await checkRow(node.cluster, { ...row, protocols: ["tcp"] })).toEqual([]));
}

/** Within this time kube-proxy notices that its rules are gone. */
const quick = { iptables: { syncPeriod: "2s", minSyncPeriod: "1s" } };

async function hasRules(mode: Mode): Promise<boolean> {
  const texts = await rulesOf(node.cluster.node, mode);
  return texts.every((text) => text.includes("-A KUBE-SERVICES"));
}

describe.each(IPTABLES_MODES)("a kube-proxy in mode %s that is still running", (mode) => {
  let kubeProxy: KubeProxy;

  test("kube-proxy writes its rules again, and ours run first; after its end they are removed again", async () => {
    kubeProxy = await node.startKubeProxy(mode, quick);
    const ours = await node.startNftProxier();
    await eventually(() =>
      expect(ours.said("leftovers of kube-proxy's other modes removed").length).toBeGreaterThan(3),
    );
    await eventually(async () => expect(await hasRules(mode)).toBe(true));
    await kubeProxy.end();
    await node.putServices([moved]);
    await expectServed("b");
    const gone = async (): Promise<void> =>
      expect(await rulesOf(node.cluster.node, mode)).not.toContainEqual(
        expect.stringMatching(/KUBE-(SERVICES|SVC|PROXY)/),
      );
    // It checks once a minute.
    await expect.poll(async () => hasRules(mode), { timeout: patience(90_000), interval: 500 }).toBe(false);
    await eventually(gone);
    await expectServed("b");
  });
});

test("a running kube-proxy in nftables mode does not delay changes", async () => {
  await node.startKubeProxy("nftables", { nftables: { syncPeriod: "2s", minSyncPeriod: "1s" } });
  await node.startNftProxier();
  await expectServed("a");
  await node.putServices([moved]);
  await expectServed("b");
});

/** Family and cause of each repair. */
const repairs = (ours: NftProxier): unknown[] =>
  ours.said("table changed by another process; repaired").map(({ family, cause }) => ({ family, cause }));
const BOTH_DELETED = ["ip", "ip6"].map((family) => ({ family, cause: "table-deleted" }));

test.runIf(kubeProxyMinor() >= 31)(
  "a kube-proxy from 1.31 on that starts in iptables mode removes our tables, and they are restored at once",
  async () => {
    const ours = await node.startNftProxier();
    await node.startKubeProxy("iptables-nft");
    await eventually(() => expect(repairs(ours)).toEqual(expect.arrayContaining(BOTH_DELETED)));
    await node.putServices([moved]);
    await expectServed("b");
  },
);

test("kube-proxy --cleanup removes our tables, and they are restored at once", async () => {
  const ours = await node.startNftProxier();
  const { stderr } = await kubeProxyCleanup(node.cluster.node, "iptables-nft");
  expect(stderr).not.toContain("Error cleaning up nftables rules");
  await eventually(() => expect(repairs(ours)).toEqual(expect.arrayContaining(BOTH_DELETED)));
  await expectServed("a");
});

test("kube-proxy --cleanup removes everything of ours from a node where we do not run", async () => {
  await node.startNftProxier();
  expect((await node.cluster.command(["handover"])).code).toBe(0);
  await node.endAll("SIGTERM");
  await kubeProxyCleanup(node.cluster.node, "iptables-nft");
  // kube-proxy's cleanup does not know the copy, which ends by itself.
  expect(await node.cluster.node.mustRun(["nft", "list", "tables"])).not.toMatch(/ kube-proxy$/m);
});
