import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import {
  checkModules,
  mayRead,
  mayTry,
  type ModuleFacts,
  readModules,
} from "../../../../src/migration/preflight/modules.js";
import { putFile, temporaryDirectory } from "../../../support/temporary-directory.ts";

const RELEASE = "6.1.0-test";
let root: string;
beforeEach(() => {
  root = temporaryDirectory();
});
const ALL = [
  "nf_tables",
  "nf_conntrack",
  "nf_nat",
  "nft_chain_nat",
  "nft_ct",
  "nft_nat",
  "nft_masq",
  "nft_numgen",
  "nft_fib_ipv4",
  "nft_reject_ipv4",
  "nf_conntrack_netlink",
];
const loaded = (names: readonly string[]): Promise<void> =>
  putFile(root, "proc/modules", names.map((name) => `${name} 16384 0 - Live 0x0\n`).join(""));
const path = (name: string): string => `kernel/net/netfilter/${name}.ko`;
const lists = async (
  builtIn: readonly string[],
  onDisk: readonly string[],
  directory = "lib/modules",
): Promise<void> => {
  await putFile(root, `${directory}/${RELEASE}/modules.builtin`, builtIn.map((name) => `${path(name)}\n`).join(""));
  await putFile(
    root,
    `${directory}/${RELEASE}/modules.dep`,
    onDisk.map((name) => `${path(name)}.xz: kernel/x.ko.xz\n`).join(""),
  );
};
const read = (ipv6 = false): Promise<ModuleFacts> => readModules(ipv6, root, RELEASE);
const said = (facts: ModuleFacts): string[] => checkModules(facts).map(({ level, what }) => `${level}: ${what}`);

describe("questions that an inspection may ask the kernel", () => {
  test("all, if every module is loaded or built in", async () => {
    await loaded(ALL.slice(2));
    await lists(ALL.slice(0, 2), []);
    const facts = await read();
    expect([mayRead(facts), mayTry(facts)]).toEqual([true, true]);
    expect(said(facts)).toEqual(["ok: all required modules are loaded or built in"]);
  });

  test("its tables but not the rules, if one of them would load a module", async () => {
    await loaded(ALL.filter((name) => name !== "nft_numgen"));
    await lists([], ALL, "host/lib/modules");
    const facts = await read();
    expect([mayRead(facts), mayTry(facts)]).toEqual([true, false]);
    expect(said(facts)).toEqual(["ok: the kernel will load these modules at the first write: nft_numgen"]);
  });

  test("none, if nf_tables itself would be loaded", async () => {
    await loaded([]);
    await lists([], ALL);
    expect(mayRead(await read())).toBe(false);
  });

  test("all, if the kernel loads no modules: without module support, or without files", async () => {
    expect(said(await read())).toEqual([expect.stringMatching(/^ok: this kernel loads no modules/)]);
    await loaded(["nf_tables"]);
    await putFile(root, "proc/sys/kernel/modules_disabled", "1\n");
    const facts = await read();
    expect([mayRead(facts), mayTry(facts)]).toEqual([true, true]);
  });

  test("the rules without the module of connection tracking's netlink, which they do not need", async () => {
    await loaded(ALL.filter((name) => name !== "nf_conntrack_netlink"));
    await lists([], ALL);
    expect(mayTry(await read())).toBe(true);
  });
});

describe("checkModules", () => {
  test("a missing module is a problem; without that of connection tracking, less is checked", async () => {
    await loaded(ALL.filter((name) => !["nft_fib_ipv4", "nf_conntrack_netlink"].includes(name)));
    await lists([], []);
    expect(said(await read())).toEqual([
      "problem: the kernel lacks 1 module that the rules need, and would refuse them: nft_fib_ipv4",
      "note: the kernel lacks the module nf_conntrack_netlink, so connections to removed endpoints are not deleted",
    ]);
  });

  test("a module that is not loaded is unknown if the lists of modules cannot be read", async () => {
    await loaded(ALL);
    expect(said(await read(true))).toEqual([
      "note: these modules are not loaded, and it is unknown whether they exist: nft_fib_ipv6, nft_reject_ipv6",
    ]);
  });

  test("a module of /sys/module is loaded, too, and names of files may have hyphens", async () => {
    await loaded(ALL.slice(1));
    await mkdir(join(root, "sys/module/nf_tables"), { recursive: true });
    await lists(["nft-fib-ipv6", "nft_reject_ipv6"], []);
    expect(said(await read(true))).toEqual(["ok: all required modules are loaded or built in"]);
  });
});
