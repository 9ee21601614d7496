/**
 * Other programs' `nft list ruleset` must work while our table exists, with services of every kind and with clients in
 * the affinity maps. Uses the machine's nft, and with NFT_VERSIONS=all those of other Debian releases.
 */
import { spawnSync } from "node:child_process";
import { createSocket } from "node:dgram";
import { createConnection } from "node:net";
import { readFileSync } from "node:fs";
import path from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { nftCommand, suites } from "./debian-nft.ts";

const root = path.resolve(import.meta.dirname, "..", "..");
const examples = path.join(root, "deploy", "examples");

interface Run {
  readonly status: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

function run(command: readonly string[]): Run {
  const [program = "", ...args] = command;
  const { status, signal, stdout, stderr, error } = spawnSync(program, args, { encoding: "utf8", maxBuffer: 1 << 26 });
  if (error !== undefined) throw error;
  return { status, signal, stdout, stderr };
}

function must(command: string): void {
  const result = run(command.split(" "));
  if (result.status !== 0) throw new Error(`${command}: ${result.stderr}`);
}

/** Sends one datagram from this node to a service, so that the affinity maps remember a client. */
function send(family: "udp4" | "udp6", address: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(family);
    socket.send("hello", port, address, (error) => {
      socket.close();
      if (error === null) resolve();
      else reject(error);
    });
  });
}

/** Sends one SYN to a service whose endpoint never answers. */
function connectAndLeave(address: string, port: number): void {
  const socket = createConnection({ host: address, port });
  socket.on("error", () => undefined);
  setTimeout(() => socket.destroy(), 1000);
}

const nfts = [
  { name: "this machine", version: undefined, command: (): readonly string[] => ["nft"] },
  ...(process.env["NFT_VERSIONS"] === "all"
    ? suites.map((suite) => ({
        name: `Debian ${suite.name}`,
        version: suite.version,
        command: () => nftCommand(suite),
      }))
    : []),
];

/** The commands of docs/commands.md that show a Service, without their filters. */
const recipes = readFileSync(path.join(root, "docs", "commands.md"), "utf8")
  .split("\n")
  .filter((line) => /^ {4}nft (get|list) /.test(line))
  .map((text) => ({
    text,
    command:
      (/^[^#|]*/.exec(text.trim())?.[0] ?? "").match(/'[^']*'|\S+/g)?.map((word) => word.replaceAll("'", "")) ?? [],
  }));

beforeAll(async () => {
  if (process.env["NFT_PROXIER_LAB"] !== "1") {
    throw new Error("this must run in its own network namespace. Run `npm run test:nft`.");
  }
  must("nft flush ruleset");
  must("ip link add uplink type veth peer name nowhere");
  must("ip link set uplink up");
  must("ip link set nowhere up");
  must("ip address add 192.0.2.10/24 dev uplink");
  must("ip address add 2001:db8:1::10/64 dev uplink nodad");
  must("ip route add default dev uplink");
  must("ip -6 route add default dev uplink");
  const manifests = path.join(examples, "manifests");
  const config = path.join(examples, "config.yaml");
  const main = path.join(root, "dist", "main.js");
  const proxier = run([process.execPath, main, "run", "--manifests", manifests, "--config", config, "--once"]);
  expect(proxier.stderr + proxier.stdout, "output of run --once").not.toContain('"level":"error"');
  expect(proxier.status).toBe(0);
  // The limits of demo/cache count them.
  for (const address of ["10.96.0.111", "fd00:10:96::111"]) connectAndLeave(address, 6379);
  await send("udp4", "10.96.0.90", 9000);
  await send("udp6", "fd00:10:96::90", 9000);
});

describe.each(nfts)("nft of $name", ({ command, version }) => {
  it("has the expected version", () => {
    expect(run([...command(), "--version"]).stdout).toContain(`nftables v${version ?? ""}`);
  });

  it.each(["list", "-a list", "-n list", "-s list", "-j list"])("%s ruleset", (words) => {
    const result = run([...command(), ...words.split(" "), "ruleset"]);
    expect(result).toMatchObject({ status: 0, signal: null, stderr: "" });
    for (const address of ["10.96.0.80", "203.0.113.43", "fd00:10:96::80", "fd00:10:244::85"]) {
      expect(result.stdout).toContain(address);
    }
    expect(result.stdout).toContain("jhash");
    if (words !== "-j list") {
      expect(result.stdout).toMatch(/limit rate over 10\/second burst 20 packets/);
      expect(result.stdout).toMatch(/ct count over 50/);
    }
    // The list includes the clients in the affinity maps.
    expect(result.stdout).toContain(words === "-s list" ? "timeout" : "expires");
    if (words === "-j list") expect(JSON.parse(result.stdout)).toHaveProperty("nftables");
  });

  it("the listing answers the questions of docs/commands.md", () => {
    const told = recipes.map(({ command: [, ...words] }) => run([...command(), ...words]));
    for (const { status, stderr } of told) expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    const [list, endpoints, none, nodePorts] = told.map(({ stdout }) => stdout);
    expect(list).toMatch(/10\.96\.0\.80 \. tcp \. 80 counter packets \d+ bytes \d+ : 15:3/);
    for (const index of [0, 1, 2])
      expect(endpoints).toMatch(new RegExp(`10.96.0.80 \\. tcp \\. 80 \\. (0x0+)?${index} : 10.244`));
    expect(none).toContain("10.96.0.99 . tcp . 80 : goto reject-chain");
    expect(nodePorts).toMatch(/tcp \. 30080 counter packets \d+ bytes \d+ : a0:3/);
    const [sticky, chain, numbers, clients] = told.slice(4).map(({ stdout }) => stdout);
    expect(sticky).toMatch(/10\.96\.0\.90 \. udp \. 9000 counter packets \d+ bytes \d+ : 2b53:6cde/);
    expect(chain).toContain("2b53:6cde : goto sticky-cluster-eb36cde81c-demo_cart_udp_feed");
    expect(numbers).toMatch(/6b[0-9a-f]{2}:[0-9a-f]+ : 10\.244\.0\.21 \. 9000/);
    expect(clients).toMatch(/ \. 6b[0-9a-f]{2}:[0-9a-f]+ (timeout|expires)/);
    for (const value of ["15:3", "endpoints-5", "a0:3", "2b53:6cde"])
      expect(recipes.map(({ text }) => text).join("\n")).toContain(value);
  });
});
