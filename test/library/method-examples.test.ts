/** The examples in the comments of the library's public methods: each exists, compiles, runs, and prints what it says. */
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

const root = path.resolve(import.meta.dirname, "../..");
// Outside the checkout, so that the compiler finds the package as in any project.
const project = path.join("/tmp", `nft-proxier-method-examples-${process.pid}`);

const FILES = [
  "table.ts",
  "handles/elements.ts",
  "handles/filled-sets.ts",
  "handles/named-objects.ts",
  "table-watch.ts",
];

/** A TableWatch calls these. */
const FOR_WATCHES = new Set(["Table.noticesAllTables", "Table.notice", "Table.listening", "Table.eventsLost"]);

interface Method {
  /** "CLASS.METHOD". */
  readonly name: string;
  /** Undefined if there is none. */
  readonly example: string | undefined;
}

/** The public methods and getters of a file's classes. Constructors count if they are public. */
function methodsIn(file: string): Method[] {
  const text = readFileSync(path.join(root, "src/nft", file), "utf8");
  const classes = text.matchAll(/^export class (\w+)|^abstract class (\w+)/gm);
  return [...classes].flatMap(({ index, 1: exported, 2: common }) => {
    const body = text.slice(index, text.indexOf("\n}\n", index));
    const methods = body.matchAll(
      /((?:^ {2}\/\*\*(?:(?!\*\/).)*\*\/\n)?)^ {2}(?:async |get )*(\w+)(?:<[^\n]*?>)?\(/gms,
    );
    return [...methods]
      .filter(([, comment]) => !comment.includes("@internal"))
      .map(([, comment, method]) => {
        const [, example] = /@example\n(.*?)\n {3}\*\//s.exec(comment) ?? [];
        return { name: `${exported ?? common}.${method}`, example: example?.replaceAll(/^ {3}\* ?/gm, "") };
      });
  });
}

const methods = FILES.flatMap(methodsIn).filter(({ name }) => !FOR_WATCHES.has(name));
const examples = methods.filter((method): method is Method & { example: string } => method.example !== undefined);

/** The variables that the examples use. */
const WORLD = `import { Table, TableWatch } from "@nft-proxier/nft";
import { FakeKernel } from "@nft-proxier/nft/testing";

async function world() {
  const kernel = new FakeKernel();
  const table = new Table(kernel, { family: "inet", name: "guard", ownerMark: "guard" });
  const banned = table.set({ set: "banned", key: ["ipv4_addr"], timeoutMs: 600_000, counters: {} });
  const networks = table.set({ set: "networks", key: ["ipv4_addr"], interval: true });
  const marks = table.set({ set: "marks", key: ["ipv4_addr"], data: ["mark"] });
  const services = table.set({ set: "services", key: ["inet_service"], data: "verdict" });
  const seen = table.set({ set: "seen", key: ["ipv4_addr"], dynamic: true, timeoutMs: 600_000, size: 100 });
  const sessions = table.set({
    set: "sessions", key: ["ipv4_addr"], data: ["ipv4_addr", "inet_service"], dynamic: true, timeoutMs: 600_000, size: 100,
  });
  const requests = table.object({ object: "requests", kind: "counter" });
  table.chain({ chain: "web", rules: [] });
  banned.put("192.0.2.1");
  networks.put("192.0.2.0/24");
  marks.put("192.0.2.1", 7);
  await table.apply();
  await seen.put("192.0.2.1");
  const watch = new TableWatch(kernel, [table], { changed: () => {}, lost: () => {}, failed: () => {} });
  return { kernel, table, banned, networks, marks, services, seen, sessions, requests, watch };
}
const outputs: Record<string, string> = {};
let lines: string[] = [];
const print = console.log;
`;

function program(): string {
  const parts = examples.map(
    ({ name, example }) => `{
  const { kernel, table, banned, networks, marks, services, seen, sessions, requests, watch: open } = await world();
  {
    const watch = open;
    console.log = (...values: unknown[]) => void lines.push(format(...values));
    {
${example}
    }
    console.log = print;
    await open.close();
  }
  outputs["${name}"] = lines.join("\\n");
  lines = [];
}
`,
  );
  return `import { format } from "node:util";\n${WORLD}${parts.join("")}print(JSON.stringify(outputs));\nprocess.exit(0);\n`;
}

let compiler: string;
let outputs: Readonly<Record<string, string>>;
beforeAll(() => {
  mkdirSync(path.join(project, "node_modules"), { recursive: true });
  symlinkSync(path.join(root, "node_modules/@nft-proxier"), path.join(project, "node_modules/@nft-proxier"));
  const file = path.join(project, "program.mts");
  writeFileSync(file, program());
  const flags = [
    "--ignoreConfig",
    "--noEmit",
    "--strict",
    "--module",
    "nodenext",
    "--target",
    "es2024",
    "--skipLibCheck",
  ];
  const types = ["--types", "node", "--typeRoots", path.join(root, "node_modules/@types")];
  compiler = spawnSync(path.join(root, "node_modules/.bin/tsc"), [...flags, ...types, file], {
    encoding: "utf8",
  }).stdout;
  const { stdout, stderr } = spawnSync(process.execPath, [file], { encoding: "utf8" });
  expect(stderr).toBe("");
  outputs = JSON.parse(stdout) as typeof outputs;
}, 60_000);
afterAll(() => rmSync(project, { recursive: true, force: true }));

test("every public method has an example", () => {
  expect(methods.length).toBeGreaterThan(40);
  expect(methods.filter(({ example }) => example === undefined).map(({ name }) => name)).toEqual([]);
});

test("the examples compile", () => {
  expect(compiler).toBe("");
});

test.each(examples)("$name prints what its example says", ({ name, example }) => {
  const told = [...example.matchAll(/^console\.log.*; \/\/ (.*?)(?:: [a-z].*)?$/gm)].map(([, text]) => text);
  const output = (outputs[name] ?? "").replaceAll("'", '"');
  // … stands for anything that follows.
  for (const [index, text] of told.entries()) {
    const line = told.length === 1 ? output : output.split("\n")[index];
    if (text.endsWith("…")) expect(line.replaceAll(/\s+/g, " ")).toContain(text.slice(0, -1));
    else expect(line).toBe(text);
  }
});
