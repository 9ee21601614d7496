import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { expect, test } from "vitest";

const SOURCE = join(import.meta.dirname, "../../src");

/** "objects/decode/annotations.ts → config", each room once per file; imports of types alone do not count. */
function importsOf(room: string): string[] {
  const files = readdirSync(join(SOURCE, room), { recursive: true, encoding: "utf8" }).filter((name) =>
    /\.tsx?$/.test(name),
  );
  return files.flatMap((name) => {
    const file = join(SOURCE, room, name);
    const imports = readFileSync(file, "utf8").matchAll(/^(?:import|export)\s(?!type\s)[^;]*?from "(\.[^"]+)";/gm);
    const paths = Array.from(imports, ([, from = ""]) => relative(SOURCE, join(file, "..", from)));
    const others = paths.map((path) => path.split("/")[0]).filter((other) => other !== room);
    return [...new Set(others)].map((other) => `${room}/${name} → ${other}`);
  });
}

/** Every source file, by its path in src/. */
const FILES = readdirSync(SOURCE, { recursive: true, encoding: "utf8" }).filter((name) => /\.tsx?$/.test(name));

/** Includes types. */
function filesImportedBy(name: string): string[] {
  const imports = readFileSync(join(SOURCE, name), "utf8").matchAll(
    /^(?:import|export)\s[^;]*?from "(\.[^"]+)\.js";/gm,
  );
  return Array.from(imports, ([, from = ""]) => {
    const other = relative(SOURCE, join(SOURCE, name, "..", from));
    return FILES.includes(`${other}.tsx`) ? `${other}.tsx` : `${other}.ts`;
  });
}

/** In order, from the lowest room up. */
const FLOORS = ["base", "nft", "netlink", "config", "objects", "model", "node", "ruleset", "proxier"].concat([
  "conntrack",
  "flowtable",
  "observe",
  "tools",
  "migration",
  "daemon",
  "cli",
]);

test("every room has its floor", () => {
  const rooms = readdirSync(SOURCE, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  expect(rooms.map(({ name }) => name).toSorted()).toEqual(FLOORS.toSorted());
});

test.each(FLOORS.map((room, floor) => [room, FLOORS.slice(floor + 1)] as const))(
  "%s/ imports neither code nor types from a room above it",
  (room, above) => {
    const names = FILES.filter((name) => name.startsWith(`${room}/`));
    const upward = names.flatMap((name) => {
      const imports = filesImportedBy(name).filter((other) => above.includes(other.split("/")[0]));
      return imports.map((other) => `${name} → ${other}`);
    });
    expect(upward).toEqual([]);
  },
);

test("no two folders of a room import each other, even for types", () => {
  const arrows = new Map<string, string>();
  for (const name of FILES)
    for (const other of filesImportedBy(name))
      if (dirname(name) !== dirname(other)) arrows.set(`${dirname(name)} → ${dirname(other)}`, `${name} → ${other}`);
  const mutual = [...arrows].filter(([arrow]) => arrows.has(arrow.split(" → ").toReversed().join(" → ")));
  expect(mutual.map(([, files]) => files)).toEqual([]);
});

test("a file's name describes its contents", () => {
  expect(FILES.filter((name) => /(^|\/)(types|index|text|report|fields|utils|helpers)\.ts$/.test(name))).toEqual([]);
});

test("no files import each other in a circle, even for types", () => {
  const imports = new Map(FILES.map((name) => [name, filesImportedBy(name)]));
  const circular = FILES.filter((name) => {
    const reached = new Set(imports.get(name));
    for (const other of reached) for (const next of imports.get(other) ?? []) reached.add(next);
    return reached.has(name);
  });
  expect(circular).toEqual([]);
});

test("base/, which all rooms may import, imports no other room", () => {
  expect(importsOf("base")).toEqual([]);
});

test.each([
  ["objects", ["base"]],
  ["model", ["base", "objects"]],
  ["nft", ["base"]],
  ["netlink", ["base", "nft"]],
  ["config", ["base"]],
])("%s/ imports at most %j from other rooms, except types", (room, allowed) => {
  expect(importsOf(room).filter((text) => !allowed.some((other) => text.endsWith(`→ ${other}`)))).toEqual([]);
});

test("the machine of `explain` knows neither the node nor texts", () => {
  const names = readdirSync(join(SOURCE, "tools/explain/machine"), { encoding: "utf8" });
  const imports = names.flatMap((name) => filesImportedBy(join("tools/explain/machine", name)));
  expect(imports.filter((name) => /^tools\/(trace|explain\/(world|text|firewall))\//.test(name))).toEqual([]);
});

/** The rest of the library is its own. */
const ENTRIES = ["nft/engine-exports.ts", "nft/conntrack/", "nft/kernel/"];

test("the proxier uses the library's engine through the package's own entry point, @nft-proxier/nft/engine", () => {
  const names = FILES.filter((name) => !name.startsWith("nft/"));
  const inside = names.flatMap((name) => filesImportedBy(name).filter((other) => other.startsWith("nft/")));
  expect([...new Set(inside)].filter((name) => !ENTRIES.some((entry) => name.startsWith(entry)))).toEqual([]);
});

test("ruleset/ uses only the types of a table", () => {
  const source = readdirSync(join(SOURCE, "ruleset"), { encoding: "utf8" }).map((name) =>
    readFileSync(join(SOURCE, "ruleset", name), "utf8"),
  );
  expect(source.filter((text) => /^import (?!type)[^;]*"\.\.\/nft\/engine-exports\.js"/m.test(text))).toEqual([]);
});

test.each(["objects", "model", "ruleset", "nft", "netlink", "conntrack"])(
  "%s/ knows only the types of the configuration",
  (room) => {
    expect(importsOf(room).filter((text) => text.endsWith("→ config"))).toEqual([]);
  },
);
