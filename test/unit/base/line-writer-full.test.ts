/** Which lines are lost when the descriptor accepts fewer bytes than are written. */
import { beforeEach, expect, test, vi } from "vitest";
import { LineWriter } from "../../../src/base/line-writer.js";

/** Bytes that the descriptor accepts per ms, since when, and what it has accepted. */
const descriptor = { bytesPerMs: 0, since: 0, taken: 0, text: "" };

function writeSync(_fd: number, bytes: Buffer): number {
  const { bytesPerMs, since, taken } = descriptor;
  const count = Math.min(bytes.length, Math.floor((performance.now() - since) * bytesPerMs) - taken);
  if (!(count > 0)) throw Object.assign(new Error("EAGAIN"), { code: "EAGAIN" });
  descriptor.taken += count;
  descriptor.text += bytes.toString("latin1", 0, count);
  return count;
}

function accept(bytesPerMs: number): void {
  Object.assign(descriptor, { bytesPerMs, since: performance.now(), taken: 0 });
}

/** A writer, and the end of its process. */
function writer(): { readonly lines: LineWriter; readonly exit: () => void } {
  const once = vi.spyOn(process, "once").mockReturnThis();
  const lines: LineWriter = new LineWriter(2, (count) => lines.write(`dropped ${count}\n`), writeSync);
  const [, exit] = once.mock.calls[0] as unknown as [string, () => void];
  once.mockRestore();
  return { lines, exit };
}

const LINES = 100_000;

function writeMany(lines: LineWriter, count: number, length: number): void {
  const rest = `${".".repeat(length - 9)}\n`;
  for (let i = 0; i < count; i++) lines.write(String(i).padEnd(8, ".") + rest);
}

beforeEach(() => {
  accept(0);
  descriptor.text = "";
});

test("no line of a burst is lost if the reader has to wait for a CPU", () => {
  const { lines, exit } = writer();
  Object.assign(descriptor, { bytesPerMs: Infinity, since: performance.now() + 50 });
  // Written within a few ms.
  writeMany(lines, 500, 8_000);
  exit();
  const numbers = descriptor.text.trimEnd().split("\n").map(Number.parseFloat);
  expect(numbers).toEqual(numbers.map((_, i) => i));
  expect(numbers).toHaveLength(500);
});

test("the number of dropped lines is also reported if the process ends", () => {
  const { lines, exit } = writer();
  writeMany(lines, LINES, 100);
  accept(Infinity);
  exit();
  const kept = descriptor.text.split("\n").slice(0, -2).length;
  expect(descriptor.text.slice(100 * kept)).toBe(`dropped ${LINES - kept}\n`);
  expect(kept).toBe(Math.floor((1 << 20) / 100));
});

test("a line is accepted if none waits, however long it is", () => {
  const { lines, exit } = writer();
  const long = `${"x".repeat(2 << 20)}\n`;
  lines.write(long);
  accept(Infinity);
  exit();
  expect(descriptor.text).toBe(long);
});
