/** How `trace` prints to a reader that stops, continues, or closes its end. */
import { beforeEach, expect, test, vi } from "vitest";
import { MOST_WAITING, TracePrinter, type TracePrinterOptions } from "../../../src/cli/commands/trace-printer.js";
import type { TracedPacket } from "../../../src/tools/trace/traced-packet.js";

const packet = (at: number): TracedPacket => ({
  at,
  family: "ip",
  protocol: "tcp",
  packet: { source: "192.0.2.1", sourcePort: 4711, destination: "10.96.0.10", destinationPort: 80 },
  masqueraded: false,
  verdict: "accepted",
});

/** A pipe that accepts one write, and the next one only on request. */
class Pipe {
  readonly texts: string[] = [];
  #full: ((error?: Error | null) => void)[] = [];
  reads = false;

  write(text: string, done: (error?: Error | null) => void): boolean {
    this.texts.push(text);
    if (this.reads) setImmediate(done);
    else this.#full.push(done);
    return this.reads;
  }
  on(): void {}
  off(): void {}

  /** The reader reads everything from now on. */
  read(): void {
    this.reads = true;
    for (const done of this.#full.splice(0)) done();
  }
  /** The reader closes its end. */
  close(): void {
    for (const done of this.#full.splice(0)) done(Object.assign(new Error("write EPIPE"), { code: "EPIPE" }));
  }
}

let pipe: Pipe;
let told: string[];
let asked: number;
const printer = (options: Partial<TracePrinterOptions> = {}): TracePrinter =>
  new TracePrinter({
    output: "json",
    names: { of: () => (asked++, Promise.resolve({})) },
    stream: pipe,
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
  expect(one.summary(TOTALS)).toBe(
    "1500 packets traced: 1500 accepted; 500 not printed because the reader was too slow",
  );
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

test("the summary counts refused and unanswered connections apart from accepted ones", () => {
  const one = printer();
  for (const reply of ["no", "refused", "no", "yes", "untracked"] as const) one.packet({ ...packet(1), reply });
  one.packet({ ...packet(1), verdict: "delivered", reply: "refused" });
  one.packet({ ...packet(1), verdict: "dropped" });
  expect(one.summary(TOTALS)).toBe("7 packets traced: 2 unanswered, 2 refused, 2 accepted, 1 dropped");
});
