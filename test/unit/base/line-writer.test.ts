/** Lines for a descriptor that accepts nothing for a while, in a process of its own. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const MODULE = fileURLToPath(new URL("../../../src/base/line-writer.ts", import.meta.url));
const LINES = 40_000;

/** Writes 4 MB of lines at once, prints how many there were, and waits for a line of stdin before the last one. */
const SCRIPT = `
  import { once } from "node:events";
  import { LineWriter } from ${JSON.stringify(MODULE)};
  process.stderr;
  const writer = new LineWriter(2, (lines) => writer.write("dropped " + lines + "\\n"));
  for (let i = 0; i < ${LINES}; i++) writer.write(String(i).padEnd(99, ".") + "\\n");
  console.log("written");
  await once(process.stdin, "data");
  writer.write("last\\n");
  process.exit(0);
`;

test("a socket that nobody reads: lines are dropped, counted and reported, and the rest arrives in order", async () => {
  const child = spawn(process.execPath, ["--no-warnings", "--input-type=module", "-e", SCRIPT]);
  await once(child.stdout, "data");
  let text = "";
  const reported = new Promise<void>((resolve) => {
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
      if (text.includes("dropped ")) resolve();
    });
  });
  await reported;
  const exited = once(child, "close");
  child.stdin.write("go on\n");
  expect(await exited).toEqual([0, null]);
  const lines = text.trimEnd().split("\n");
  expect(lines.at(-1)).toBe("last");
  const kept = lines.slice(0, -2).map((line) => Number.parseInt(line));
  expect(kept).toEqual(kept.map((_, i) => i));
  expect(lines.at(-2)).toBe(`dropped ${LINES - kept.length}`);
  // 1 MiB waited, and the socket had its own buffer.
  expect(kept.length).toBeGreaterThan(10_000);
});

test("a socket that nobody reads does not keep the process from ending", async () => {
  const child = spawn(process.execPath, ["--no-warnings", "--input-type=module", "-e", SCRIPT]);
  await once(child.stdout, "data");
  const exited = once(child, "exit");
  child.stdin.write("go on\n");
  expect(await exited).toEqual([0, null]);
  child.stderr.destroy();
});
