/** Tables of the families netdev, bridge, inet and arp: which real packets their rules match, what is rejected, and the text that nft reads. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FieldError, type Kernel, openKernel, printRule, type Statement, Table } from "@nft-proxier/nft";
import { Namespace } from "../lab/namespace.ts";

let host: Namespace;
let left: Namespace;
let right: Namespace;
let kernel: Kernel;
let receiver: Kernel;

/** Two machines with a bridge between them. */
beforeAll(async () => {
  [host, left, right] = await Promise.all(["bridged", "left", "right"].map((name) => Namespace.create(name)));
  await host.ip([
    "link add br0 type bridge mcast_snooping 0",
    "link set br0 up",
    ...["left", "right"].flatMap((name) => [
      `link add ${name} type veth peer name eth0 netns ${name}`,
      `link set ${name} master br0 up`,
    ]),
  ]);
  await left.ip(["address add 192.0.2.1/24 dev eth0", "address add 2001:db8::1/64 dev eth0 nodad", "link set eth0 up"]);
  await right.ip([
    "address add 192.0.2.2/24 dev eth0",
    "address add 2001:db8::2/64 dev eth0 nodad",
    "link set eth0 up",
  ]);
  kernel = await openKernel({ netns: `/run/netns/${host.name}` });
  receiver = await openKernel({ netns: `/run/netns/${right.name}` });
});
afterAll(async () => {
  await kernel.close();
  await receiver.close();
  await Promise.all([host, left, right].map((namespace) => namespace.destroy()));
});

/** Each rule counts, with its own statements, matches among two IPv4 packets and two IPv6 packets to UDP port 9. */
async function counted(table: Table, chain: string, at: Kernel): Promise<number[]> {
  const rules = await at.rules(table.ref, chain);
  return rules.map(({ exprs }) => Number(exprs.find((expr) => expr.type === "counter")?.packets));
}

async function send(): Promise<void> {
  const script = `const dgram = require("dgram");
    const send = (type, to) => new Promise((done) => { const s = dgram.createSocket(type); s.send("x", 9, to, () => s.send("x", 9, to, () => s.close(done))); });
    send("udp4", "192.0.2.2").then(() => send("udp6", "2001:db8::2"));`;
  await left.mustRun([process.execPath, "-e", script]);
}

const UDP: Statement = { field: "meta l4proto", value: "udp" };
/** Number of matches of each: of four packets, two are IPv4. */
const RULES: readonly (readonly [statements: readonly Statement[], packets: number])[] = [
  [[{ field: "ip saddr", value: "192.0.2.0/24" }, UDP], 2],
  [[{ field: "ip saddr", value: ["192.0.2.1", "192.0.2.7"] }, UDP], 2],
  [[{ field: "ip saddr", op: "!=", value: "192.0.2.7" }, UDP], 2],
  [[{ field: "ip6 daddr", value: "2001:db8::/64" }, UDP], 2],
  [[UDP, { field: "th dport", value: 9 }], 4],
  [[UDP, { field: ["saddr", "th dport"], value: "@four" }], 2],
  [[UDP, { field: "daddr", value: "@six" }], 2],
  // The address is not the first field of the key.
  [[UDP, { field: ["th dport", "saddr"], value: "@port-four" }], 2],
  [[{ field: ["meta l4proto", "th dport", "daddr"], value: "@port-six" }], 2],
];

describe.each([
  ["netdev", "ingress", { devices: ["left"] }],
  ["bridge", "forward", {}],
  ["inet", "input", {}],
  ["inet", "ingress", { devices: ["left"] }],
] as const)("in a table of family %s at %s", (family, hook, devices) => {
  test("rules match packets by address, protocol and port, and nft reads the text", async () => {
    // Packets that the host bridges do not reach its inet hooks.
    const at = hook === "input" ? receiver : kernel;
    const table = new Table(at, { family, name: "family" });
    table.set({ set: "four", key: ["ipv4_addr", "inet_service"] }).put(["192.0.2.1", 9]);
    table.set({ set: "six", key: ["ipv6_addr"] }).put("2001:db8::2");
    table.set({ set: "port-four", key: ["inet_service", "ipv4_addr"] }).put([9, "192.0.2.1"]);
    table.set({ set: "port-six", key: ["inet_proto", "inet_service", "ipv6_addr"] }).put(["udp", 9, "2001:db8::2"]);
    const rules = RULES.map(([statements]) => ({ statements: [...statements, { action: "counter" } as const] }));
    table.chain({ chain: "a", base: { type: "filter", hook, priority: "filter", ...devices }, rules });
    await table.apply();
    await send();
    await expect.poll(() => counted(table, "a", at)).toEqual(RULES.map(([, packets]) => packets));
    expect(await host.mustRun(["nft", "-c", "-f", "-"], { input: table.render() })).toBe("");
    // A restart finds the same table.
    table.invalidate("a restart");
    expect((await table.apply()).transactions).toBe(0);
    await table.destroy();
  });
});

test("a priority has the number that nft gives it in the family", () => {
  const of = (family: "bridge" | "ip"): string => {
    const table = new Table(kernel, { family, name: "family" });
    table.chain({ chain: "a", base: { type: "filter", hook: "input", priority: "filter" }, rules: [] });
    return /hook .*;/.exec(table.render())?.[0] ?? "";
  };
  expect([of("bridge"), of("ip")]).toEqual([
    "hook input priority -200; policy accept;",
    "hook input priority 0; policy accept;",
  ]);
});

describe("in a table of family arp", () => {
  test("rules count incoming packets", async () => {
    const table = new Table(receiver, { family: "arp", name: "family" });
    const interfaces = table.set({ set: "interfaces", key: ["ifname"] });
    interfaces.put("eth0");
    table.chain({
      chain: "a",
      base: { type: "filter", hook: "input", priority: "filter" },
      rules: [{ statements: [{ field: "iifname", value: "@interfaces" }, { action: "counter" }] }],
    });
    await table.apply();
    await left.ip(["neigh flush all"]);
    await send();
    await expect
      .poll(async () => {
        const [{ exprs }] = await receiver.rules(table.ref, "a");
        return Number(exprs.find((expr) => expr.type === "counter")?.packets);
      })
      .toBeGreaterThan(0);
    expect(await right.mustRun(["nft", "-c", "-f", "-"], { input: table.render() })).toBe("");
    await table.destroy();
  });

  test.each([
    { field: "ip saddr", value: "192.0.2.0/24" },
    { field: "th dport", value: 80 },
    { field: "meta l4proto", value: "tcp" },
    { field: "icmp type", value: 8 },
    { field: "saddr", value: "@s" },
    { field: "ct state", value: "new" },
  ] as const satisfies Statement[])("a comparison of $field is refused, because no packet matches it", (statement) => {
    expect(() => printRule([statement], { family: "arp" })).toThrow(/arp/);
  });
});

test("hooks of other families are refused by name and number", () => {
  const chain = (family: "arp" | "netdev" | "ip", hook: string | number): unknown => {
    const base = { type: "filter", hook: hook as "input", priority: "filter" } as const;
    try {
      return new Table(kernel, { family, name: "family" }).chain({ chain: "a", base, rules: [] });
    } catch (error) {
      return error;
    }
  };
  for (const [family, hook] of [
    ["netdev", "input"],
    ["arp", "forward"],
    ["arp", 2],
    ["ip", "ingress"],
    ["ip", 5],
  ] as const)
    expect(chain(family, hook), `${family} ${hook}`).toBeInstanceOf(FieldError);
});
