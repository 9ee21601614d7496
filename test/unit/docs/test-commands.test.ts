/** CONTRIBUTING.md's table of commands is the one in test/tiers.ts, which agrees with package.json and with what CI runs. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { LONG_FILES } from "../../lab/length.ts";
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

describe("agrees with the tiers that its script runs:", () => {
  const rows = commands.map((command) => ({ ...command, script: scripts[command.name] ?? "" }));

  test.each(rows.filter(({ script }) => script.includes(" --only ")))("$name", ({ script, in: share }) => {
    const [, environment, names, rest] = /^(.*?)node .* --only (\S+)(.*)$/.exec(script)!;
    const selected = tiers.filter(({ name }) => names.split(",").includes(name));
    const isApart = rest === " --asan" || selected.every(({ apart }) => apart);
    const isLong = selected.every(({ long }) => long) || LONG_FILES.includes(rest.trim());
    const full = environment === "" && rest === "" ? "all" : "short";
    const never = { test: "–", ci: "–", nightly: "–" };
    expect(share).toEqual(isApart ? never : { test: isLong ? "–" : "short", ci: full, nightly: full });
  });
});
