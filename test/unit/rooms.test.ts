import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { expect, test } from "vitest";

const SOURCE = join(import.meta.dirname, "../../src");

/** "source/decode/annotations.ts → config", each room once for a file; without imports of types alone. */
function importsOf(room: string): string[] {
  const files = readdirSync(join(SOURCE, room), { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".ts"),
  );
  return files.flatMap((name) => {
    const file = join(SOURCE, room, name);
    const imports = readFileSync(file, "utf8").matchAll(/^(?:import|export)\s(?!type\s)[^;]*?from "(\.[^"]+)";/gm);
    const paths = Array.from(imports, ([, from = ""]) => relative(SOURCE, join(file, "..", from)));
    const others = paths.map((path) => path.split("/")[0]).filter((other) => other !== room);
    return [...new Set(others)].map((other) => `${room}/${name} → ${other}`);
  });
}

/** Types included. */
function filesImportedBy(name: string): string[] {
  const imports = readFileSync(join(SOURCE, name), "utf8").matchAll(
    /^(?:import|export)\s[^;]*?from "(\.[^"]+)\.js";/gm,
  );
  return Array.from(imports, ([, from = ""]) => `${relative(SOURCE, join(SOURCE, name, "..", from))}.ts`);
}

test("no files import each other in a circle, nor for their types", () => {
  const names = readdirSync(SOURCE, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  const imports = new Map(names.map((name) => [name, filesImportedBy(name)]));
  const circular = names.filter((name) => {
    const reached = new Set(imports.get(name));
    for (const other of reached) for (const next of imports.get(other) ?? []) reached.add(next);
    return reached.has(name);
  });
  expect(circular).toEqual([]);
});

test("base/ imports no other room, which all may import", () => {
  expect(importsOf("base")).toEqual([]);
});

test.each([
  ["source", ["base", "model"]],
  ["model", ["base"]],
  ["balance", ["base", "model"]],
  ["table", ["base", "kernel"]],
  ["kernel", ["base"]],
])("%s/ imports of other rooms, types aside, at most %j", (room, allowed) => {
  expect(importsOf(room).filter((text) => !allowed.some((other) => text.endsWith(`→ ${other}`)))).toEqual([]);
});

test("ruleset/ describes a table in its types, and has nothing else of it", () => {
  expect(importsOf("ruleset").filter((text) => text.endsWith("→ table"))).toEqual([]);
});

test("others import balance/ by its index alone", () => {
  const users = readdirSync(SOURCE, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  const inside = users.filter((name) =>
    /"\.[^"]*\/balance\/(?!index\.js")/.test(readFileSync(join(SOURCE, name), "utf8")),
  );
  expect(inside).toEqual([]);
});

test.each(["source", "model", "balance", "ruleset", "table", "kernel", "conntrack"])(
  "%s/ knows nothing of the configuration but its types",
  (room) => {
    expect(importsOf(room).filter((text) => text.endsWith("→ config"))).toEqual([]);
  },
);
