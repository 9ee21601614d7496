import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FakeIpvs } from "../../../fakes/fake-ipvs.ts";
import { keptIn, type LogLine } from "../../../support/log.ts";
import { type IpFamily, parseCIDR } from "../../../../src/base/ip.js";
import type { VirtualServer } from "../../../../src/netlink/ipvs-table.js";
import { IpvsRemoval, removeIpvsNow } from "../../../../src/migration/leftovers/ipvs-removal.js";
import { ipvsKernel, socketAddresses } from "../../../../src/migration/leftovers/ipvs-kernel.js";
import { familyOfSet, ownerOf, serverText } from "../../../../src/migration/leftovers/ipvs-names.js";
import { connectionsOf, ipvsPass, type IpvsPass } from "../../../../src/migration/leftovers/ipvs-pass.js";
import { putFile, temporaryDirectory } from "../../../support/temporary-directory.ts";

const BOTH: readonly IpFamily[] = ["ip", "ip6"];
const excluded = [parseCIDR("10.97.0.0/16")!];

let node: FakeIpvs;
let lines: LogLine[];
beforeEach(() => {
  node = new FakeIpvs();
  lines = [];
});

const pass = (remove: "when-idle" | "now" = "when-idle", families = BOTH): Promise<IpvsPass> =>
  ipvsPass({ kernel: node, families: new Set(families), excluded, remove });

describe("the owner of a virtual server", () => {
  const marks = { bound: new Set(["10.96.0.1", "fd00::1"]), nodePorts: new Set(["ip TCP 30080"]), excluded };
  const server = (protocol: VirtualServer["protocol"], address: string, port: number, fwmark = 0): VirtualServer => {
    const family = address.includes(":") ? ("ip6" as const) : ("ip" as const);
    return { family, fwmark, protocol, address, port, scheduler: "rr" };
  };
  it.each([
    ["kube-proxy", "an address of its interface", server("TCP", "10.96.0.1", 443)],
    ["kube-proxy", "an IPv6 address of its interface", server("UDP", "fd00::1", 53)],
    ["kube-proxy", "a node port, at any address", server("TCP", "192.0.2.10", 30_080)],
    ["foreign", "a node port's number of another protocol", server("UDP", "192.0.2.10", 30_080)],
    ["foreign", "a node port's number in another family", server("TCP", "2001:db8::1", 30_080)],
    ["foreign", "keepalived's address", server("TCP", "192.0.2.20", 6443)],
    ["foreign", "a firewall mark", server(undefined, "", 0, 7)],
    ["foreign", "a protocol that services do not have", server(undefined, "10.96.0.1", 443)],
    ["excluded", "in excludeCIDRs", server("TCP", "10.97.3.4", 80)],
  ])("%s: %s", (owner, _what, of) => {
    expect(ownerOf(of, { ...marks, bound: new Set([...marks.bound, "10.97.3.4"]) })).toBe(owner);
  });

  it("it is named as it is written", () => {
    expect(serverText(server("TCP", "10.96.0.1", 443))).toBe("TCP 10.96.0.1:443");
    expect(serverText(server("UDP", "fd00::1", 53))).toBe("UDP [fd00::1]:53");
    expect(serverText(server(undefined, "", 0, 7))).toBe("mark 7");
  });
});

describe("the owner of a set", () => {
  it.each([
    ["KUBE-CLUSTER-IP", "ip"],
    ["KUBE-6-CLUSTER-IP", "ip6"],
    ["KUBE-IPVS-IPS", "ip"],
    ["KUBE-NODE-PORT-LOCAL-SCTP-HASH", "ip"],
    // Names have at most 31 characters.
    ["KUBE-6-NODE-PORT-LOCAL-SCTP-HAS", "ip6"],
    ["KUBE-6-LOAD-BALANCER-SOURCE-CID", "ip6"],
    ["KUBE-6-NODE-PORT-LOCAL-SCTP-HASH", undefined],
    ["KUBE-MINE", undefined],
    ["cali40masq-ipam-pools", undefined],
  ])("%s: %s", (name, family) => {
    expect(familyOfSet(name)).toBe(family);
  });
});

describe("open connections", () => {
  it("include established, opening and closing ones", () => {
    expect(
      connectionsOf([
        { active: 3, inactive: 2 },
        { active: 0, inactive: 1 },
      ]),
    ).toBe(6);
  });
});

