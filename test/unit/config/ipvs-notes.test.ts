import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { configFromFlags } from "../../../src/config/load.js";
import { parse } from "./parsing.ts";

const notes = (ipvs: string): readonly string[] => parse(`mode: nftables\nipvs: ${ipvs}\n`).notes;

describe("settings of kube-proxy's IPVS mode", () => {
  it.each([
    "{}",
    '{scheduler: "", excludeCIDRs: null, strictARP: false, syncPeriod: 0s, tcpTimeout: 0s}',
    "{syncPeriod: 30s}",
  ])("cause no note without an effect: %s", (ipvs) => {
    expect(notes(ipvs)).toEqual([]);
  });

  it("cause a note of the scheduler, and one that names the others", () => {
    const all =
      "{scheduler: sh, excludeCIDRs: [10.97.0.0/16], strictARP: true, tcpTimeout: 2h, tcpFinTimeout: 1m, udpTimeout: 5m, syncPeriod: 1m, minSyncPeriod: 2s}";
    expect(notes(all)).toEqual([
      expect.stringMatching(/^ipvs\.scheduler sh: not available.*docs\/migration-ipvs\.md/),
      expect.stringMatching(
        /^ipvs\.syncPeriod, ipvs\.minSyncPeriod, ipvs\.strictARP, ipvs\.tcpTimeout, ipvs\.tcpFinTimeout, ipvs\.udpTimeout: no effect/,
      ),
    ]);
    expect(notes("{excludeCIDRs: [10.97.0.0/16]}")).toEqual([]);
  });

  it("stand in the one warning of mode ipvs, which uses the periods", () => {
    const { notes, warnings } = parse(
      "mode: ipvs\nclusterCIDR: 10.0.0.0/8\nipvs: {scheduler: sh, strictARP: true, syncPeriod: 1m, minSyncPeriod: 2s}\n",
    );
    expect(notes).toEqual([]);
    expect(warnings).toEqual([
      expect.stringMatching(
        /^mode is ipvs, but this program always uses nftables rules\. Node ports .*\. ipvs\.scheduler sh: not available.*\. ipvs\.strictARP: no effect/,
      ),
    ]);
  });

  it("are quoted as they were written", () => {
    const overrides = { fields: { mode: "nftables", ipvs: { scheduler: "wrr", strictARP: true } } };
    expect(configFromFlags(overrides, (path) => `--${path}`).notes).toEqual([
      expect.stringMatching(/^--ipvs\.scheduler wrr: /),
      expect.stringContaining("--ipvs.strictARP"),
    ]);
  });

  it("are all documented", () => {
    const document = readFileSync(new URL("../../../docs/migration-ipvs.md", import.meta.url), "utf8");
    // Linux, net/netfilter/ipvs.
    const schedulers = ["rr", "wrr", "sh", "mh", "lc", "wlc", "sed", "nq", "twos", "lblc", "lblcr", "dh", "fo", "ovf"];
    for (const scheduler of schedulers) expect(document).toContain(`\`${scheduler}\``);
    for (const field of ["strictARP", "tcpTimeout", "tcpFinTimeout", "udpTimeout", "syncPeriod", "minSyncPeriod"])
      expect(document).toContain(`\`ipvs.${field}\``);
  });
});

describe("ipvs.excludeCIDRs", () => {
  it("are taken over in canonical form if they can be read", () => {
    const { config } = parse(`mode: nftables\nipvs: {excludeCIDRs: [10.97.1.2/16, "FD00::/8", x]}\n`);
    expect(config.ipvs.excludeCIDRs).toEqual(["10.97.0.0/16", "fd00::/8"]);
  });
});
