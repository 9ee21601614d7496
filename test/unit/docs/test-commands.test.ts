/** CONTRIBUTING.md's table of commands is the one in test/tiers.ts, which agrees with package.json and with what CI runs. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { LONG_FILES } from "../../lab/length.ts";
import { type Ended, nightlyCommands, nightlyLines } from "../../nightly-commands.ts";
import { type Command, commands, tiers } from "../../tiers.ts";

const ROOT = join(import.meta.dirname, "../../..");
const read = (name: string): string => readFileSync(join(ROOT, name), "utf8");

const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };

function row({ name, what, takes, readme, in: share }: Command): string {
  const more = readme === undefined ? "" : ` ([${readme}](${readme}/README.md))`;
  const command = name === "test" ? "npm test" : `npm run ${name}`;
  return `| \`${command}\` | ${what}${more} | ${takes} | ${share.test} | ${share.ci} | ${share.nightly} |`;
}

test("CONTRIBUTING.md lists the commands, with their shares in longer runs", () => {
  const [, table = ""] = read("CONTRIBUTING.md").split(/^\| command \|.*\n\|[-|]+\n/m);
  expect(table.split("\n\n")[0].trimEnd().split("\n")).toEqual(commands.map(row));
});

test("every script of package.json that tests is listed", () => {
  const testing = Object.keys(scripts).filter((name) => /^(test|lint|bench)\b/.test(name));
  expect(commands.map(({ name }) => name).toSorted()).toEqual(testing.toSorted());
});

test("CI runs npm test and npm run test:all", () => {
  expect(read(".ci/run").match(/^npm .*$/gm)).toEqual(["npm test", "npm run test:all"]);
});

const nightly = nightlyCommands.flatMap(({ words: [program, , , script] }) => (program === "npm" ? [script] : []));

test("the nightly run runs the commands that it lists, besides the longer tiers", () => {
  const apart = commands.filter(({ in: share }) => share.ci !== "all" && share.nightly !== "–");
  const once = ["test:nightly", "lint", "test:leaks", "test:endurance"];
  expect([...new Set(nightly)].toSorted()).toEqual(
    apart
      .map(({ name }) => name)
      .filter((name) => !once.includes(name))
      .toSorted(),
  );
});

describe("the nightly run's lines", () => {
  const command = { name: "asan", words: [], limitMinutes: 75 };
  const ended = { started: new Date("2026-11-29T02:00:00Z"), minutes: 21.04, code: 0, isOverdue: false };
  const textOf = (output: string, how: Partial<Ended> = {}): string[] =>
    nightlyLines(command, { ...ended, ...how, output }).map(({ ok, text }) => `${ok ? "ok    " : "failed"} ${text}`);
  const two = "native: …\n=== summary\nnative       470 passed, 0 failed, 0 skipped in 61.0 s\n";

  test("are one per tier", () => {
    expect(textOf(`${two}packets      9 passed, 1 failed, 2 skipped in 600.5 s\n`, { code: 1 })).toEqual([
      "ok     2026-11-29  asan      native                    470 passed, 0 failed, 0 skipped, 61.0 s",
      "failed 2026-11-29  asan      packets                   9 passed, 1 failed, 2 skipped, 600.5 s",
    ]);
    expect(textOf("=== summary\n6.1    6.1.176: 1817 passed, 0 failed, 2 skipped in 39.1 min\n")).toEqual([
      "ok     2026-11-29  asan      6.1    6.1.176            1817 passed, 0 failed, 2 skipped, 39.1 min",
    ]);
  });

  test("tell of a command that failed outside its tests, or did not end", () => {
    const where = "see build/nightly/asan.log, 21.0 min";
    expect(textOf("npm error\n", { code: 1 })).toEqual([
      `failed 2026-11-29  asan      –                         failed: ended with 1, without a summary; ${where}`,
    ]);
    expect(textOf(two, { code: null, isOverdue: true }).at(-1)).toContain("was still running after 75 min");
    expect(textOf(two, { code: 1 }).at(-1)).toContain("failed: ended with 1;");
  });
});

describe("agrees with the tiers that its script runs:", () => {
  const rows = commands.map((command) => ({ ...command, script: scripts[command.name] ?? "" }));

  test.each(rows.filter(({ script }) => script.includes(" --only ")))("$name", ({ name, script, in: share }) => {
    const [, environment, names, rest] = /^(.*?)node .* --only (\S+)(.*)$/.exec(script)!;
    const selected = tiers.filter(({ name }) => names.split(",").includes(name));
    const isApart = rest === " --asan" || selected.every(({ apart }) => apart);
    const isLong = selected.every(({ long }) => long) || LONG_FILES.includes(rest.trim());
    const full = environment === "" && rest === "" ? "all" : "short";
    const isNightly = nightly.includes(name);
    const apart = { test: "–", ci: "–", nightly: isNightly ? "all" : "–" };
    expect(share).toEqual(
      isApart ? apart : { test: isLong ? "–" : "short", ci: full, nightly: isNightly ? "all" : full },
    );
  });
});
