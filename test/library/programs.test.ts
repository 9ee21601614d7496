/** Nine programs that people write with the library do with packets what they say. */
import { once } from "node:events";
import { cpSync, mkdirSync, rmSync, symlinkSync } from "node:fs";
import path from "node:path";
import { createInterface, type Interface } from "node:readline";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { patience } from "../lab/patience.ts";
import { connect, createLab, destroyLab, GREETED_MS, type Lab, serve } from "./lab.ts";

// Outside the checkout, so that Node finds the package as in any project.
const project = path.join("/tmp", `nft-proxier-programs-${process.pid}`);
const LONG = { ms: GREETED_MS };
let lab: Lab;

beforeAll(async () => {
  mkdirSync(path.join(project, "node_modules"), { recursive: true });
  const packages = path.resolve(import.meta.dirname, "../../node_modules/@nft-proxier");
  symlinkSync(packages, path.join(project, "node_modules/@nft-proxier"));
  cpSync(path.join(import.meta.dirname, "programs"), project, { recursive: true });
  lab = await createLab("programs-");
  const { host, client, behind } = lab;
  await client.ip(["route add 198.51.100.0/24 via 192.0.2.1"]);
  await behind.ip(["route add default via 198.51.100.1"]);
  await serve(host, 22, '"ssh"');
  await serve(host, 9000, '"other"');
  for (const port of [82, 83]) await serve(behind, port, `"${port}"`);
});
afterAll(async () => {
  await destroyLab(lab);
  rmSync(project, { recursive: true, force: true });
});
beforeEach(async () => {
  await lab.host.mustRun(["nft", "flush", "ruleset"]);
  expect(await call(8000, LONG)).toEqual(["host"]);
});

const call = (port: number, options = {}, to = "192.0.2.1", from = "192.0.2.2"): Promise<string[]> =>
  connect(lab.client, from, to, port, options);
const command = (name: string): string[] => [process.execPath, path.join(project, `${name}.ts`)];
const run = (name: string, ...args: string[]): Promise<string> => lab.host.mustRun([...command(name), ...args]);
const listed = (...what: string[]): Promise<string> => lab.host.mustRun(["nft", "list", ...what]);

interface Talk {
  readonly lines: Interface;
  readonly next: () => Promise<string>;
  readonly say: (line: string) => void;
  readonly end: () => Promise<void>;
}

/** Starts a program that reads lines. */
function talk(name: string, ...args: string[]): Talk {
  const child = lab.host.spawn([...command(name), ...args], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout! });
  const iterator = lines[Symbol.asyncIterator]();
  const ended = once(child, "exit");
  return {
    lines,
    next: async () => String((await iterator.next()).value),
    say: (line) => void child.stdin!.write(`${line}\n`),
    end: async () => {
      child.stdin!.end();
      await ended;
    },
  };
}

test("firewall: admins reach the listed ports, others do not, and a flood is blocked", async () => {
  await run("firewall");
  expect(await call(8000, LONG)).toEqual(["host"]);
  expect(await call(9000)).toEqual([]);
  expect(await call(22, { count: 3, ...LONG })).toHaveLength(3);
  const isBlocked = async (): Promise<boolean> => (await listed("set", "inet", "fw", "blocked")).includes("192.0.2.2");
  for (let tries = 0; tries < 20 && !(await isBlocked()); tries++) await call(22, { count: 6 });
  expect(await isBlocked()).toBe(true);
  expect(await call(8000)).toEqual([]);
  expect(await call(8000, LONG, "192.0.2.1", "192.0.2.3")).toEqual(["host"]);
  await run("firewall", "192.0.2.3");
  expect(await call(8000, {}, "192.0.2.1", "192.0.2.3")).toEqual([]);
});

test("gateway: a published port leads to the container", async () => {
  expect(await run("gateway", "tcp:8080=198.51.100.2:80")).toBe("1\n");
  expect(await call(8080, LONG)).toEqual(["behind"]);
  expect(await call(80, {}, "198.51.100.2")).toEqual([]);
  expect(await run("gateway", "tcp:8080=198.51.100.2:80")).toBe("0\n");
});

