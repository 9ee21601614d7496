/**
 * The program on a kernel without ctnetlink. Its requests to ctnetlink are redirected to a subsystem that the kernel does not have, so the
 * answers are the kernel's own. Nothing is redirected on a guest whose kernel has no ctnetlink (`npm run test:kernels -- --tiers native
 * --without nf_conntrack_netlink no-ctnetlink`).
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildHelper } from "../lab/build.js";
import { EVENTUALLY_MS } from "../lab/eventually.js";
import { someOf } from "../lab/length.ts";

const MAIN = path.resolve(import.meta.dirname, "../../dist/main.js");

/** Modules that the guest lacks (test/kernels). */
const MISSING = (process.env["NFT_PROXIER_WITHOUT"] ?? "").split(",");

/** The library that hides ctnetlink; undefined if the kernel has none. */
let library: string | undefined;
let directory: string;
beforeAll(() => {
  library = MISSING.includes("nf_conntrack_netlink") ? undefined : buildHelper("no-ctnetlink");
  directory = mkdtempSync(path.join(tmpdir(), "nft-proxier-no-ctnetlink-"));
  writeFileSync(path.join(directory, "service.json"), JSON.stringify(SERVICE));
});
afterAll(() => {
  rmSync(directory, { recursive: true, force: true });
});

const SERVICE = {
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: "dns", namespace: "default" },
  spec: { clusterIP: "10.96.0.10", ports: [{ port: 53, protocol: "UDP" }] },
};

/** Starts the program in its own network namespace, on such a kernel. */
function start(args: readonly string[]) {
  const preload = [process.env["LD_PRELOAD"], library].filter((one) => one !== undefined && one !== "").join(":");
  const command = ["--net", "env", `LD_PRELOAD=${preload}`, process.execPath, MAIN, ...args];
  const child = spawn("unshare", command, { stdio: ["ignore", "pipe", "pipe"] });
  const told = { stdout: "", stderr: "" };
  child.stdout.setEncoding("utf8").on("data", (text: string) => (told.stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (told.stderr += text));
  const ended = new Promise<number | null>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", resolve);
  });
  return { child, told, ended };
}

const REASON = "the kernel has no ctnetlink (CONFIG_NF_CT_NETLINK; `modprobe nf_conntrack_netlink`)";

const COMMANDS: readonly (readonly [string, ...string[]])[] = [
  ["count"],
  ["list"],
  ["get", "udp", "10.0.0.1:1000", "10.96.0.10:53"],
  ["watch"],
  ["gc", "--manifests", "DIRECTORY"],
];
test.each(someOf(COMMANDS, 4))(
  "conntrack %s says what is missing and how to get it, and exits with 1",
  async (...words) => {
    const { told, ended } = start(["conntrack", ...words.map((word) => (word === "DIRECTORY" ? directory : word))]);
    expect([await ended, told.stdout]).toEqual([1, ""]);
    expect(told.stderr).toBe(`nft-proxier: open: ctnetlink: EINVAL (Invalid argument); ${REASON}\n`);
  },
);

test("the daemon reports it in one line, and serves", async () => {
  const { child, told, ended } = start(["run", "--manifests", directory]);
  const lines = () =>
    told.stderr
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as { level: string; msg: string; err?: string });
  for (const from = performance.now(); !lines().some(({ msg }) => msg === "synced"); await sleep(50)) {
    if (performance.now() - from > EVENTUALLY_MS) throw new Error(`not synced: ${told.stderr}`);
  }
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
  const warnings = lines().filter(({ level, err }) => level === "warn" && err !== undefined);
  expect(warnings).toEqual([
    expect.objectContaining({
      level: "warn",
      msg: "connection tracking cannot be read, so stale connections of services stay until they time out",
    }),
  ]);
  expect(warnings[0]?.err).toContain(REASON);
});
