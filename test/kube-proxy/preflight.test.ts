/** `preflight` on a node where kube-proxy itself serves: its statements are true. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import type { PreflightReport } from "../../src/migration/preflight/preflight-report.ts";
import { eventually } from "../lab/eventually.ts";
import { PLAN } from "../lab/topology.ts";
import { clusterIP, type Manifest, nodePort, type ServiceSpec } from "../packets/support/objects.ts";
import { checkRow } from "../packets/support/rows.ts";
import { type Mode, MODES, rulesOf } from "./support/kube-proxy.ts";
import { Node } from "./support/node.ts";

const web: ServiceSpec = { name: "web", n: 1, endpoints: ["a", "r1"] };

let node: Node;
beforeAll(async () => {
  node = await Node.create([web]);
});
afterAll(async () => node.destroy());
afterEach(async () => {
  await node.clear();
  await node.cluster.node.sysctl({ "net.ipv4.conf.all.route_localnet": 0 });
});

async function runPreflight(
  settings: Manifest = {},
): Promise<{ code: number; report: PreflightReport; says(check: string): string[] }> {
  const { code, stdout } = await node.cluster.command([
    "preflight",
    "--config",
    await node.configure(settings),
    "-o",
    "json",
  ]);
  const report = JSON.parse(stdout) as PreflightReport;
  const says = (check: string): string[] =>
    report.findings.filter((one) => one.check === check).map(({ level, what }) => `${level}: ${what}`);
  return { code, report, says };
}

/** Number of kube-proxy's chains that its own tool lists in a table of the family. */
async function chainsIn(mode: Mode, table: string): Promise<number> {
  const [text = ""] = await rulesOf(node.cluster.node, mode);
  const part = text.split(/^\*/m).find((each) => each.startsWith(`${table}\n`)) ?? "";
  return [...part.matchAll(/^:(KUBE-\S+)/gm)].filter(([, name]) => !/^KUBE-(FIREWALL|IPTABLES-HINT)$/.test(name ?? ""))
    .length;
}

describe.each(MODES)("mode %s", (mode) => {
  test("its mode is recognized, its ports are its own, and its health and node ports are no obstacle", async () => {
    await node.startKubeProxy(mode);
    const { report, says } = await runPreflight({ nodePortAddresses: ["primary"] });
    expect(report.findings.filter(({ level }) => level === "problem")).toEqual([]);
    for (const bind of ["healthzBindAddress 0.0.0.0:10256", "metricsBindAddress 127.0.0.1:10249"]) {
      expect(report.findings.map(({ what }) => what)).toContainEqual(
        `${bind} is in use by kube-proxy, and free after it exits`,
      );
    }
    const modes = says("mode");
    if (mode === "nftables") {
      for (const family of ["ip", "ip6"]) {
        expect(modes).toContainEqual(
          expect.stringContaining(
            `table ${family} kube-proxy belongs to kube-proxy's nftables mode; nft-proxier takes it over`,
          ),
        );
      }
    } else if (mode === "iptables-nft") {
      for (const table of ["nat", "filter"]) {
        const chains = await chainsIn(mode, table);
        expect(modes).toContainEqual(
          expect.stringContaining(`kube-proxy has ${chains} chains in ip ${table} of iptables-nft`),
        );
      }
    } else {
      expect(modes).toContainEqual(
        expect.stringMatching(
          /^ok: iptables-legacy is in use \(.*ip nat: KUBE-\S+ and \d+ more chains\); nft-proxier removes kube-proxy's chains there/,
        ),
      );
    }
    // `preflight` has changed nothing.
    const row = { rule: "", from: "client", to: clusterIP(web), expect: { pods: ["a", "r1"], masq: true } } as const;
    expect(await checkRow(node.cluster, row)).toEqual([]);
  });
});

describe.each(MODES.filter((mode) => mode !== "nftables"))("mode %s, without nodePortAddresses", (mode) => {
  const elsewhere = nodePort(web, PLAN.nodeOutside);

  test("node ports on other addresses, which would disappear, are named; they existed before, and are gone after", async () => {
    await node.startKubeProxy(mode);
    const { says } = await runPreflight();
    expect(says("node-ports")).toContainEqual(
      expect.stringContaining("serves node ports on all of the node's addresses"),
    );
    const row = { rule: "", from: "client", to: elsewhere, protocols: ["tcp"] } as const;
    expect(await checkRow(node.cluster, { ...row, expect: { pods: ["a", "r1"], masq: true } })).toEqual([]);
    await node.endAll("SIGTERM");
    await node.startNftProxier();
    // kube-proxy's leftovers are removed a moment after our rules become active.
    await eventually(async () => expect(await checkRow(node.cluster, { ...row, expect: "untouched" })).toEqual([]));
  });
});
