/** The parts of `diagnose`: the archive, which tar itself reads; removed secrets; the log's tail. */
import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { LogTail } from "../../../src/base/log-tail.js";
import { createLogger } from "../../../src/base/logger.js";
import { withoutSecrets } from "../../../src/base/redact.js";
import { tarOf } from "../../../src/cli/commands/diagnose/tar.js";

const tar = (args: readonly string[], input: Buffer): string =>
  execFileSync("tar", [...args, "-f", "-"], { input, env: { ...process.env, TZ: "UTC" } }).toString();

test("tar reads the archive: names, sizes, times and contents", () => {
  const long = "x".repeat(100);
  const texts = ["", "one", "a".repeat(511), "b".repeat(512), "ä".repeat(300)];
  const files = texts.map((text, i) => ({ name: `dir/file-${i}`, text }));
  const archive = tarOf([...files, { name: long, text: "last" }], Date.UTC(2026, 0, 2, 3, 4, 5));
  expect(tar(["-t"], archive).split("\n")).toEqual([...files.map(({ name }) => name), long, ""]);
  expect(tar(["-tv"], archive)).toMatch(/^-rw------- 0\/0 +3 2026-01-02 03:04 dir\/file-1$/m);
  for (const { name, text } of files) expect(tar(["-xO", name], archive)).toBe(text);
  // POSIX.1-1988: magic and version. GNU tar reads archives without them, but BusyBox's tar rejects them.
  expect(archive.toString("latin1", 257, 265)).toBe("ustar\u000000");
  expect(() => tarOf([{ name: `${long}x`, text: "" }], 0)).toThrow(RangeError);
});

test("fields of secrets lose their values at any depth", () => {
  const user = { token: "a", tokenFile: "/t", "client-key-data": "b", exec: { command: "c", env: ["d"], args: ["e"] } };
  expect(withoutSecrets({ users: [{ user }], bytes: Uint8Array.of(1) })).toEqual({
    users: [
      {
        user: {
          token: "(removed)",
          tokenFile: "/t",
          "client-key-data": "(removed)",
          exec: { command: "c", env: "(removed)", args: "(removed)" },
        },
      },
    ],
    bytes: Uint8Array.of(1),
  });
});

test("the last lines of the log are kept, up to a limit", async () => {
  const tail = new LogTail();
  for (let i = 0; i < 2000; i++) tail.keep(`${i}\n`);
  expect(tail.text.split("\n")).toHaveLength(501);
  expect(tail.text.endsWith("1998\n1999\n")).toBe(true);
  for (let i = 0; i < 10; i++) tail.keep(`${"x".repeat(100_000)}\n`);
  expect(tail.text.length).toBeLessThan(300_000);
  const kept = new LogTail();
  (await createLogger("error", "json", kept)).error({ a: 1 }, "logged for the tail");
  expect(JSON.parse(kept.text)).toMatchObject({ level: "error", a: 1, msg: "logged for the tail" });
});
