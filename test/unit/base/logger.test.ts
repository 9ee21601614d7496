import { spawnSync } from "node:child_process";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { levelOf, logfmt, type Logger, loggerOptions, serviceFields } from "../../../src/base/logger.js";

test.each([
  [0, "info"],
  [1, "info"],
  [2, "verbose"],
  [3, "verbose"],
  [4, "debug"],
  [5, "debug"],
  [6, "trace"],
  [10, "trace"],
])("-v=%d logs from %s on", (verbosity, level) => {
  expect(levelOf(verbosity)).toBe(level);
});

/** Returns the line that `say` logs. */
function line(say: (log: Logger) => void): string {
  let written = "";
  say(pino(loggerOptions("trace"), { write: (text: string) => void (written += text) }));
  return written;
}

describe("a line of JSON", () => {
  test("has ts in RFC 3339, the level as a word, klog's v, msg and the fields", () => {
    const fields = JSON.parse(
      line((log) => log.info({ family: "ip", ...serviceFields("shop/web") }, "synced")),
    ) as object;
    expect(fields).toEqual({
      level: "info",
      v: 0,
      ts: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/) as string,
      family: "ip",
      namespace: "shop",
      service: "web",
      msg: "synced",
    });
  });

  test.each([
    ["an error", { err: new Error("GET https://admin:hunter2@10.0.0.1/api: Authorization: Bearer hunter2") }],
    ["an error without a code, which has a stack", { err: new TypeError("token=hunter2") }],
    ["a text at any depth", { server: { reasons: ['{"password":"hunter2"}'] } }],
  ])("hides secrets in %s", (_what, fields) => {
    const text = line((log) => log.error(fields, "failed"));
    expect(text).not.toContain("hunter2");
    expect(text).toContain("(removed)");
  });

  test("has level info with -v=2", () => {
    expect(JSON.parse(line((log) => log.verbose("done")))).toMatchObject({ level: "info", v: 2 });
  });

  test.each([
    ["debug", 4],
    ["trace", 6],
    ["warn", undefined],
    ["error", undefined],
  ] as const)("%s has v %s", (level, v) => {
    expect((JSON.parse(line((log) => log[level]("done"))) as { v?: number }).v).toBe(v);
  });

  test("has err with the error's words, and with its code, or with the stack if it has no code", () => {
    const refused = Object.assign(new Error("no room"), { code: "ENOSPC" });
    expect(JSON.parse(line((log) => log.warn({ err: refused }, "written")))).toMatchObject({
      err: "no room",
      code: "ENOSPC",
    });
    const bug = JSON.parse(line((log) => log.warn({ err: new TypeError("x is undefined") }, "written"))) as object;
    expect(bug).toMatchObject({ err: "x is undefined", stack: expect.stringContaining("logger.test.ts") as string });
  });
});

describe("a line of text", () => {
  const text = (fields: object, msg: string): string =>
    logfmt(line((log) => log.info(fields, msg))).replace(/ts=\S+/, "ts=T");

  test("is logfmt: values that are not plain words are quoted, and objects become dotted fields", () => {
    const fields = {
      family: "ip",
      took: 1.5,
      by: ["nft", "kube-proxy"],
      ip: { services: 3 },
      reason: 'no "room"',
      none: "",
    };
    expect(text(fields, "rules active")).toBe(
      'ts=T level=info msg="rules active" family=ip took=1.5 by=nft,kube-proxy ip.services=3 reason="no \\"room\\"" none=""\n',
    );
  });

  test("stays one line whatever its values are", () => {
    expect(text({ err: "first\nsecond" }, "failed")).toBe('ts=T level=info msg=failed err="first\\nsecond"\n');
  });

  test("has no control character, whatever its values are", () => {
    const hostile = "\u001b[31m\u009b2J\u202e\u2028\u007fx";
    const escaped = "\\u001b[31m\\u009b2J\\u202e\\u2028\\u007fx";
    expect(text({ [hostile]: hostile, list: [hostile] }, hostile)).toBe(
      `ts=T level=info msg="${escaped}" ${escaped}="${escaped}" list="${escaped}"\n`,
    );
  });

  test("has a coloured level only on request", () => {
    const json = line((log) => log.warn("full"));
    expect(logfmt(json)).toContain("level=warn ");
    expect(logfmt(json, true)).toContain("level=\u001b[33mwarn\u001b[0m ");
  });
});

/** Returns the output of a separate program on a terminal. */
function onTerminal(environment: Record<string, string>): string {
  const module = new URL("../../../dist/base/logger.js", import.meta.url).pathname;
  const program = `import { createLogger } from ${JSON.stringify(module)}; (await createLogger("info")).info("done");`;
  const command = `${process.execPath} --no-warnings --input-type=module -e '${program}'`;
  const env = { ...process.env, TERM: "xterm", NO_COLOR: "", ...environment };
  return spawnSync("script", ["-qec", command, "/dev/null"], { encoding: "utf8", env }).stdout;
}

test("createLogger() writes text with colours on a terminal, and without them if NO_COLOR is set", () => {
  expect(onTerminal({}).replaceAll("\u001b", "ESC")).toMatch(/^ts=\S+ level=ESC\[32minfoESC\[0m msg=done\r?\n$/);
  expect(onTerminal({ NO_COLOR: "1" })).toMatch(/^ts=\S+ level=info msg=done\r?\n$/);
});
