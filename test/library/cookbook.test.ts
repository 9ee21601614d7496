/** The programs in docs/cookbook.md do with packets what the document says, and print what it shows. */
import { existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { run as runProgram } from "../lab/namespace.ts";
import { patience } from "../lab/patience.ts";
import { recipes, type Recipe } from "./cookbook.ts";
import { connect, createLab, destroyLab, GREETED_MS, type Lab, serve } from "./lab.ts";

const root = path.resolve(import.meta.dirname, "../..");
// Outside the checkout, so that Node finds the package as in any project.
const project = path.join("/tmp", `nft-proxier-cookbook-${process.pid}`);
const all = recipes();
let lab: Lab;

const LONG = { ms: GREETED_MS };
const SECOND = "192.0.2.3";
/** Connects from the client. */
const call = (port: number, options = {}, to = "192.0.2.1", from = "192.0.2.2"): Promise<string[]> =>
  connect(lab.client, from, to, port, options);

beforeAll(async () => {
  mkdirSync(path.join(project, "node_modules"), { recursive: true });
  symlinkSync(path.join(root, "node_modules/@nft-proxier"), path.join(project, "node_modules/@nft-proxier"));
  writeFileSync(path.join(project, "package.json"), '{ "type": "module" }');
  lab = await createLab("cookbook-");
  const { host, client, behind } = lab;
  for (const [link, name] of [
    ["client", "wan0"],
    ["behind", "lan0"],
  ])
    await host.ip([`link set ${link} down`, `link set ${link} name ${name}`, `link set ${name} up`]);
  await host.sysctl({ "net.ipv4.conf.all.rp_filter": 0, "net.ipv4.conf.wan0.rp_filter": 0 });
  await client.ip([
    "link set eth0 address 02:00:00:00:00:02",
    "link set lo up",
    "address add 203.0.113.9/32 dev lo",
    "route add 198.51.100.0/24 via 192.0.2.1",
  ]);
  await behind.ip(["route add default via 198.51.100.1"]);
  await serve(host, 8001, '"other"');
  await serve(client, 90, "s.remoteAddress");
});
afterAll(async () => {
  await destroyLab(lab);
  rmSync(project, { recursive: true, force: true });
});
/** Saves the program, and returns a function that runs it. */
function saved({ program, runs }: Recipe): (...args: readonly string[]) => Promise<string> {
  const name = runs[0]?.command[1] ?? "program.js";
  writeFileSync(path.join(project, name), program);
  return (...args) => lab.host.mustRun([process.execPath, path.join(project, name), ...args]);
}

/** Shows that each program does its work. The programs of sections with commands have run already. */
const PROOFS: Readonly<Record<string, (run: (...args: readonly string[]) => Promise<string>) => Promise<void>>> = {
  "Host firewall": async () => {
    expect(await call(8000, LONG)).toEqual(["host"]);
    expect(await call(8001)).toEqual([]);
    expect(await connect(lab.host, "192.0.2.1", "192.0.2.2", 90, LONG)).toEqual(["192.0.2.1"]);
    expect(await connect(lab.host, "127.0.0.1", "127.0.0.1", 8001, LONG)).toEqual(["other"]);
    expect(await lab.host.mustRun(["nft", "list", "table", "inet", "firewall"])).toMatch(/counter packets [1-9]/);
  },
  "Port forwarding": async () => {
    expect(await call(8080, LONG)).toEqual(["behind"]);
  },
  "Masquerade for containers": async (run) => {
    expect(await call(80, LONG, "198.51.100.2")).toEqual(["behind"]);
    await run();
    expect(await connect(lab.behind, "198.51.100.2", "192.0.2.2", 90, LONG)).toEqual(["192.0.2.1"]);
    expect(await call(80, {}, "198.51.100.2")).toEqual([]);
  },
  "Bans that survive restarts": async (run) => {
    expect(await call(8000)).toEqual([]);
    expect(await call(8000, LONG, "192.0.2.1", SECOND)).toEqual(["host"]);
    // A slow machine needs minutes between the two runs.
    const left = (address: string): unknown => expect.stringMatching(new RegExp(`^${address}: ([1-9]|10) min left$`));
    const expected = ["", left("192.0.2.2"), left("192.0.2.3")];
    expect((await run(SECOND)).split("\n").toSorted()).toEqual(expected);
  },
  "Connection limit per client": async (run) => {
    await run();
    expect(await call(8000, { count: 5 })).toEqual(["host", "host"]);
    expect(await call(8000, LONG, "192.0.2.1", SECOND)).toEqual(["host"]);
  },
  "Rate limit per client": async (run) => {
    await run();
    const greetings = await call(8000, { count: 40, ms: patience(800) });
    expect(greetings.length).toBeGreaterThanOrEqual(10);
    expect(greetings.length).toBeLessThan(40);
    expect(await call(8000, LONG, "192.0.2.1", SECOND)).toEqual(["host"]);
  },
  "Traffic per client": async (run) => {
    expect(await run()).toBe("");
    expect(await call(8000, LONG)).toEqual(["host"]);
    expect(await run()).toMatch(/^192\.0\.2\.2: [1-9]\d* packets, [1-9]\d* bytes\n$/);
  },
  "Load balancing": async () => {
    const inTurn = [await call(8080, LONG), await call(8080, LONG), await call(8080, LONG)].flat();
    expect(inTurn.filter((greeting) => greeting === "behind").length).toBeOneOf([1, 2]);
    const byClient = [await call(8081, LONG), await call(8081, LONG), await call(8081, LONG)].flat();
    expect(new Set(byClient).size).toBe(1);
  },
  "Transparent proxy": async (run) => {
    expect(await call(80, LONG, "198.51.100.2")).toEqual(["behind"]);
    await run();
    expect(await call(80, LONG, "198.51.100.2")).toEqual(["host"]);
  },
  "Marks for policy routing": async (run) => {
    const { host } = lab;
    // By the main table, answers to this client take the other link.
    await host.ip(["route add 203.0.113.0/24 via 198.51.100.2"]);
    const remote = (options = {}): Promise<string[]> => call(8000, options, "192.0.2.1", "203.0.113.9");
    expect(await remote()).toEqual([]);
    await run();
    await host.ip(["route add default via 192.0.2.2 dev wan0 table 100", "rule add fwmark 1 lookup 100"]);
    expect(await remote(LONG)).toEqual(["host"]);
    await host.ip(["rule delete fwmark 1 lookup 100", "route delete 203.0.113.0/24 via 198.51.100.2"]);
  },
  "TCP over smaller links": async () => {
    const { host, behind } = lab;
    await host.ip(["link set lan0 mtu 1200"]);
    await behind.mustRun([
      "nft",
      `add table ip seen; add chain ip seen input { type filter hook input priority 0; };
       add rule ip seen input tcp option maxseg size 1160 counter`,
    ]);
    expect(await call(80, LONG, "198.51.100.2")).toEqual(["behind"]);
    expect(await behind.mustRun(["nft", "list", "table", "ip", "seen"])).toMatch(/counter packets [1-9]/);
    await host.ip(["link set lan0 mtu 1500"]);
  },
  "Filter by link-layer address": async (run) => {
    expect(await call(8000)).toEqual([]);
    await run("02:00:00:00:00:03");
    expect(await call(8000, LONG)).toEqual(["host"]);
  },
};

const tsc = path.join(root, "node_modules/typescript/bin/tsc");

// Guests have no compiler.
test.skipIf(!existsSync(tsc))("the programs have no type errors", async () => {
  const files = all.map(({ program }, index) => {
    const file = path.join(project, `typed-${index}.js`);
    writeFileSync(file, program);
    return file;
  });
  const options = [
    "--ignoreConfig",
    "--checkJs",
    "--strict",
    "--noEmit",
    "--skipLibCheck",
    "--module",
    "nodenext",
    "--target",
    "es2023",
  ];
  const types = ["--types", "node", "--typeRoots", path.join(root, "node_modules/@types")];
  expect((await runProgram(process.execPath, [tsc, ...options, ...types, ...files])).stdout).toBe("");
});

test("each of the twelve programs has a proof, and at most 25 lines after its imports", () => {
  expect(all.map(({ title }) => title)).toEqual(Object.keys(PROOFS));
  const lines = all.map(
    ({ program }) =>
      program
        .replace(/^(import .*\n)+\n/, "")
        .trimEnd()
        .split("\n").length,
  );
  expect(Math.max(...lines)).toBeLessThanOrEqual(25);
});

describe("a program does what the document says, and prints what it shows", () => {
  beforeEach(async () => {
    await lab.host.mustRun(["nft", "flush", "ruleset"]);
    expect(await call(8000, LONG)).toEqual(["host"]);
  });

  test.each(all)("$title", async (recipe) => {
    const run = saved(recipe);
    for (const { command, output } of recipe.runs) expect(await run(...command.slice(2))).toBe(output);
    await PROOFS[recipe.title](run);
  });
});
