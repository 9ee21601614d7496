import { symlink } from "node:fs/promises";
import { beforeEach, expect, it } from "vitest";

import { describeProcess } from "../../../src/node/processes.js";
import { putFile, temporaryDirectory } from "../../support/temporary-directory.ts";

let root: string;
const put = (file: string, text: string): Promise<void> => putFile(root, `proc/${file}`, text);

beforeEach(() => {
  root = `${temporaryDirectory()}/`;
});
it("a process is described with its unit, or else its parent", async () => {
  await put("11/comm", "nft\n");
  await put("11/status", "Name:\tnft\nTgid:\t11\nPPid:\t10\n");
  await put("11/cgroup", "0::/system.slice/cron.service\n");
  await put("10/comm", "bash\n");
  expect(describeProcess(11, "nft", root)).toBe("nft (pid 11, started by cron.service)");
  await put("11/cgroup", "0::/user.slice/session-3.scope\n");
  expect(describeProcess(11, "nft", root)).toBe("nft (pid 11, started by bash)");
});

it("a thread is described by its process, unless this /proc shows another one under that number", async () => {
  await put("4713/status", "Name:\tlibuv-worker\nUmask:\t0022\nTgid:\t4711\nPid:\t4713\n");
  await put("4713/comm", "libuv-worker\n");
  await put("4711/comm", "nft-proxier\n");
  expect(describeProcess(4713, "nft-proxier", root)).toBe("nft-proxier (pid 4711)");
  // `ps` lists the process under its own name.
  expect(describeProcess(4713, "libuv-worker", root)).toBe("nft-proxier (pid 4711)");
  expect(describeProcess(4713, "firewalld", root)).toBe("firewalld (thread 4713, not in /proc)");
});

it("a name that the thread only had while it committed is kept, if numbers are those of the initial pid namespace", async () => {
  await put("4713/status", "Name:\tlibuv-worker\nTgid:\t4711\nPid:\t4713\n");
  await put("4713/comm", "libuv-worker\n");
  await put("4711/comm", "node\n");
  await put("self/ns/x", "");
  await symlink("pid:[4026531836]", `${root}proc/self/ns/pid`);
  expect(describeProcess(4713, "firewall", root)).toBe("firewall (pid 4711)");
});

it("a thread that has ended is not called a process, because `ps` may never have listed its number", () => {
  expect(describeProcess(99, "nft-proxier", root)).toBe("nft-proxier (thread 99, not in /proc)");
});
