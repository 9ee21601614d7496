/**
 * The parts of the command `conntrack` that need no kernel: options, formats, output that a pipe may cut off, progress.
 */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { filterOf } from "../../../src/cli/commands/conntrack/filter-of.js";
import { FILTER_FLAGS, readStatus } from "../../../src/cli/commands/conntrack/filter-options.js";
import { entryColumns, type Format, jsonOf } from "../../../src/cli/commands/conntrack/entry-columns.js";
import { Output, Progress, ReaderGone } from "../../../src/cli/commands/conntrack/output.js";
import { EntryWriter } from "../../../src/cli/commands/conntrack/entry-writer.js";
import { main } from "../../../src/cli/commands/program.js";
import { optionsOf, readFlags } from "../../../src/cli/read-flags.js";
import {
  CONNTRACK_STATUS,
  type ConntrackEntry,
  type ConntrackFilter,
} from "../../../src/nft/conntrack/conntrack-table.js";
import { temporaryDirectory } from "../../support/temporary-directory.ts";
import { catchOutput, type Printed } from "./printed.ts";

let printed: Printed;
let directory: string;
beforeEach(async () => {
  printed = catchOutput();
  directory = temporaryDirectory();
  const service = { apiVersion: "v1", kind: "Service", metadata: { name: "web", namespace: "demo" } };
  const spec = { clusterIP: "10.96.0.80", ports: [{ name: "http", port: 80 }] };
  await writeFile(join(directory, "web.json"), JSON.stringify({ ...service, spec }));
});
/** Returns the filter of a command line. */
function filter(...argv: string[]): ConntrackFilter {
  const { values, problems } = readFlags(argv, FILTER_FLAGS, true);
  expect(problems).toEqual([]);
  return filterOf(optionsOf(values, FILTER_FLAGS));
}

describe("filters", () => {
  test.each<[string[], ConntrackFilter]>([
    [[], {}],
    [
      ["-p", "udp", "-d", "10.96.0.10", "--dport", "53"],
      { protocol: 17, original: { destination: "10.96.0.10", destinationPort: 53 } },
    ],
    [["--reply-src", "10.1.0.0/16", "--reply-sport", "8080"], { reply: { source: "10.1.0.0/16", sourcePort: 8080 } }],
    [["--address", "10.1.0.3,10.1.0.4", "--address", "fd00::3"], { addresses: ["10.1.0.3", "10.1.0.4", "fd00::3"] }],
    [["-f", "ip6", "-s", "fd00::/8"], { family: "ip6", original: { source: "fd00::/8" } }],
    [["-p", "132", "--state", "established"], { protocol: 132, state: "ESTABLISHED" }],
    [["--mark", "0x4000/0x4000", "--zone", "0"], { mark: { value: 0x4000, mask: 0x4000 }, zone: 0 }],
    [
      ["--status", "assured,!seen-reply"],
      {
        status: {
          value: CONNTRACK_STATUS.assured,
          mask: CONNTRACK_STATUS.assured | CONNTRACK_STATUS.seenReply,
        },
      },
    ],
  ])("%j", (argv, expected) => {
    expect(filter(...argv)).toEqual(expected);
  });

  test("a repeated flag is refused", () => {
    expect(() => readStatus("assured,!assured")).toThrow(/twice/);
  });
});

