import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { configFromFlags } from "../../../src/config/load.js";
import { IPVS_SCHEDULERS, ipvsNotes, schedulerNote } from "../../../src/config/ipvs-notes.js";
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

  it("cause one note each, with the equivalent setting", () => {
    const all =
      "{scheduler: sh, excludeCIDRs: [10.97.0.0/16], strictARP: true, tcpTimeout: 2h, tcpFinTimeout: 1m, udpTimeout: 5m, syncPeriod: 1m, minSyncPeriod: 2s}";
    expect(notes(all)).toEqual([
      expect.stringMatching(/^ipvs\.scheduler sh: .*nft-proxier\.dev\/balance: consistent/),
      expect.stringMatching(/^ipvs\.excludeCIDRs: virtual servers in 10\.97\.0\.0\/16 are kept/),
      expect.stringMatching(/^ipvs\.strictARP is not needed: .*arp_ignore and arp_announce keep/),
      expect.stringMatching(/^ipvs\.tcpTimeout is 2h.*conntrack\.tcpEstablishedTimeout/),
      expect.stringMatching(/^ipvs\.tcpFinTimeout is 1m.*conntrack\.tcpCloseWaitTimeout/),
      expect.stringMatching(/^ipvs\.udpTimeout is 5m.*conntrack\.udpTimeout.*conntrack\.udpStreamTimeout/),
      expect.stringMatching(/^ipvs\.syncPeriod is 1m.*nftables\.syncPeriod/),
      expect.stringMatching(/^ipvs\.minSyncPeriod is 2s.*nftables\.minSyncPeriod/),
    ]);
  });

  it("are quoted as they were written", () => {
    const overrides = { fields: { mode: "nftables", ipvs: { scheduler: "wrr" } } };
    expect(configFromFlags(overrides, (path) => `--${path}`).notes).toEqual([
      expect.stringMatching(/^--ipvs\.scheduler wrr: /),
    ]);
    expect(ipvsNotes(undefined)).toEqual([]);
  });

  it.each([
    ["rr", "each connection goes to a random endpoint"],
    ["wrr", "nft-proxier.dev/weights"],
    ["sh", "nft-proxier.dev/balance: consistent"],
    ["mh", "nft-proxier.dev/balance: consistent"],
    ["lc", "not available: the kernel selects an endpoint without knowing its number of connections"],
    ["wlc", "nft-proxier.dev/weights"],
    ["sed", "not available"],
    ["nq", "not available"],
    ["lblc", "not available"],
    ["lblcr", "not available"],
    ["dh", "not available"],
    ["fo", "not available"],
    ["ovf", "not available"],
    ["none", "unknown scheduler"],
    ["toString", "unknown scheduler"],
  ])("scheduler %s: %s", (scheduler, words) => {
    expect(schedulerNote(scheduler)).toContain(words);
  });

  it("are all documented", () => {
    const document = readFileSync(new URL("../../../docs/migration-ipvs.md", import.meta.url), "utf8");
    for (const scheduler of IPVS_SCHEDULERS) expect(document).toMatch(new RegExp(`\`${scheduler}\``));
  });
});

describe("ipvs.excludeCIDRs", () => {
  it("are taken over in canonical form if they can be read", () => {
    const { config } = parse(`mode: nftables\nipvs: {excludeCIDRs: [10.97.1.2/16, "FD00::/8", x]}\n`);
    expect(config.ipvs.excludeCIDRs).toEqual(["10.97.0.0/16", "fd00::/8"]);
  });
});
