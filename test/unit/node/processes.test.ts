import { beforeEach, expect, it } from "vitest";

import { netfilterPortOpen, originOf, processOfThread } from "../../../src/node/processes.js";
import { putFile, temporaryDirectory } from "../../support/temporary-directory.ts";

/** Output of Linux 6.18. */
const SOCKETS = `sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
00000000829d9579 0   2224240146 00000111 0        0        0     2        0        15103
00000000f58d7950 12  4107664984 00000040 0        0        0     2        0        15850
000000004b209cf0 12  8902       00000000 0        0        0     2        0        15855
`;

let root: string;
const put = (file: string, text: string): Promise<void> => putFile(root, `proc/${file}`, text);

beforeEach(() => {
  root = `${temporaryDirectory()}/`;
});
it("netfilterPortOpen finds a port of NETLINK_NETFILTER, and of no other protocol", async () => {
  expect(await netfilterPortOpen(4107664984, root)).toBeUndefined();
  await put("self/net/netlink", SOCKETS);
  expect(await netfilterPortOpen(4107664984, root)).toBe(true);
  expect(await netfilterPortOpen(8902, root)).toBe(true);
  expect(await netfilterPortOpen(890, root)).toBe(false);
  expect(await netfilterPortOpen(2224240146, root)).toBe(false);
});

it("originOf names the unit or the parent of a process that still runs", async () => {
  await put("11/comm", "nft\n");
  await put("11/status", "Name:\tnft\nPPid:\t10\n");
  await put("11/cgroup", "0::/system.slice/cron.service\n");
  await put("10/comm", "bash\n");
  expect(await originOf(11, "nft", root)).toBe("cron.service");
  await put("11/cgroup", "0::/user.slice/session-3.scope\n");
  expect(await originOf(11, "nft", root)).toBe("bash");
  expect(await originOf(11, "firewalld", root)).toBeUndefined();
  expect(await originOf(12, "nft", root)).toBeUndefined();
});

it("processOfThread names the process, unless this /proc shows another one under that number", async () => {
  await put("4713/status", "Name:\tlibuv-worker\nUmask:\t0022\nTgid:\t4711\nPid:\t4713\n");
  await put("4713/comm", "libuv-worker\n");
  await put("4711/comm", "nft-proxier\n");
  expect(await processOfThread(4713, "nft-proxier", root)).toBe(4711);
  expect(await processOfThread(4713, "libuv-worker", root)).toBe(4711);
  expect(await processOfThread(4713, "firewalld", root)).toBe(4713);
  expect(await processOfThread(99, "nft-proxier", root)).toBe(99);
});