describe("invalid input exits with 2, says why, and touches nothing", () => {
  test.each<[string[], RegExp]>([
    [["list", "-p", "tpc"], /must be icmp, tcp, udp/],
    [["list", "-d", "10.96.0"], /expected an address or a CIDR, found "10.96.0"/],
    [["list", "-d", "10.96.0.1/8"], /has host bits; the network is 10.0.0.0\/8/],
    [["list", "-f", "ip6", "-d", "10.96.0.1"], /is IPv4, but family is IPv6/],
    [["list", "-s", "fd00::1", "-d", "10.96.0.1"], /IPv4, but original.source "fd00::1" is IPv6/],
    [["list", "--dport", "70000"], /must be a number from 0 to 65535/],
    [["list", "-p", "icmp", "--dport", "80"], /protocol 1 has no ports/],
    [["list", "-p", "tcp", "--state", "ESTABLISHD"], /unknown state "ESTABLISHD"; the states are NONE, SYN_SENT/],
    [["list", "--status", "asured"], /must be some of expected, seen-reply, assured/],
    [["list", "--mark", "1/2/3"], /VALUE\/MASK/],
    [["list", "-o", "yaml"], /must be one of text, wide, json/],
    [["list", "--servce", "a/b"], /Did you mean --service/],
    [["lst"], /Did you mean list/],
    [["count", "--by", "client"], /must be one of source, destination, service/],
    [["gc", "--manifests", ".", "-p", "x"], /must be icmp/],
    [["delete"], /delete needs a filter .* or --all/],
    [["delete", "--dry-run"], /delete needs a filter/],
    [["delete", "--all", "-p", "udp"], /a filter or --all, not both/],
    [["list", "--address", "10.0.0"], /addresses\[0\]: expected an address or a CIDR, found "10.0.0"/],
    [["list", "-f", "ip6", "--address", "10.0.0.1"], /addresses: no entry can match one of them/],
    [["get", "tcp", "10.0.0.1:80"], /missing required argument 'destination'/],
    [["get", "tcp", "10.0.0.1", "10.96.0.1:80"], /port of both source and destination/],
    [["get", "tcp", "10.0.0.1:80", "[fd00::1]:80"], /same address family/],
    [["get", "tcp", "fd00::1:zz", "[fd00::1]:80"], /must be ADDRESS:PORT/],
    [["get", "icmp", "10.0.0.1:1", "10.0.0.2:2"], /protocols with ports/],
    [[], /Usage/],
  ])("%j", async (argv, message) => {
    expect(await main(["conntrack", ...argv])).toBe(2);
    expect(printed.err).toMatch(message);
  });
});

test.each<[string[], RegExp]>([
  [["--service", "demo/wbe"], /there is no service demo\/wbe \(did you mean demo\/web\?\)/],
  [["--service", "wbe"], /there is no service wbe/],
  [["--service", "demo/web:https"], /demo\/web has no such port/],
])("an unknown service, %j, exits with 1 and names the nearest", async (argv, message) => {
  expect(await main(["conntrack", "list", "--manifests", directory, ...argv])).toBe(1);
  expect(printed.err).toMatch(message);
});

test.each([
  ["list", "--service", "demo/web"],
  ["count", "--by", "service"],
  ["delete", "--service", "demo/web"],
  ["gc"],
])("%s %s %s asks the daemon; without one it exits with 1 and says what else to pass", async (...argv) => {
  const words = argv.filter((word) => word !== undefined);
  expect(await main(["conntrack", ...words, "--socket", join(directory, "none")])).toBe(1);
  expect(printed.err).toMatch(
    /no daemon answers at .*none\. .* Instead, give the services with --manifests <dir>, or with --config or --kubeconfig/,
  );
});

test("a missing directory exits with 1", async () => {
  expect(await main(["conntrack", "list", "--manifests", join(directory, "nowhere")])).toBe(1);
  expect(printed.err).toMatch(/nowhere/);
});

test("help names the sub-commands", async () => {
  expect(await main(["conntrack", "--help"])).toBe(0);
  for (const name of ["list", "get", "count", "gc", "delete", "watch"]) expect(printed.out).toContain(`  ${name} `);
});

