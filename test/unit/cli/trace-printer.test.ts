/** How `trace` prints to a reader that stops, continues, or closes its end. */
import { beforeEach, expect, test, vi } from "vitest";
import { MOST_WAITING, TracePrinter, type TracePrinterOptions } from "../../../src/cli/commands/trace-printer.js";
import type { TracedPacket } from "../../../src/tools/trace/traced-packet.js";

/** Each has another source port, and so belongs to another connection. */
const packet = (at: number, sourcePort = at): TracedPacket => ({
  at,
  family: "ip",
  protocol: "tcp",
  packet: { source: "192.0.2.1", sourcePort, destination: "10.96.0.10", destinationPort: 80 },
  masqueraded: false,
  verdict: "accepted",
  reply: "yes",
});

/** A pipe that accepts one write, and the next one only on request. */
class Pipe {
  readonly texts: string[] = [];
  #full: ((isTaken: boolean) => void)[] = [];
  reads = false;

  /** Resolves to false if the reader has closed its end. */
  write(text: string): Promise<boolean> {
    this.texts.push(text);
    return new Promise((resolve) => {
      if (this.reads) setImmediate(() => resolve(true));
      else this.#full.push(resolve);
    });
  }

  /** The reader reads everything from now on. */
  read(): void {
    this.reads = true;
    for (const done of this.#full.splice(0)) done(true);
  }
  /** The reader closes its end. */
  close(): void {
    for (const done of this.#full.splice(0)) done(false);
  }
}

let pipe: Pipe;
let told: string[];
let asked: number;
const printer = (options: Partial<TracePrinterOptions> = {}): TracePrinter =>
  new TracePrinter({
    output: "json",
    names: { of: () => (asked++, Promise.resolve({})) },
    write: (text) => pipe.write(text),
    onFull: () => told.push("full"),
    onBehind: () => told.push("behind"),
    ...options,
  });
const times = (): number[] => pipe.texts.map((text) => Date.parse((JSON.parse(text) as { time: string }).time));
const TOTALS = { matched: 0, losses: 0 };

beforeEach(() => {
  [pipe, told, asked] = [new Pipe(), [], 0];
});

test("a few packets are kept for a reader that stops, and later ones are counted and reported once", async () => {
  const one = printer();
  for (let at = 0; at < MOST_WAITING + 500; at++) one.packet(packet(at));
  expect(told).toEqual(["behind"]);
  pipe.read();
  expect(await one.finish()).toBe(MOST_WAITING);
  expect(times()).toEqual(Array.from({ length: MOST_WAITING }, (_, at) => at));
  expect(one.summary(TOTALS)).toBe("1500 connections: 1500 answered; 500 not printed because the reader was too slow");
});

test("a reader that continues receives later packets, and a new notice if it stops again", async () => {
  const one = printer();
  for (let at = 0; at <= MOST_WAITING; at++) one.packet(packet(at));
  pipe.read();
  await vi.waitFor(() => expect(asked).toBe(MOST_WAITING));
  await new Promise((resolve) => setImmediate(resolve));
  pipe.reads = false;
  for (let at = 5000; at <= 5000 + MOST_WAITING; at++) one.packet(packet(at));
  expect(told).toEqual(["behind", "behind"]);
  pipe.read();
  expect(await one.finish()).toBe(2 * MOST_WAITING);
  expect(times()[MOST_WAITING]).toBe(5000);
});

test("the trace ends when its reader ends", async () => {
  const one = printer();
  one.packet(packet(1));
  while (pipe.texts.length === 0) await new Promise((resolve) => setImmediate(resolve));
  pipe.close();
  await one.finish();
  expect(told).toEqual(["full"]);
});

test("the requested number of packets is printed, without counting skipped ones", async () => {
  const one = printer({ count: 2 });
  pipe.read();
  for (let at = 0; at < 3; at++) one.packet(packet(at));
  expect([await one.finish(), told]).toEqual([2, ["full"]]);
});

const by = { table: "inet wall", chain: "gate", hook: "forward", rule: "7" };

test("the summary counts connections by outcome, most first", () => {
  const one = printer();
  for (const [i, reply] of (["no", "refused", "no", "yes", "untracked"] as const).entries())
    one.packet({ ...packet(i), reply });
  one.packet({ ...packet(5), verdict: "delivered", reply: "no" });
  for (const at of [6, 7]) one.packet({ ...packet(at), verdict: "dropped", by });
  one.packet({ ...packet(8), verdict: "rejected", by: { ...by, reason: "no-ready-endpoint" } });
  expect(one.summary({ matched: 12, losses: 1 })).toBe(
    "9 connections: 3 unanswered, 2 dropped by inet wall gate, 1 refused, 1 answered, 1 unknown, " +
      "1 rejected (the service has no ready endpoint); 12 packets matched; the kernel dropped messages once",
  );
});

test("a repeated first packet is one connection with the last outcome, and gets a line only for another outcome", async () => {
  const one = printer();
  pipe.read();
  for (const [at, reply] of [
    [0, "no"],
    [1000, "no"],
    [3000, "no"],
    [7000, "yes"],
    [90_000, "yes"],
  ] as const)
    one.packet({ ...packet(at, 4711), reply });
  expect(await one.finish()).toBe(3);
  expect(times()).toEqual([0, 7000, 90_000]);
  expect(one.summary({ matched: 5, losses: 0 })).toBe("2 connections: 2 answered");
});

test("with all packets, each packet has a line and is counted", async () => {
  const one = printer({ allPackets: true });
  pipe.read();
  for (const at of [0, 10, 20]) one.packet(packet(at, 4711));
  expect(await one.finish()).toBe(3);
  expect(one.summary(TOTALS)).toBe("3 packets: 3 answered");
});

test.each([
  [{ refused: true }, [1]],
  [{ unanswered: true }, [2]],
  [{ dropped: true }, [3, 4, 5]],
  [{ refused: true, unanswered: true }, [1, 2]],
  [{}, [0, 1, 2, 3, 4, 5]],
])("with %j, only such connections are printed, and all are counted", async (filters, printed) => {
  const one = printer(filters);
  pipe.read();
  for (const [at, reply] of (["yes", "refused", "no"] as const).entries()) one.packet({ ...packet(at), reply });
  for (const [i, verdict] of (["dropped", "rejected", "vanished"] as const).entries())
    one.packet({ ...packet(i + 3), verdict, by });
  await one.finish();
  expect(times()).toEqual(printed);
  expect(one.summary(TOTALS)).toMatch(/^6 connections: /);
});
