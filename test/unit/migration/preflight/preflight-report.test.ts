import { mkdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type Finding, inOrder, named } from "../../../../src/migration/preflight/finding.js";
import { processWith, readListeners } from "../../../../src/node/socket-listeners.js";
import { KIND, reportText } from "../../../../src/migration/preflight/preflight-report.js";
import { putFile, temporaryDirectory } from "../../../support/temporary-directory.ts";

const FINDINGS: readonly Finding[] = [
  { level: "ok", area: "kernel", check: "version", what: "Linux 6.1" },
  { level: "note", area: "mode", check: "mode", what: "IPVS", remedy: "ipvsadm --clear" },
  { level: "problem", area: "objects", check: "objects", what: "wrong", remedy: "correct it" },
  { level: "problem", area: "configuration", check: "config", what: "worse", remedy: "correct it" },
];

test("problems are listed first, in the order of areas, and each line says what to do", () => {
  const findings = inOrder(FINDINGS);
  const text = reportText({
    ...KIND,
    nodeName: "n",
    version: "1",
    kernel: "6.1",
    ready: false,
    findings,
    unchecked: [],
  });
  expect(text.split("\n")).toEqual([
    "PROBLEM  configuration  worse",
    "                        fix: correct it",
    "PROBLEM  objects        wrong",
    "                        fix: correct it",
    "NOTE     mode           IPVS",
    "                        fix: ipvsadm --clear",
    "OK       kernel         Linux 6.1",
    "",
    "n: 2 problems, 1 note, 1 ok: something would fail or be lost; nothing was changed",
    "",
  ]);
});

test("an incomplete report never says that there are no obstacles", () => {
  const findings = FINDINGS.slice(0, 1);
  const about = { ...KIND, nodeName: "n", version: "1", kernel: "6.1", ready: true, findings };
  const last = (unchecked: readonly string[]): string | undefined =>
    reportText({ ...about, unchecked })
      .split("\n")
      .at(-2);
  expect(last([])).toBe("n: 0 problems, 0 notes, 1 ok: no obstacles; nothing was changed");
  expect(last(["services"])).toBe(
    "n: 0 problems, 0 notes, 1 ok: the checks that ran found no obstacles (not checked: services); nothing was changed",
  );
});

test("a few of many names are listed", () => {
  expect([named(["a", "b"], 2), named(["a", "b", "c"], 2)]).toEqual(["a, b", "a, b and 1 more"]);
});

test("listeners are read with their addresses and programs", async () => {
  const root = temporaryDirectory();
  const line = (local: string, state: string, inode: number): string =>
    `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 ${inode} 1 0\n`;
  await putFile(
    root,
    "proc/net/tcp",
    `  sl  local_address\n${line("0100007F:2809", "0A", 11)}${line("0100007F:2810", "01", 12)}`,
  );
  await putFile(root, "proc/net/tcp6", line("B80D0120000000000000000001000000:2810", "0A", 13));
  expect(await readListeners(root)).toEqual([
    { address: "127.0.0.1", port: 10_249, inode: "11", state: "0A" },
    { address: "2001:db8::1", port: 10_256, inode: "13", state: "0A" },
  ]);
  await putFile(root, "proc/net/udp", `${line("00000000:0035", "07", 14)}${line("0100007F:9C40", "01", 15)}`);
  expect(await readListeners(root, "udp")).toEqual([{ address: "0.0.0.0", port: 53, inode: "14", state: "07" }]);
  await mkdir(join(root, "proc/42/fd"), { recursive: true });
  await putFile(root, "proc/42/comm", "kube-proxy\n");
  await symlink("socket:[11]", join(root, "proc/42/fd/3"));
  expect([await processWith("11", root), await processWith("13", root)]).toEqual([
    { pid: 42, name: "kube-proxy" },
    undefined,
  ]);
});
