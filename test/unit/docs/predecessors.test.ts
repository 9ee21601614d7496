/** The tables that map predecessors' files: every file that they name exists. */
import { existsSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";

const ROOT = new URL("../../../", import.meta.url);
const section = (readme: string, title: string): string =>
  readFileSync(new URL(readme, ROOT), "utf8")
    .split(/^## /m)
    .find((text) => text.startsWith(title)) ?? "";

describe("comparable programs", () => {
  test.each([
    ["src/nft/sync/README.md", "Calico Felix `iptables.Table` → here"],
    ["src/ruleset/README.md", "kube-proxy's iptables mode → here"],
  ])("%s, %s: every file exists", (readme, title) => {
    const names = [...section(readme, title).matchAll(/`((?:[a-z-]+\/)*[a-z-]+\.ts|src\/[a-z]+\/)`/g)].map(
      ([, name]) => name,
    );
    expect(names.length).toBeGreaterThan(5);
    const missing = names.filter((name) => {
      const path = name.startsWith("src/") ? [name] : [`src/nft/${name}`, new URL(name, new URL(readme, ROOT)).href];
      return !path.some((each) => existsSync(new URL(each, ROOT)));
    });
    expect(missing).toEqual([]);
  });

  test.each([
    "`KUBE-FW-`",
    "INVALID",
    "established",
    "route_localnet",
    "bridge-nf-call-iptables",
    "stale UDP",
    "CleanupLeftovers",
  ])("kube-proxy's iptables mode has a row for %s", (word) => {
    const rows = section("src/ruleset/README.md", "kube-proxy's iptables mode")
      .split("\n")
      .filter((line) => line.startsWith("| "));
    expect(rows.length).toBeGreaterThan(25);
    expect(rows.filter((row) => row.split(" | ")[0].includes(word))).toHaveLength(1);
  });
});