const entry: ConntrackEntry = {
  family: "ip",
  original: { source: "10.244.0.5", sourcePort: 41_234, destination: "10.96.0.80", destinationPort: 80, protocol: 6 },
  reply: { source: "10.244.1.3", sourcePort: 8080, destination: "192.0.2.10", destinationPort: 41_235, protocol: 6 },
  id: 77,
  status: CONNTRACK_STATUS.assured | CONNTRACK_STATUS.seenReply | CONNTRACK_STATUS.confirmed,
  timeout: 86_395,
  mark: 0x4000,
  zone: 0,
  state: "ESTABLISHED",
  counters: { original: { packets: 3n, bytes: 2n ** 60n }, reply: { packets: 2n, bytes: 120n } },
  startedAt: Date.UTC(2026, 0, 2, 3, 4, 5, 6),
};
const names = { service: "demo/web:http", pod: "demo/web-0" };

const titles = (format: Format, named: boolean): string[] => entryColumns(format, named).map(({ title }) => title);
const cells = (one: ConntrackEntry, format: Format, named: boolean, of = {}): string[] =>
  entryColumns(format, named).map((column) => column.text({ entry: one, names: of, extra: [] }));

describe("formats", () => {
  test("text has columns: source, destination, the endpoint that answers, and the service", () => {
    expect(titles("text", true)).toEqual([
      "PROTO",
      "STATE",
      "LEFT",
      "SOURCE",
      "DESTINATION",
      "ENDPOINT",
      "SERVICE",
      "POD",
    ]);
    expect(cells(entry, "text", true, names)).toEqual([
      "tcp",
      "ESTABLISHED",
      "86395s",
      "10.244.0.5:41234",
      "10.96.0.80:80",
      "10.244.1.3:8080",
      "demo/web:http",
      "demo/web-0",
    ]);
  });

  test("an unknown value is a dash, and a protocol without states shows its progress", () => {
    const udp = (status: number): ConntrackEntry => {
      const original = { ...entry.original, protocol: 17 };
      const { source, sourcePort, destination, destinationPort } = original;
      const reply = {
        source: destination,
        sourcePort: destinationPort,
        destination: source,
        destinationPort: sourcePort,
      };
      return { family: "ip", original, reply: { ...reply, protocol: 17 }, id: 1, status, mark: 0, zone: 0 };
    };
    const row = (status: number) => cells(udp(status), "text", false).slice(0, 3);
    expect(row(0)).toEqual(["udp", "UNREPLIED", "-"]);
    expect(row(CONNTRACK_STATUS.seenReply)).toEqual(["udp", "REPLIED", "-"]);
    expect(row(CONNTRACK_STATUS.seenReply | CONNTRACK_STATUS.assured)).toEqual(["udp", "ASSURED", "-"]);
    expect(cells(udp(0), "text", false).at(-1)).toBe("-");
  });

  test("wide output adds the kernel's other values", () => {
    expect(titles("wide", false).slice(6)).toEqual([
      "REPLY-TO",
      "PACKETS",
      "BYTES",
      "MARK",
      "ZONE",
      "SINCE",
      "ID",
      "FLAGS",
    ]);
    expect(cells(entry, "wide", false).slice(6)).toEqual([
      "192.0.2.10:41235",
      "3/2",
      "1152921504606846976/120",
      "0x4000",
      "-",
      "2026-01-02T03:04:05.006Z",
      "77",
      "seen-reply,assured,confirmed",
    ]);
  });

  test("IPv6 addresses have brackets if they have a port", () => {
    const tuple = { source: "fd00::5", sourcePort: 1, destination: "fd00::80", destinationPort: 80, protocol: 17 };
    const row = cells({ ...entry, family: "ip6", original: tuple }, "text", false);
    expect(row.slice(3, 5)).toEqual(["[fd00::5]:1", "[fd00::80]:80"]);
  });

  test("JSON is one object with numbers, and with text if a number would be rounded", () => {
    expect(JSON.parse(JSON.stringify(jsonOf(entry, names)))).toEqual({
      family: "IPv4",
      protocol: "tcp",
      state: "ESTABLISHED",
      original: { source: "10.244.0.5", sourcePort: 41_234, destination: "10.96.0.80", destinationPort: 80 },
      reply: { source: "10.244.1.3", sourcePort: 8080, destination: "192.0.2.10", destinationPort: 41_235 },
      status: ["seen-reply", "assured", "confirmed"],
      timeoutSeconds: 86_395,
      mark: 0x4000,
      zone: 0,
      id: 77,
      counters: { original: { packets: 3, bytes: "1152921504606846976" }, reply: { packets: 2, bytes: 120 } },
      startedAt: "2026-01-02T03:04:05.006Z",
      service: "demo/web:http",
      pod: "demo/web-0",
    });
  });
});

