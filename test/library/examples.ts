/** Runs the programs in examples/ as their readers do, on the real kernel and with packets. */
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Namespace } from "../lab/namespace.ts";
import { patience } from "../lab/patience.ts";
import { connect as connectFrom, createLab, destroyLab, GREETED_MS, type Lab } from "./lab.ts";

let lab: Lab;
let host: Namespace;
let behind: Namespace;

/** The place where the programs run. */
export interface Place {
  /** The command that runs a Node program, before the program's path. */
  readonly node: readonly string[];
  /** The directory of the examples and one for files, as the programs see them. */
  readonly examples: string;
  readonly files: string;
  /** The programs' `/`. */
  readonly root: string;
}

/** Opens connections from the client. Returns the greetings. */
function connect(address: string, port: number, count = 1, ms = patience(400), from = "192.0.2.2"): Promise<string[]> {
  return connectFrom(lab.client, from, address, port, { count, ms });
}

/** Declares the tests of all examples, and their network. */
export function testExamples(place: Place): void {
  const example = (name: string, ...args: readonly string[]): string[] => [
    ...place.node,
    path.join(place.examples, `${name}.js`),
    ...args,
  ];
  beforeAll(async () => {
    lab = await createLab();
    ({ host, behind } = lab);
  });
  afterAll(() => destroyLab(lab));
  beforeEach(async () => {
    await host.mustRun(["nft", "flush", "ruleset"]);
    expect(await connect("192.0.2.1", 8000, 1, GREETED_MS)).toEqual(["host"]);
  });

  test("blocklist drops packets from the networks in the file, and writes the difference when the file changes", async () => {
    const file = path.join(place.files, "blocklist");
    const write = (text: string): void => writeFileSync(path.join(place.root, file), text);
    mkdirSync(path.join(place.root, place.files), { recursive: true });
    write("192.0.2.0/25 # the client\n203.0.113.7\n2001:db8::/32\n");
    const written = await host.mustRun(example("blocklist", file));
    expect(written).toMatch(/^networks: 3, transactions: 1, elements added: \d+, deleted: 0$/m);
    expect(await connect("192.0.2.1", 8000)).toEqual([]);
    expect(await host.mustRun(example("blocklist", file))).toContain(
      ", transactions: 0, elements added: 0, deleted: 0",
    );
    write("203.0.113.7\n2001:db8::/32\n");
    expect(await host.mustRun(example("blocklist", file))).toContain(
      "networks: 2, transactions: 1, elements added: 0, deleted: 2",
    );
    expect(await connect("192.0.2.1", 8000, 1, GREETED_MS)).toEqual(["host"]);
    await host.mustRun(example("blocklist", "--remove"));
    expect(await host.mustRun(["nft", "list", "tables"])).toBe("");
  });

  test("port-forwarder forwards connections to the target machine, and prints its table", async () => {
    expect(await connect("192.0.2.1", 8080)).toEqual([]);
    const table = await host.mustRun(example("port-forwarder", "tcp:8080=198.51.100.2:80", "udp:53=198.51.100.3:53"));
    expect(table).toContain("tcp . 8080 : 198.51.100.2 . 80");
    expect(await connect("192.0.2.1", 8080, 1, GREETED_MS)).toEqual(["behind"]);
    expect(await connect("192.0.2.1", 8000, 1, GREETED_MS)).toEqual(["host"]);
    const refused = await host.run(example("port-forwarder", "tcp:8080=198.51.100.2:80000"));
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringContaining("expected a port from 0 to 65535, found 80000"),
    ]);
    await host.mustRun(example("port-forwarder"));
    expect(await connect("192.0.2.1", 8080)).toEqual([]);
  });

  test("port-forwarder masquerades its own connections, but not a neighbour's", async () => {
    await behind.ip(["route add 192.0.2.0/24 via 198.51.100.1"]);
    await host.mustRun([
      "nft",
      `add table ip neighbour; add chain ip neighbour pre { type nat hook prerouting priority dstnat; };
       add rule ip neighbour pre tcp dport 9090 dnat to 198.51.100.2:81`,
    ]);
    expect(await connect("192.0.2.1", 9090, 1, GREETED_MS)).toEqual(["192.0.2.2"]);
    await host.mustRun(example("port-forwarder", "tcp:8081=198.51.100.2:81"));
    expect(await connect("192.0.2.1", 8081, 1, GREETED_MS)).toEqual(["198.51.100.1"]);
    expect(await connect("192.0.2.1", 9090, 1, GREETED_MS)).toEqual(["192.0.2.2"]);
    await behind.ip(["route delete 192.0.2.0/24 via 198.51.100.1"]);
  });

  test("rate-limiter accepts new connections up to its limit per second", async () => {
    await host.mustRun(example("rate-limiter", "8000", "2"));
    const greetings = await connect("192.0.2.1", 8000, 20, patience(1500));
    expect(greetings.length).toBeGreaterThanOrEqual(2);
    expect(greetings.length).toBeLessThan(20);
    const dropped = /counter packets (\d+) .* drop comment "beyond the rate"/.exec(
      await host.mustRun(["nft", "list", "ruleset"]),
    );
    expect(Number(dropped?.[1])).toBeGreaterThan(0);
    await host.mustRun(example("rate-limiter", "--remove"));
    // Less time than they would need with the limit still active.
    expect(await connect("192.0.2.1", 8000, 20, patience(5000))).toHaveLength(20);
  });

  test("watcher prints who changed the ruleset", async () => {
    const child = host.spawn(example("watcher"), { stdio: ["ignore", "pipe", "inherit"] });
    const exited = once(child, "exit");
    let output = "";
    child.stdout!.setEncoding("utf8").on("data", (text: string) => (output += text));
    await expect.poll(() => output).toContain("listening\n");
    await host.mustRun(["nft", "add table ip stranger; add chain ip stranger forward"]);
    await host.mustRun(example("rate-limiter", "8000", "2"));
    await expect
      .poll(() => output)
      .toMatch(/: nft \(thread \d+\): new table ip stranger, new chain ip stranger forward$/m);
    await expect.poll(() => output).toMatch(/new chain inet rate-limiter limited/);
    // `ip netns exec` has replaced itself with the program.
    child.kill("SIGTERM");
    expect((await exited)[0]).toBe(0);
  });

  test("top-talkers prints the clients with the most connections", async () => {
    await host.mustRun(example("rate-limiter", "9", "1")); // a rule that checks a connection's state makes the kernel track it
    expect(await connect("192.0.2.1", 8000, 100, GREETED_MS, "192.0.2.3")).toHaveLength(100);
    const output = await host.mustRun(example("top-talkers", "1"));
    expect(output).toMatch(/^192\.0\.2\.3 +100 connections +[1-9]\d+ bytes\n\d+ of \d+ entries\n$/);
  });
}
