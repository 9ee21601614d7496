/** How `top` displays the daemon's answers. */
import { expect, test } from "vitest";
import { keyOf, topRows, topText } from "../../../src/cli/commands/top.js";
import type { ServiceList, ServicePortStatus } from "../../../src/observe/status-report.js";
import { PORT_STATUS } from "../observe/port-status.ts";

const port = (name: string, more: Partial<ServicePortStatus>): ServicePortStatus => ({ ...PORT_STATUS, name, ...more });
const list = (...items: ServicePortStatus[]): ServiceList => ({
  apiVersion: "nft-proxier.dev/v1",
  kind: "ServiceList",
  items,
});
const sampleOf = (items: ServiceList, at: number) => {
  const rows = topRows(items) ?? [];
  return { rows, sample: { at, rows: new Map(rows.map((row) => [keyOf(row), row.connections])) } };
};
const namesOf = (text: string): string[] =>
  text
    .split("\n")
    .slice(3)
    .map((line) => line.split(/\s+/)[0] ?? "");

test("rows are sorted by their rates between two readings, and equal ones by their connections", () => {
  const [a, b, c] = ["a", "b", "c"];
  const before = sampleOf(
    list(port(a, { connections: 100 }), port(b, { connections: 0 }), port(c, { connections: 7 })),
    0,
  ).sample;
  const now = sampleOf(
    list(port(a, { connections: 100 }), port(b, { connections: 30 }), port(c, { connections: 7 })),
    2000,
  );
  const text = topText(now.rows, { words: [], sample: now.sample, before, lines: 10 });
  expect(namesOf(text)).toEqual(["default/b", "default/a", "default/c"]);
  expect(text).toContain("3 service ports; new connections: 15/s since the previous screen");
});

test("a reset counter has no rate, and at the first reading the daemon's rate counts", () => {
  const before = sampleOf(list(port("a", { connections: 100 })), 0).sample;
  const now = sampleOf(list(port("a", { connections: 1, connectionsPerSecond: 2.5 })), 1000);
  const again = topText(now.rows, { words: [], sample: now.sample, before, lines: 10 });
  expect(again).toMatch(/default\/a +80\/TCP +IPv4 +- +1$/);
  const first = topText(now.rows, { words: [], sample: now.sample, before: undefined, lines: 10 });
  expect(first).toMatch(/default\/a +80\/TCP +IPv4 +2\.5\/s +1$/);
});

test("only lines that fit are shown, with the number of hidden ones", () => {
  const now = sampleOf(list(...["a", "b", "c"].map((name) => port(name, { connections: 1 }))), 0);
  const text = topText(now.rows, { words: [], sample: now.sample, before: undefined, lines: 2 });
  expect(namesOf(text)).toHaveLength(2);
  expect(text).toMatch(/^3 service ports \(1 not shown\); /);
  const all = topText(now.rows, { words: [], sample: now.sample, before: undefined, lines: 3 });
  expect(all).toMatch(/^3 service ports; /);
});

test("without counters nothing is shown", () => {
  expect(topRows(list(port("a", {})))).toBeUndefined();
});