describe("lines", () => {
  async function written(width: number | undefined, format: "text" | "wide", entries: readonly ConntrackEntry[]) {
    let text = "";
    const to = (more: string): Promise<boolean> => {
      text += more;
      return Promise.resolve(true);
    };
    const writer = new EntryWriter(new Output(to), { format, named: true, headers: true, width });
    writer.head();
    for (const one of entries) await writer.entry(one, names);
    await writer.flush();
    return text.trimEnd().split("\n");
  }
  const long: ConntrackEntry = {
    ...entry,
    family: "ip6",
    original: { ...entry.original, source: "2001:db8:1111:2222:3333:4444:5555:6666", destination: "fd00:10:96::101" },
    reply: { ...entry.reply, source: "2001:db8:1111:2222:3333:4444:5555:7777" },
  };

  test.each([60, 80, 100, 120])(
    "no line is longer than a terminal of %d columns, whatever follows",
    async (columns) => {
      const lines = await written(columns, "text", [...Array.from({ length: 300 }, () => entry), long, entry]);
      expect(lines).toHaveLength(303);
      expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(columns);
      expect(lines[301]).toMatch(/ \[20[^ ]*….*…/);
    },
  );

  test("a terminal that is wide enough loses nothing, and columns are as wide as they need", async () => {
    const [head, line] = await written(130, "text", [entry]);
    expect(line).not.toContain("…");
    expect(line.indexOf("10.96.0.80:80")).toBe(head.indexOf("DESTINATION"));
    expect(line.length).toBeLessThan(115);
  });

  test("lines in a pipe, and wide ones, are not truncated", async () => {
    expect((await written(undefined, "text", [long]))[1]).toContain("[2001:db8:1111:2222:3333:4444:5555:7777]:8080");
    expect((await written(80, "wide", [long]))[1]).toContain("[2001:db8:1111:2222:3333:4444:5555:7777]:8080");
  });
});

describe("output", () => {
  test("is written in large pieces, and the rest at the end", async () => {
    const written: string[] = [];
    const output = new Output((text) => Promise.resolve(written.push(text) > 0));
    for (let i = 0; i < 1000; i++) await output.line("x".repeat(99));
    await output.flush();
    expect(written.join("").length).toBe(100_000);
    expect(written.length).toBeLessThan(10);
  });

  test("ends quietly when the reader ends, and with the error otherwise", async () => {
    const gone = new Output(() => Promise.resolve(false));
    await gone.line("x");
    await expect(gone.flush()).rejects.toBeInstanceOf(ReaderGone);
    const full = new Output(() => Promise.reject(new Error("no space")));
    await full.line("x");
    await expect(full.flush()).rejects.toThrow("no space");
  });
});

describe("progress", () => {
  test("is shown now and then, and disappears", () => {
    let now = 0;
    let shown = "";
    const progress = new Progress(
      (text) => (shown += text),
      200_000,
      () => now,
    );
    progress.update(10);
    expect(shown).toBe("");
    now = 1500;
    progress.update(50_000);
    expect(shown).toContain("50000 of about 200000 entries, 1.5s");
    shown = "";
    progress.clear();
    progress.clear();
    expect(shown).toBe("\r\u001b[K");
  });

  test("is silent without a terminal", () => {
    let now = 0;
    const progress = new Progress(undefined, 0, () => now);
    now = 10_000;
    progress.update(1);
    progress.clear();
  });
});
