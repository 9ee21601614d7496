import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import type { LegacyTables } from "../../../../src/nft/kernel/legacy-tables.js";
import { findForeignLeftovers } from "../../../../src/migration/leftovers/find-foreign.js";
import { putFile, temporaryDirectory } from "../../../support/temporary-directory.ts";

let root: string;
beforeEach(() => {
  root = temporaryDirectory();
});
const proc = (name: string, text: string): Promise<void> => putFile(root, `proc/net/${name}`, text);

const DEV = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0
  eth0: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0
`;
const IP_VS = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr
  -> C000020A:192B      Masq    1      0          0
UDP  0A60000A:0035 rr
TCP  [fd00:0010:0096:0000:0000:0000:0000:0001]:01BB rr
`;

const holding = (all: Readonly<Record<string, string[]>>): Pick<LegacyTables, "chains"> => ({
  chains: (family, table) => Promise.resolve(all[`${family} ${table}`] ?? []),
});

describe("leftovers that nf_tables does not see", () => {
  it("do not exist on a node with nf_tables only", async () => {
    await proc("dev", DEV);
    expect(await findForeignLeftovers({ root })).toEqual([]);
    expect(await findForeignLeftovers({ root: join(root, "nowhere") })).toEqual([]);
  });

  it("are kube-proxy's chains in the older iptables, reported with the command that removes them", async () => {
    await proc("ip_tables_names", "nat\nfilter\nmangle\nraw\n");
    const nat = ["DOCKER", "KUBE-SERVICES", "KUBE-SVC-AAAA", "KUBE-SEP-BBBB", "KUBE-MARK-DROP"];
    const legacy = holding({ "ip nat": nat, "ip filter": ["KUBE-FORWARD", "KUBE-FIREWALL"] });
    const found = await findForeignLeftovers({ root, legacy });
    expect(found).toMatchObject([
      { kind: "iptables-legacy", seen: "ip nat: KUBE-SERVICES and 2 more chains; ip filter: KUBE-FORWARD" },
    ]);
    expect(found[0].command).toBe("kube-proxy --cleanup");
  });

  it("are looked for in both families", async () => {
    await proc("ip6_tables_names", "mangle\n");
    const legacy = holding({ "ip6 mangle": ["KUBE-PROXY-CANARY"], "ip mangle": ["KUBE-PROXY-CANARY"] });
    const found = await findForeignLeftovers({ root, legacy });
    expect(found).toMatchObject([{ seen: "ip6 mangle: KUBE-PROXY-CANARY" }]);
  });

  it("do not include other programs' chains", async () => {
    await proc("ip_tables_names", "nat\nraw\n");
    const legacy = holding({ "ip nat": ["DOCKER", "KUBE-MARK-DROP"], "ip raw": ["KUBE-SERVICES"] });
    expect(await findForeignLeftovers({ root, legacy })).toEqual([]);
  });

  it("may be in an unreadable table, which is named", async () => {
    await proc("ip_tables_names", "nat\n");
    expect(await findForeignLeftovers({ root })).toMatchObject([
      { seen: expect.stringMatching(/^ip nat: .*its chains were not read/) as string },
    ]);
    const legacy = { chains: () => Promise.reject(new Error("EPERM")) };
    expect(await findForeignLeftovers({ root, legacy })).toMatchObject([
      { seen: "ip nat: the table exists; its chains cannot be read (EPERM)", isUncertain: true },
    ]);
  });

  it.each([
    { files: { ip_vs: IP_VS }, seen: "3 virtual services", command: "ipvsadm --clear" },
    { files: { dev: `${DEV}kube-ipvs0: 0 0 0\n` }, seen: "interface kube-ipvs0", command: "ip link delete kube-ipvs0" },
    {
      files: { dev: `${DEV}kube-ipvs0: 0 0 0\n`, ip_vs: IP_VS },
      seen: "interface kube-ipvs0, 3 virtual services",
      command: "ipvsadm --clear && ip link delete kube-ipvs0",
    },
  ])("IPVS' leftovers are reported: $seen", async ({ files, seen, command }) => {
    for (const [name, text] of Object.entries(files)) if (text !== undefined) await proc(name, text);
    expect(await findForeignLeftovers({ root })).toEqual([{ kind: "ipvs", seen, command }]);
  });

  it("do not include IPVS without services", async () => {
    await proc("ip_vs", IP_VS.split("\n").slice(0, 3).join("\n"));
    await proc("dev", `${DEV}kube-ipvs01: 0 0 0\n`);
    expect(await findForeignLeftovers({ root })).toEqual([]);
  });
});
