/**
 * Keys, data and verdicts as people write them: accepted values, and rejected ones with their messages, at compile time and at run time.
 */
import { execFileSync } from "node:child_process";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { FieldError, type Kernel, openKernel, printRule, Table } from "@nft-proxier/nft";
import { openConntrack } from "@nft-proxier/nft/conntrack";

const ROOT = path.resolve(import.meta.dirname, "../..");

function declared(): Table {
  // No kernel is needed: the table is declared and printed.
  return new Table({ portId: 0 } as Kernel, { family: "ip", name: "mine" });
}

/** Returns the FieldError that `action` throws. */
function refusal(action: () => unknown): FieldError {
  try {
    action();
  } catch (error) {
    if (error instanceof FieldError) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

describe("a set", () => {
  test("accepts addresses as text and as bytes: the same element", () => {
    const set = declared().set({ set: "friends", key: ["ipv4_addr"] });
    expect(set.put("192.0.2.1")).toBe(true);
    expect(set.put(Uint8Array.of(192, 0, 2, 1))).toBe(false);
    expect([set.size, set.has("192.0.2.1"), set.has("192.0.2.2")]).toEqual([1, true, false]);
    expect([set.delete(Uint8Array.of(192, 0, 2, 1)), set.size]).toEqual([true, 0]);
  });

  test("names the field and what was expected", () => {
    const table = declared();
    const friends = table.set({ set: "friends", key: ["ipv4_addr"] });
    // @ts-expect-error a number is no address
    expect(refusal(() => friends.put(42)).message).toBe(
      'set friends, key (ipv4_addr): expected an IPv4 address ("192.0.2.1"), found 42',
    );
    expect(refusal(() => friends.put("2001:db8::1")).message).toContain("expected an IPv4 address");
    expect(refusal(() => friends.put(Uint8Array.of(1, 2))).message).toBe(
      "set friends, key: expected 4 bytes, found 2 bytes",
    );
    // @ts-expect-error a set of one field takes no tuple
    expect(refusal(() => friends.put(["192.0.2.1"])).field).toBe("set friends, key (ipv4_addr)");
    // @ts-expect-error a set has no data
    expect(refusal(() => friends.put("192.0.2.1", "accept")).field).toBe("set friends, options");
    // @ts-expect-error there is no such type
    expect(refusal(() => table.set({ set: "odd", key: ["address"] })).message).toContain(
      "set odd, key[0]: expected one of ipv4_addr, ipv6_addr,",
    );
  });

  test("a set of networks accepts them as text, and names an invalid one", async () => {
    const set = declared().set({ set: "blocked", key: ["ipv4_addr"], interval: true });
    await set.replace(["192.0.2.0/25", "192.0.2.128/25", "198.51.100.7"]);
    expect(set.networks()).toEqual(["192.0.2.0/24", "198.51.100.7"]);
    await expect(set.replace(["192.0.2.0/33"])).rejects.toThrow('"192.0.2.0/33"');
    await expect(set.replace(["198.51.100.0/24", "2001:db8::/32"])).rejects.toThrow(
      'set blocked, key (ipv4_addr): expected an IPv4 address ("192.0.2.1"), a network or a range ("FROM-TO"), ' +
        'found "2001:db8::/32"',
    );
    expect(set.networks()).toEqual(["192.0.2.0/24", "198.51.100.7"]);
    expect(refusal(() => set.put("192.0.2.1")).message).toContain("192.0.2.1 overlaps 192.0.2.0/24");
  });
});

describe("a map", () => {
  test("accepts a tuple for a concatenation, and returns its contents", () => {
    const map = declared().set({
      set: "forwards",
      key: ["ipv4_addr", "inet_proto", "inet_service"],
      data: ["ipv4_addr", "inet_service"],
    });
    map.put(["10.96.0.80", "tcp", 80], ["10.244.0.2", 8080]);
    expect(map.get(["10.96.0.80", 6, 80])).toEqual(["10.244.0.2", 8080]);
    expect(map.get(Uint8Array.of(10, 96, 0, 80, 6, 0, 0, 0, 0, 80, 0, 0))).toEqual(["10.244.0.2", 8080]);
    expect(map.get(["10.96.0.80", "udp", 80])).toBeUndefined();
    const error = refusal(() => map.put(["10.96.0.80", "tcp", 65536], ["10.244.0.2", 8080]));
    expect([error.field, error.expected, error.value]).toEqual([
      "set forwards, key[2] (inet_service)",
      "a port from 0 to 65535",
      65536,
    ]);
    // @ts-expect-error there is no such protocol
    expect(refusal(() => map.put(["10.96.0.80", "tpc", 80], ["10.244.0.2", 80])).field).toContain(
      "key[1] (inet_proto)",
    );
    // @ts-expect-error a port is a number
    expect(refusal(() => map.put(["10.96.0.80", "tcp", 80], ["10.244.0.2", "http"])).field).toContain("data[1]");
    // @ts-expect-error a field is missing
    expect(refusal(() => map.get(["10.96.0.80", "tcp"])).expected).toContain("[ipv4_addr, inet_proto, inet_service]");
    expect(map.size).toBe(1);
  });

  test("a map of verdicts accepts them as nft writes them", () => {
    const table = declared();
    const map = table.set({ set: "services", key: ["ipv4_addr", "inet_service"], data: "verdict" });
    map.put(["10.96.0.80", 80], "goto web");
    map.put(["10.96.0.81", 80], "drop");
    expect([map.get(["10.96.0.80", 80]), map.get(["10.96.0.81", 80])]).toEqual(["goto web", "drop"]);
    expect(table.render()).toContain("elements = { 10.96.0.80 . 80 : goto web,");
    // @ts-expect-error no verdict of nf_tables
    expect(refusal(() => map.put(["10.96.0.80", 80], "deny")).message).toBe(
      'map services, data: expected "accept", "drop", "return", "continue", "jump CHAIN" or "goto CHAIN", found "deny"',
    );
    expect(map.get(["10.96.0.80", 80])).toBe("goto web");
  });

  test("keeps marks, classes, interfaces and indices", () => {
    const map = declared().set({ set: "odd", key: ["ifname", "mark"], data: ["classid"] });
    map.put(["eth0", 0xffffffff], "15:3");
    expect(map.get(["eth0", 0xffffffff])).toBe(0x150003);
    expect(refusal(() => map.put(["an-interface-name", 1], 1)).field).toBe("set odd, key[0] (ifname)");
    expect(refusal(() => map.put(["eth0", -1], 1)).expected).toBe("a mark from 0 to 4294967295");
    expect(refusal(() => map.put(["eth0", 1], "15:x")).field).toBe("map odd, data (classid)");
  });
});

describe("a chain", () => {
  test("accepts hooks, priorities and verdicts by name", () => {
    const table = declared();
    table.chain({
      chain: "input",
      base: { type: "filter", hook: "input", priority: "filter" },
      rules: [
        {
          statements: [
            { field: "meta l4proto", value: "tcp" },
            { action: "verdict", verdict: "jump web" },
          ],
        },
      ],
    });
    table.chain({ chain: "web", rules: [{ statements: [{ action: "verdict", verdict: "accept" }] }] });
    expect(table.render()).toContain(
      "type filter hook input priority 0; policy accept;\n\t\tmeta l4proto tcp jump web",
    );
    const misspelt = { type: "filter", hook: "inputs", priority: 0 } as const;
    // @ts-expect-error there is no such hook
    expect(refusal(() => table.chain({ chain: "a", base: misspelt, rules: [] })).message).toContain(
      "chain a, base, hook: expected a hook's number or one of prerouting, input, forward, output, postrouting",
    );
    const verdict = { action: "verdict", verdict: "accepts" } as const;
    // @ts-expect-error no verdict of nf_tables
    expect(refusal(() => table.chain({ chain: "a", rules: [{ statements: [verdict] }] })).field).toBe(
      "chain a, rule 0, statement 0, verdict",
    );
  });

  test("has rules that can be printed one by one", () => {
    const statements = [
      { field: ["saddr", "th dport"], value: "@friends" },
      { action: "verdict", verdict: "drop" },
    ] as const;
    expect(printRule(statements, { family: "ip" })).toBe("ip saddr . th dport @friends drop");
    expect(printRule({ statements, comment: "no friend" }, { family: "ip6" })).toBe(
      'ip6 saddr . th dport @friends drop comment "no friend"',
    );
  });
});

describe("conntrack", () => {
  test("accepts protocols by name, and names invalid values", async () => {
    const conntrack = await openConntrack();
    try {
      const client = { source: "192.0.2.1", destination: "192.0.2.2", sourcePort: 1024, destinationPort: 53 };
      const original = { ...client, protocol: 17 };
      const reply = {
        ...{ source: "192.0.2.2", destination: "192.0.2.1", protocol: 17 },
        ...{ sourcePort: 53, destinationPort: 1024 },
      };
      const seen: number[] = [];
      const gone: number[] = [];
      const stream = await conntrack.watch({
        onDestroy: ({ id }) => gone.push(id),
        onLost: () => undefined,
        onError: (error) => void seen.push(error.message.length),
      });
      await conntrack.create({ family: "ip", original, reply, timeout: 60 });
      const found = await conntrack.get({ ...client, protocol: "udp" });
      expect(found?.original).toMatchObject(original);
      expect(await conntrack.get({ ...client, protocol: "tcp" })).toBeUndefined();
      await conntrack.dump({ protocol: "udp" }, (entries) => void seen.push(...entries.map(({ id }) => id)));
      expect([seen, await conntrack.count()]).toEqual([[found?.id], 1]);
      expect(await conntrack.deleteMatching({ protocol: "tcp" })).toMatchObject({ deleted: 0 });
      expect(await conntrack.delete(found!)).toBe(true);
      await expect.poll(() => gone).toEqual([found?.id]);
      await stream.close();
      // @ts-expect-error there is no such protocol
      await expect(async () => conntrack.deleteMatching({ protocol: "upd" })).rejects.toThrow(
        'protocol: expected a protocol ("tcp", or a number from 0 to 255), found "upd"',
      );
      await expect(async () => conntrack.get({ ...client, source: "here", protocol: 6 })).rejects.toThrow(
        'source: expected an IP address, found "here"',
      );
    } finally {
      await conntrack.close();
    }
  });
});

describe("the package", () => {
  test("has four entry points and its package.json, and refuses deeper paths", async () => {
    const resolve = (name: string): string => import.meta.resolve(name);
    expect(resolve("@nft-proxier/nft")).toMatch(/\/dist\/nft\/nft-exports\.js$/);
    expect(resolve("@nft-proxier/nft/conntrack")).toMatch(/\/dist\/nft\/conntrack\/connections\.js$/);
    expect(resolve("@nft-proxier/nft/engine")).toMatch(/\/dist\/nft\/engine-exports\.js$/);
    expect(resolve("@nft-proxier/nft/testing")).toMatch(/\/dist\/nft\/testing\/testing-exports\.js$/);
    expect(resolve("@nft-proxier/nft/package.json")).toMatch(/\/package\.json$/);
    for (const deep of ["@nft-proxier/nft/table", "@nft-proxier/nft/dist/nft/sync/plan.js"]) {
      const script = `await import(${JSON.stringify(deep)}).then(() => console.log("taken"), (e) => console.log(e.code))`;
      const answer = execFileSync(process.execPath, ["--input-type=module", "-e", script], {
        cwd: ROOT,
        encoding: "utf8",
      });
      expect(`${deep}: ${answer.trim()}`).toBe(`${deep}: ERR_PACKAGE_PATH_NOT_EXPORTED`);
    }
  });

  test("opens the kernel's nf_tables of this namespace", async () => {
    const kernel = await openKernel();
    expect(await kernel.tables()).toBeInstanceOf(Array);
    await kernel.close();
  });
});
