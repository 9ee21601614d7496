import { Registry } from "prom-client";
import { expect, test } from "vitest";

import { TableMetrics } from "../../../src/observe/table-metrics.js";

const REPAIR = { family: "ip", found: [], changes: [], by: [], operations: 3, ms: 40 } as const;

test("every series exists from the start, and is counted by family and cause", async () => {
  const registry = new Registry();
  const metrics = new TableMetrics(registry, ["ip", "ip6"]);
  const series = async (name: string): Promise<string[]> =>
    (await registry.metrics()).split("\n").filter((line) => line.startsWith(`${name}{`) && !line.endsWith(" 0"));
  expect(await registry.metrics()).toContain(
    'nftproxier_table_repairs_total{ip_family="IPv6",cause="events-lost"} 0\n',
  );
  expect(await registry.metrics()).toContain('nftproxier_services_quarantined{ip_family="IPv6"} 0\n');
  expect(await registry.metrics()).toContain("nftproxier_tables_contended 0\n");
  expect(await registry.metrics()).toContain("nftproxier_tables_contended_total 0\n");
  metrics.contended();
  expect(await registry.metrics()).toContain("nftproxier_tables_contended 1\n");
  metrics.uncontended();
  expect(await registry.metrics()).toContain("nftproxier_tables_contended 0\n");
  expect(await registry.metrics()).toContain("nftproxier_tables_contended_total 1\n");
  expect(await registry.metrics()).toContain('nftproxier_table_rebuilds_total{ip_family="IPv6",result="refused"} 0\n');
  metrics.rebuilt({ family: "ip", ok: true, refused: [] });
  metrics.rebuilt({ family: "ip", ok: false, refused: [] });
  expect(await series("nftproxier_table_rebuilds_total")).toEqual([
    'nftproxier_table_rebuilds_total{ip_family="IPv4",result="written"} 1',
    'nftproxier_table_rebuilds_total{ip_family="IPv4",result="refused"} 1',
  ]);
  metrics.repaired({ ...REPAIR, cause: "table-deleted" });
  metrics.repaired({ ...REPAIR, cause: "changed" });
  metrics.repaired({ ...REPAIR, cause: "changed" });
  metrics.quarantined({ family: "ip", service: "a/b", reason: "refused" });
  metrics.quarantined({ family: "ip", service: "a/c", reason: "refused" });
  metrics.released({ family: "ip" });
  expect(await series("nftproxier_table_repairs_total")).toEqual([
    'nftproxier_table_repairs_total{ip_family="IPv4",cause="table-deleted"} 1',
    'nftproxier_table_repairs_total{ip_family="IPv4",cause="changed"} 2',
  ]);
  expect(await series("nftproxier_table_repair_seconds_count")).toEqual([
    'nftproxier_table_repair_seconds_count{ip_family="IPv4"} 3',
  ]);
  expect(await series("nftproxier_services_quarantined_total")).toEqual([
    'nftproxier_services_quarantined_total{ip_family="IPv4"} 2',
  ]);
  expect(await series("nftproxier_services_quarantined")).toEqual([
    'nftproxier_services_quarantined{ip_family="IPv4"} 1',
  ]);
});