describe("a check", () => {
  it("finds and changes nothing on a clean node", async () => {
    node.bound = undefined;
    expect(await pass()).toEqual({
      removed: { virtualServers: 0, addresses: 0, interfaces: 0, ipsets: 0 },
      waitingServers: 0,
      openConnections: 0,
      waitingAddresses: [],
      busySets: [],
      foreign: [],
      excluded: [],
    });
  });

  it("removes idle servers, and keeps the address of busy ones without new connections", async () => {
    node.bind("10.96.0.1", "10.96.0.2", "fd00::1");
    node.serve("TCP", "10.96.0.1", 80, 3);
    node.serve("UDP", "10.96.0.1", 80);
    node.serve("TCP", "10.96.0.2", 80);
    node.serve("TCP", "fd00::1", 80, 0, { inactive: 1 });
    node.sets.set("KUBE-CLUSTER-IP", []);
    expect(await pass()).toMatchObject({
      removed: { virtualServers: 2, addresses: 1 },
      waitingServers: 2,
      openConnections: 4,
    });
    expect(node.left).toEqual(["TCP 10.96.0.1:80", "TCP [fd00::1]:80"]);
    expect(node.bound?.map(({ address }) => address)).toEqual(["10.96.0.1", "fd00::1"]);
    expect(node.servers.map(({ destinations: [{ weight }] }) => weight)).toEqual([0, 0]);
    expect([...node.sets.keys()]).toEqual(["KUBE-CLUSTER-IP"]);
    node.idle();
    expect(await pass()).toMatchObject({ removed: { virtualServers: 2, interfaces: 1, ipsets: 1 } });
    expect([node.left, node.bound, [...node.sets]]).toEqual([[], undefined, []]);
  });

  it("takes node ports out of their sets, which stay as long as a server of the family is busy", async () => {
    node.sets.set("KUBE-NODE-PORT-TCP", [30_080]).set("KUBE-6-CLUSTER-IP", []);
    node.serve("TCP", "192.0.2.10", 30_080, 1);
    node.serve("TCP", "192.0.2.20", 6443);
    expect(await pass()).toMatchObject({ waitingServers: 1, removed: { ipsets: 1 }, foreign: ["TCP 192.0.2.20:6443"] });
    expect([...node.sets.keys()]).toEqual(["KUBE-NODE-PORT-TCP"]);
    node.idle();
    expect(await pass()).toMatchObject({ removed: { virtualServers: 1, ipsets: 1 } });
    expect(node.left).toEqual(["TCP 192.0.2.20:6443"]);
  });

  it("leaves another family alone", async () => {
    node.bind("10.96.0.1", "fd00::1");
    node.serve("TCP", "10.96.0.1", 80);
    node.serve("TCP", "fd00::1", 80);
    node.sets.set("KUBE-CLUSTER-IP", []).set("KUBE-6-CLUSTER-IP", []);
    expect(await pass("when-idle", ["ip6"])).toMatchObject({
      removed: { virtualServers: 1, interfaces: 0 },
      foreign: [],
    });
    expect(node.left).toEqual(["TCP 10.96.0.1:80"]);
    expect([...node.sets.keys()]).toEqual(["KUBE-CLUSTER-IP"]);
    expect(node.bound?.map(({ address }) => address)).toEqual(["10.96.0.1"]);
  });

  it("keeps servers in excludeCIDRs, with their addresses", async () => {
    node.bind("10.97.0.1", "10.96.0.1");
    node.serve("TCP", "10.97.0.1", 80);
    node.serve("TCP", "10.96.0.1", 80);
    expect(await pass()).toMatchObject({
      removed: { virtualServers: 1, interfaces: 0 },
      excluded: ["TCP 10.97.0.1:80"],
    });
    expect(node.bound?.map(({ address }) => address)).toEqual(["10.97.0.1"]);
  });

  it("afterwards gives the node's own connections the node's address", async () => {
    node.bind("10.96.0.1", "fd00::1");
    node.serve("TCP", "10.96.0.1", 80, 1);
    node.serve("TCP", "fd00::1", 80, 1);
    await pass();
    expect([...node.sources]).toEqual([
      ["10.96.0.1", "192.0.2.10"],
      ["fd00::1", "2001:db8::10"],
    ]);
    node.idle();
    await pass();
    expect([...node.sources]).toEqual([]);
  });

  it.each([undefined, "127.0.0.1", "10.96.0.1"])("changes no route if the source would be %s", async (source) => {
    node.source.ip = source;
    node.bind("10.96.0.1");
    node.serve("TCP", "10.96.0.1", 80, 1);
    await pass();
    expect(node.sources.size).toBe(0);
  });

  it("keeps an address that a socket of the node has", async () => {
    node.bind("10.96.0.1", "10.96.0.2");
    node.sockets.add("10.96.0.2").add("192.0.2.10");
    expect(await pass()).toMatchObject({
      removed: { addresses: 1, interfaces: 0 },
      waitingAddresses: ["10.96.0.2"],
    });
    node.sockets.clear();
    expect(await pass()).toMatchObject({ removed: { addresses: 1, interfaces: 1 } });
  });

  it("ignores the interface's own link-local address, and an interface of that name that is not a dummy", async () => {
    node.bind("fe80::1");
    node.kind = "bridge";
    expect(await pass()).toMatchObject({ removed: { interfaces: 0 } });
    node.kind = "dummy";
    node.bound = [{ family: "ip6", address: "fe80::1", prefixLength: 64 }];
    expect(await pass()).toMatchObject({ removed: { interfaces: 1 } });
  });

  it("ends open connections and sockets if it must finish now, but not those of others", async () => {
    node.bind("10.96.0.1");
    node.sockets.add("10.96.0.1");
    node.serve("TCP", "10.96.0.1", 80, 5);
    node.serve("TCP", "192.0.2.20", 6443, 5);
    node.sets.set("KUBE-CLUSTER-IP", []);
    node.busySets.add("KUBE-CLUSTER-IP");
    expect(await pass("now")).toMatchObject({
      removed: { virtualServers: 1, interfaces: 1 },
      busySets: ["KUBE-CLUSTER-IP"],
    });
    expect(node.left).toEqual(["TCP 192.0.2.20:6443"]);
  });

  it("asks nothing if the kernel has not loaded IPVS and ipset", async () => {
    const root = temporaryDirectory();
    const asked = { exchange: () => Promise.reject(new Error("asked")) };
    expect(ipvsKernel(asked, root)).toMatchObject({ ipvs: undefined, ipset: undefined });
    await mkdir(join(root, "sys/module/ip_set"), { recursive: true });
    await putFile(root, "proc/net/ip_vs", "");
    const kernel = ipvsKernel(asked, root);
    expect([kernel.ipvs, kernel.ipset].map((one) => one !== undefined)).toEqual([true, true]);
    const header = "  sl  local_address rem_address   st tx_queue\n";
    const text = (...rows: readonly string[]) => header + rows.map((row, i) => `   ${i}: ${row} 0:0 0\n`).join("");
    await putFile(
      root,
      "proc/net/tcp",
      text("0100600A:C350 0500F40A:1F90 01", "0200600A:0016 00000000:0000 0A", "0300600A:C351 0500F40A:1F90 06"),
    );
    await putFile(
      root,
      "proc/net/tcp6",
      text("0000000000000000FFFF00000400600A:C350 0000000000000000FFFF00000500F40A:1F90 08"),
    );
    await putFile(root, "proc/net/udp", text("0500600A:C350 0500F40A:0035 01", "00000000:0044 00000000:0000 07"));
    expect([...(await socketAddresses(root))].toSorted()).toEqual(["10.96.0.1", "10.96.0.4", "10.96.0.5"]);
  });
});