test("accounting: packets are counted by client, and a client above its quota is cut off", async () => {
  expect(await run("accounting")).toBe("[]\n");
  expect(await call(8000, LONG)).toEqual(["host"]);
  const counts = new Map(JSON.parse(await run("accounting")) as [string, number][]);
  expect(counts.get("192.0.2.2")).toBeGreaterThan(4);
  expect(counts.has("192.0.2.3")).toBe(false);
  const isUsedUp = async (): Promise<boolean> => {
    const [, used] = /of-192\.0\.2\.2 \{[^}]*used (\d+)/.exec(await listed("quotas")) ?? [];
    return Number(used) >= 10_000;
  };
  for (let tries = 0; tries < 50 && !(await isUsedUp()); tries++) await call(8000, { count: 10 });
  expect(await isUsedUp()).toBe(true);
  expect(await call(8000)).toEqual([]);
  expect(await call(8000, LONG, "192.0.2.1", "192.0.2.3")).toEqual(["host"]);
});

test("fail2ban: three failures ban an address, also over a restart of the program", async () => {
  const first = talk("fail2ban");
  expect(await first.next()).toBe("[]");
  for (let failure = 0; failure < 3; failure++)
    for (const address of ["192.0.2.2", "nobody"]) first.say(`FAIL ${address}`);
  first.say("FAIL 2001:db8::1");
  await first.end();
  expect(await call(8000)).toEqual([]);
  const second = talk("fail2ban");
  expect(await second.next()).toBe('["192.0.2.2"]');
  second.say("UNBAN 192.0.2.2");
  await second.end();
  expect(await call(8000, LONG)).toEqual(["host"]);
});

test.each(["random", "inc", "jhash"])(
  "balancer: every connection has a backend, in turns by their weights (%s)",
  async (mode) => {
    await run("balancer", mode);
    const greetings = await call(80, { count: 60, ...LONG });
    const share = (port: string): number => greetings.filter((text) => text === port).length;
    const first = greetings.length - share("82") - share("83");
    expect(greetings).toHaveLength(60);
    if (mode === "inc") expect([first, share("82"), share("83")]).toEqual([30, 20, 10]);
    // Half of the connections go there: none of 60 is impossible.
    else expect(first).toBeGreaterThan(0);
  },
);

test("flows: connections are counted as they begin and end", async () => {
  await lab.host.mustRun([
    "nft",
    "add table ip t; add chain ip t c { type filter hook input priority 0; }; add rule ip t c ct state new counter",
  ]);
  const program = talk("flows", "192.0.2.2");
  expect(await program.next()).toBe("watching");
  expect(await call(8000, { count: 5, ...LONG })).toHaveLength(5);
  program.say("end");
  const { begun, ended, bytes, deleted } = JSON.parse(await program.next()) as Record<string, unknown>;
  expect({ begun: Number(begun) >= 5, ended: Number(ended) >= 5, bytes, deleted }).toEqual({
    begun: true,
    ended: true,
    bytes: true,
    deleted: true,
  });
  await program.end();
});

test("layer2: packets are dropped at the device", async () => {
  await run("layer2");
  expect(await call(8000, LONG)).toEqual(["host"]);
  expect(await call(8000, {}, "192.0.2.1", "192.0.2.3")).toEqual([]);
  expect(await listed("table", "netdev", "ingress")).toMatch(/ip saddr 192\.0\.2\.3 counter packets [1-9]/);
  expect(await listed("table", "bridge", "br")).toContain("vlan id 7 arp operation request drop");
});

test("portal: guests reach the portal only, members are forwarded", async () => {
  await run("portal", "192.0.2.3");
  expect(await call(80, LONG, "198.51.100.2")).toEqual(["host"]);
  expect(await call(82, {}, "198.51.100.2")).toEqual([]);
  expect(await call(82, LONG, "198.51.100.2", "192.0.2.3")).toEqual(["82"]);
  expect(await listed("chain", "ip", "portal", "mangle")).toContain("tproxy to 192.0.2.1:8053");
});

test("limits: a client has at most three connections", async () => {
  await run("limits");
  expect(await call(8000, { count: 8, ms: patience(3000) })).toHaveLength(3);
});