describe("while the proxier runs", () => {
  const waits: number[] = [];
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });
  /** Runs the first check to its end. */
  const start = async (running: IpvsRemoval, family: IpFamily): Promise<void> => {
    running.start(family);
    await vi.advanceTimersByTimeAsync(0);
  };
  const removal = (): IpvsRemoval => {
    waits.length = 0;
    return new IpvsRemoval({ kernel: node, log: keptIn(lines, "info"), excludeCIDRs: ["10.97.0.0/16"] });
  };
  /** Runs the next check to its end. */
  const nextCheck = async (): Promise<void> => {
    const before = performance.now();
    await vi.advanceTimersToNextTimerAsync();
    waits.push(performance.now() - before);
  };

  it("without leftovers nothing is logged, and no check follows", async () => {
    node.bound = undefined;
    const running = removal();
    await start(running, "ip");
    expect([lines, vi.getTimerCount(), running.note]).toEqual([[], 0, undefined]);
  });

  it("checks become less frequent, down to one a minute, and end when nothing is left, with two log lines in all", async () => {
    node.bind("10.96.0.1");
    node.serve("TCP", "10.96.0.1", 80, 2);
    const running = removal();
    await start(running, "ip");
    expect(running.note).toBe(
      "kube-proxy's IPVS leftovers stay until they are idle: 2 connections to 1 virtual server",
    );
    for (let i = 0; i < 6; i++) await nextCheck();
    node.idle();
    await nextCheck();
    expect(waits).toEqual([2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
    expect(vi.getTimerCount()).toBe(0);
    expect(running.note).toBeUndefined();
    expect(lines).toMatchObject([
      { level: "info", waiting: { virtualServers: 1, connections: 2 }, virtualServers: 0 },
      {
        level: "info",
        virtualServers: 1,
        addresses: 1,
        interfaces: 1,
        msg: "leftovers of kube-proxy's IPVS mode removed",
      },
    ]);
  });

  it("another family's leftovers are checked when its rules are active", async () => {
    node.bind("10.96.0.1", "fd00::1");
    node.serve("TCP", "10.96.0.1", 80);
    node.serve("TCP", "fd00::1", 80);
    const running = removal();
    await start(running, "ip");
    expect(node.left).toEqual(["TCP [fd00::1]:80"]);
    await start(running, "ip6");
    expect([node.left, node.bound]).toEqual([[], undefined]);
  });

  it("a set that stays in use is checked for 15 minutes, and reported once", async () => {
    node.bound = undefined;
    node.sets.set("KUBE-CLUSTER-IP", []);
    node.busySets.add("KUBE-CLUSTER-IP");
    const running = removal();
    await start(running, "ip");
    expect(running.note).toContain("ipsets in use: KUBE-CLUSTER-IP");
    for (let i = 0; i < 19; i++) await nextCheck();
    expect(vi.getTimerCount()).toBe(0);
    expect(waits.reduce((sum, ms) => sum + ms)).toBeGreaterThan(14 * 60_000);
    expect(lines.filter(({ level }) => level === "warn")).toMatchObject([{ ipsets: ["KUBE-CLUSTER-IP"] }]);
  });

  it("a failure is reported once, and retried", async () => {
    node.bind("10.96.0.1");
    node.serve("TCP", "10.96.0.1", 80);
    node.failWith = "ENOMEM";
    const running = removal();
    await start(running, "ip");
    expect(lines).toMatchObject([{ level: "warn", err: "ENOMEM" }]);
    await nextCheck();
    expect([node.left, waits]).toEqual([[], [2000]]);
  });

  it("nothing is checked after the end", async () => {
    node.bind("10.96.0.1");
    node.serve("TCP", "10.96.0.1", 80, 2);
    const running = removal();
    await start(running, "ip");
    await running.close();
    expect(vi.getTimerCount()).toBe(0);
    expect(node.left).toHaveLength(1);
  });
});

describe("cleanup", () => {
  const clean = (): Promise<boolean> =>
    removeIpvsNow({ kernel: node, log: keptIn(lines, "info"), excludeCIDRs: [] }, BOTH);

  it("removes everything at once, with its number, and names the rest", async () => {
    node.bind("10.96.0.1");
    node.serve("TCP", "10.96.0.1", 80, 5);
    node.serve("TCP", "192.0.2.20", 6443);
    expect(await clean()).toBe(true);
    expect(lines).toMatchObject([
      { virtualServers: ["TCP 192.0.2.20:6443"], count: 1, msg: "virtual servers kept; not kube-proxy's" },
      { virtualServers: 1, addresses: 1, interfaces: 1, ipsets: 0 },
    ]);
  });

  it("is not complete while a set is in use, or the kernel refuses", async () => {
    node.sets.set("KUBE-CLUSTER-IP", []);
    node.busySets.add("KUBE-CLUSTER-IP");
    expect(await clean()).toBe(false);
    node.failWith = "EPERM";
    expect(await clean()).toBe(false);
    expect(lines.filter(({ level }) => level === "warn")).toHaveLength(2);
  });
});
